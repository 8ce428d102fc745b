"""Kafka Connect workers spoken to over their REST API, ours among them: a client, and what deploys by it."""
