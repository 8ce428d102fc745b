"""Hard topics between the pinned Kafka and other releases, in both roles, kill -9 in between: `make compat`."""
