"""Which source connectors copy what a checkpoint connector translates: those between the same two clusters. Pure."""

from __future__ import annotations

from heliograph.config.connectors import CLASSES, SOURCE_ALIAS, TARGET_ALIAS, TARGET_DEFAULT, Kind, class_of
from heliograph.connect.board import Board, Config


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
