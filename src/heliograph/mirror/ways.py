"""Live records before history: which of several connections to a broker a lane travels on.

On one connection answers come in order, so a record that was written just now would wait behind megabytes of history
of another partition: for their transfer, for the broker's work on them, for ours. Lanes that are far behind therefore
have connections of their own, to read and to write; live ones take what they need, history gets all that is left. When
nothing is live, or nothing is history, there is one connection a broker as ever, and nothing is lost by it.

Lanes under a cap for their topic have connections of their own too: not to fetch them is then not to send one request.

A *way* is a small number: twice the group of caps (`mirror.budget`), plus one for history. A *key* of `mirror.brokers`
is a node's id with the way in the bits above it. Pure.
"""

from __future__ import annotations

from heliograph.mirror.lane import Lane

# More than one whole answer (`fetch.FETCH_BYTES`) behind: it would fill answers for itself. It is live again when what
# is left is small beside one. In between it stays what it was, so that a busy lane does not go back and forth.
HISTORY_BYTES = 8 << 20
LIVE_BYTES = 1 << 20

_NODE_BITS = 32
LIVE, HISTORY = 0, 1


def key_of(node: int, way: int) -> int:
    return way << _NODE_BITS | node


def node_of(key: int) -> int:
    return key & (1 << _NODE_BITS) - 1


def way_of(key: int) -> int:
    return key >> _NODE_BITS


def judge(lane: Lane, fetched_bytes: int, fetched_offsets: int) -> None:
    """After an answer for this lane: by how much it brought, how far is the rest?"""
    if fetched_offsets <= 0:
        return
    behind_bytes = max(lane.high_watermark - lane.fetch_offset, 0) * fetched_bytes / fetched_offsets
    if behind_bytes > HISTORY_BYTES:
        lane.history = True
    elif behind_bytes < LIVE_BYTES:
        lane.history = False
