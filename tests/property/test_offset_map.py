"""The offset map over arbitrary holes, crashes and foreign writes: every offset to the very record, never past one."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.mirror import offsetmap
from heliograph.mirror.offsetmap import Generation, Span, Subject, Writer
from heliograph.mirror.runs import Runs
from heliograph.types import TopicPartition

# steps of a copy: records in a row, a hole at the source, somebody else's records on the target, a crash
STEPS = st.lists(
    st.tuples(st.sampled_from(["copy", "hole", "foreign", "crash", "flush"]), st.integers(1, 2000)), max_size=60
)


class Copier:
    """A lane's life without sockets: what it noted, what became durable, where the position stands."""

    def __init__(self) -> None:
        self.truth: list[tuple[int, int]] = []  # (source, target) of each record
        self.source = self.target = 0
        self.log: list[list[Span]] = []  # the map's topic
        self.position = (0, -1, -1)  # durable: records, and the run that it names with its end
        self.writer = Writer()

    def copy(self, length: int) -> None:
        for piece in (length // 2, length - length // 2):
            if piece:
                self.writer.note(self.source, self.target, piece)
                self.truth += [(self.source + i, self.target + i) for i in range(piece)]
                self.source, self.target = self.source + piece, self.target + piece

    def flush(self, lose_position: bool = False) -> None:
        segments = self.writer.take()
        self.log += [offsetmap.decode(offsetmap.encode(segment)) for segment in segments]
        self.writer.written(True, segments)
        if not lose_position:
            self.position = (len(self.truth), *self.writer.named)

    def crash(self, lose_position: bool) -> None:
        """Killed after the map's records and maybe before the position; the next attempt finds the rest by rule D."""
        self.flush(lose_position)
        self.writer = Writer()
        self.writer.begin(self.read().last)
        for source, target in self.truth[self.position[0] :]:
            self.writer.note(source, target, 1)

    def read(self) -> Runs:
        runs = Runs()
        for segment in self.log:
            runs.add(segment)
        runs.extend(*self.position[1:])
        return runs


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_every_offset_leads_to_its_record(steps: list[tuple[str, int]]) -> None:
    copier = Copier()
    for step, size in steps:
        match step:
            case "copy":
                copier.copy(size)
            case "hole":
                copier.source += size
            case "foreign":
                copier.target += size
            case "crash":
                copier.crash(lose_position=bool(size % 2))
            case "flush":
                copier.flush()
    copier.flush()
    if not copier.truth:
        return
    runs = copier.read()
    sources = [source for source, _ in copier.truth]
    end = copier.truth[-1][1] + 1
    for offset in range(0, copier.source + 3, max(1, copier.source // 500)):
        got = runs.floor(offset)
        at = bisect_left(sources, offset)
        if got is None:
            assert offset < sources[0]
            continue
        if at < len(sources) and sources[at] == offset:
            assert got == copier.truth[at][1]  # exactly that record
        # In a hole: behind the last record before it, and not behind the first one after it.
        if at:
            assert got > copier.truth[at - 1][1]
        if at < len(sources):
            assert got <= copier.truth[at][1]
        else:
            assert got == end


@given(st.binary(max_size=60))
def test_nonsense_is_no_run(value: bytes) -> None:
    for span in offsetmap.decode(value):
        assert span.source >= 0
        assert span.target >= 0
        assert span.length > 0
        assert max(span.source, span.target) + span.length <= offsetmap.OFFSETS
    assert offsetmap.read(value, value, "a") is None


def test_a_key_names_cluster_partition_and_topic_id() -> None:
    subject = Subject(TopicPartition("t", 3), None)
    key = offsetmap.key_of("a", subject, 7)
    spans = [Span(7, 5, 3), Span(12, 8, 1)]
    assert offsetmap.read(key, offsetmap.encode(spans), "a") == (subject, spans, 7, None)
    assert offsetmap.read(key, None, "a") == (subject, [], 7, None)
    assert offsetmap.read(key, offsetmap.encode(spans), "b") is None
    assert offsetmap.read(key, offsetmap.encode(spans[1:]), "a") is None  # not where its key says
    assert offsetmap.read(key, offsetmap.encode([Span(7, 5, 2**63)]), "a") is None


def test_a_key_names_the_generation_of_the_copy_and_0_1s_names_none() -> None:
    old, new = Subject(TopicPartition("t", 3), None), Subject(TopicPartition("t", 3), None, producer=4711)
    assert b"producer" not in offsetmap.key_of("a", old, 7)
    assert offsetmap.key_of("a", new, 7) != offsetmap.key_of("a", old, 7)
    generation = Generation(5, 8, "id", [4710, -1], fresh=True, exact=6)
    value = offsetmap.encode_generation(generation)
    header = offsetmap.key_of("a", new, offsetmap.HEADER)
    assert offsetmap.read(header, value, "a") == (new, [], offsetmap.HEADER, generation)
    assert offsetmap.read(header, b"\xc1", "a") is None
    assert offsetmap.read(offsetmap.key_of("a", new, 7), value, "a") is None


def test_long_rows_of_runs_fall_into_segments_that_read_back_as_one() -> None:
    writer = Writer()
    for i in range(2 * offsetmap.SEGMENT_RUNS + 10):
        writer.note(3 * i, 2 * i, 2)
    segments = writer.take()
    assert len(segments) == 3
    assert all(later[0] == earlier[-1] for earlier, later in pairwise(segments))
    runs = Runs()
    for segment in segments:
        runs.add(offsetmap.decode(offsetmap.encode(segment)))
    assert len(runs) == 2 * offsetmap.SEGMENT_RUNS + 10


def test_a_partition_copied_anew_replaces_what_was_known() -> None:
    runs = Runs()
    runs.add([Span(0, 0, 10), Span(12, 10, 5)])
    runs.add([Span(0, 50, 4)])
    assert runs.floor(2) == 52
    assert runs.last == Span(0, 50, 4)


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=200),
    st.integers(4, 60),
    st.integers(0, 3000),
)
def test_dropping_runs_makes_answers_lower_and_never_higher(
    steps: list[tuple[int, int, int]], limit: int, log_start: int
) -> None:
    """Runs with holes before them at the source and on the target."""
    whole, thinned = Runs(), Runs()
    source = target = 0
    for length, hole, foreign in steps:
        source, target = source + hole, target + foreign
        span = Span(source, target, length)
        source, target = source + length, target + length
        whole.add([span])
        thinned.add([span])
        thinned.thin(limit)
    assert len(thinned) <= limit
    thinned.trim(log_start)
    assert (thinned.first, thinned.last) == (whole.first, whole.last)
    for offset in range(0, source + 2, max(source // 300, 1)):
        exact, low, high = whole.floor(offset), thinned.floor(offset), thinned.ceiling(offset)
        assert (low is None) == (exact is None)
        if exact is None or low is None:
            continue
        assert low <= exact
        assert offset < thinned.exact_from or low == exact
        assert high is None or high >= exact


def test_how_far_an_answer_is_off_is_a_small_share_of_how_far_behind_the_group_is() -> None:
    """A hundred thousand transactions in four thousand runs."""
    runs, transactions = Runs(), 100_000
    for i in range(transactions):
        runs.add([Span(11 * i, 10 * i, 10)])
        runs.thin(4000)
    for age in (1000, 2000, 5000, 20_000, 60_000, 99_000):
        place = runs.floor(11 * (transactions - age))
        assert place is not None
        off = 10 * (transactions - age) - place
        assert off == 0 if age <= 2000 else 0 <= off <= 10 * age // 100
