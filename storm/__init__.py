"""Two clusters mirrored both ways under seeded random faults, judged by confluent-kafka: `make storm`."""
