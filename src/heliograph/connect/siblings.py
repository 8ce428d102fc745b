"""Which source connectors copy what a checkpoint connector translates: those between the same two clusters. Pure."""

from __future__ import annotations

from heliograph.config.connectors import CLASSES, SOURCE_ALIAS, TARGET_ALIAS, TARGET_DEFAULT, Kind, class_of
from heliograph.connect import definitions
from heliograph.connect.board import Board, Config

NAMING = ("replication.policy.class", "replication.policy.separator")  # how copies are called


def kind_of(config: Config) -> Kind | None:
    full = class_of(config.get("connector.class") or "")
    return CLASSES[full] if full is not None else None


def pair_of(config: Config) -> tuple[str, str]:
    return (config.get(SOURCE_ALIAS) or "").strip(), (config.get(TARGET_ALIAS) or TARGET_DEFAULT).strip()


def siblings_of(board: Board, config: Config) -> tuple[str, ...]:
    """Their names, in order; none for any but a checkpoint connector."""
    if kind_of(config) != "checkpoint":
        return ()
    mine = pair_of(config)
    found = (
        name
        for name, one in board.connectors.items()
        if kind_of(one.config) == "source" and pair_of(one.config) == mine
    )
    return tuple(sorted(found))


def named_otherwise(board: Board, config: Config) -> tuple[str, ...]:
    """Siblings that call their copies otherwise than this one does: what it says of them leads nowhere."""
    found = ((name, board.connectors[name].config) for name in siblings_of(board, config))
    return tuple(name for name, other in found if _naming(other) != _naming(config))


def _naming(config: Config) -> list[str]:
    usual = definitions.of("checkpoint")
    return [(config.get(key) or usual[key].default or "").strip() for key in NAMING]
