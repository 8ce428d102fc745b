"""Exactly once by sequence number: the arithmetic of design §2, and nothing else.

The target's broker is the ledger. For a producer id it stores a batch only when its first sequence follows the last one
it holds, and answers a repeat of one of the last five batches with the offsets of the first copy.

  A. Every source partition of a flow owns one producer id on the target, kept with the position; where the copy has
     another number of partitions, one for each of them.
  B. A record's sequence is the count, modulo 2^31, of records this flow appended for that source partition to that
     target partition before it. Content decides the sequence, not the attempt.
  C. A position is written only after the acknowledgement of what it covers.
  D. On start, and after every answer that failed or was lost: position, then what the target holds behind it, then skip
     exactly the records already there. The broker's memory is asked first; where it does not know the id, the target's
     log is read (`mirror.producer_state`).
  E. Go on at last + 1 with the same id and epoch; a stale writer sends the same content under the same sequences.
  F. At most five batches in flight per target partition, and no batch is sent twice without D in between.
  G. A first start claims an id in the positions topic; the first claim in the log wins.
  H. A record that the target refuses is passed over only when the incidents topic says so, and is in no count then. D
     reads that topic after the last sequence: what was appended behind such a record was appended after its incident
     was written, so every writer, however late, counts the same records. A refusal counts only when D finds that the
     batch is not stored: a repeat of a stored batch may be refused as well.
"""

from __future__ import annotations

from heliograph.mirror.positions import SEQUENCES, Position

IN_FLIGHT = (
    5  # rule F: the broker remembers five batches of a producer id; a sixth unanswered one could not be repeated
)


def advance(sequence: int, records: int) -> int:
    return (sequence + records) % SEQUENCES


def distance(earlier: int, later: int) -> int:
    """Records from one sequence to another, in (-2^30, 2^30]: the shorter way round the circle."""
    steps = (later - earlier) % SEQUENCES
    return steps if steps <= SEQUENCES // 2 else steps - SEQUENCES


def already_there(position: Position, last_sequence: int | None) -> int:
    """Rule D: how many records from the position on the target already holds. Negative: it holds fewer than the
    position says, so it lost what it had acknowledged (truncated, re-created, unclean election)."""
    if last_sequence is None or last_sequence < 0:
        return 0
    return distance(position.sequence, advance(last_sequence, 1))
