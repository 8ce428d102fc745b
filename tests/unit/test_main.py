"""Both runs of `make test` together are all tests, and no test is in both."""

from __future__ import annotations

from tests.__main__ import BESIDE, HERE, first_run


def test_every_file_is_in_one_of_the_two_runs() -> None:
    files = {f"{path.parent.name}/{path.name}" for path in HERE.glob("*/test_*.py")}
    beside = {name for name in files if name in BESIDE or name.split("/")[0] in BESIDE}
    first = first_run()
    assert len(first) == len(set(first))
    assert beside.isdisjoint(first)
    assert beside | set(first) == files


def test_what_is_named_is_there() -> None:
    assert [name for name in (*BESIDE, *first_run()) if not (HERE / name).exists()] == []
