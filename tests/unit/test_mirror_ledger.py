from heliograph.mirror.ledger import advance, already_there, distance
from heliograph.mirror.positions import SEQUENCES, Position


def test_sequences_wrap_after_the_largest_int():
    assert advance(SEQUENCES - 1, 1) == 0
    assert advance(SEQUENCES - 1, 5) == 4
    assert distance(SEQUENCES - 2, 3) == 5
    assert distance(3, SEQUENCES - 2) == -5


def test_what_the_target_holds_is_counted_from_the_position():
    position = Position(100, 1, 0, 50)
    assert already_there(position, None) == 0
    assert already_there(position, 49) == 0
    assert already_there(position, 59) == 10
    assert already_there(position, 39) == -10
    assert already_there(Position(0, 1, 0, SEQUENCES - 1), 3) == 5
