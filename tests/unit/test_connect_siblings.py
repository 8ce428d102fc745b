"""Whose records a checkpoint connector translates, and whether it calls them as they are called."""

from __future__ import annotations

from heliograph.connect.board import Board, Connector
from heliograph.connect.siblings import named_otherwise, siblings_of

MIRROR = "org.apache.kafka.connect.mirror."


def config(kind: str, source: str = "west", **more: str) -> dict[str, str | None]:
    clusters = {"source.cluster.alias": source, "target.cluster.alias": "east"}
    return {"connector.class": f"{MIRROR}Mirror{kind}Connector", **clusters, **more}


def board(**configs: dict[str, str | None]) -> Board:
    return Board({name: Connector(name, one) for name, one in configs.items()})


def test_source_connectors_between_the_same_clusters() -> None:
    there = board(b=config("Source"), a=config("Source"), c=config("Source", "north"), d=config("Heartbeat"))
    assert siblings_of(there, config("Checkpoint")) == ("a", "b")
    assert siblings_of(there, config("Source")) == ()


def test_one_that_keeps_names_beside_one_that_was_told_of_no_policy() -> None:
    identity = {"replication.policy.class": f"{MIRROR}IdentityReplicationPolicy"}
    usual = {"replication.policy.class": f"{MIRROR}DefaultReplicationPolicy", "replication.policy.separator": "."}
    there = board(keeps=config("Source", **identity), usual=config("Source", **usual))
    assert named_otherwise(there, config("Checkpoint")) == ("keeps",)
    assert named_otherwise(there, config("Checkpoint", **identity)) == ("usual",)
    assert named_otherwise(there, config("Heartbeat")) == ()
