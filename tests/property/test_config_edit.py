"""Any properties file with entries more or less: the others say what they said, and their lines are what they were."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from heliograph.config import edit
from heliograph.config.properties import parse, split_lines, stretches
from heliograph.errors import ConfigError

ALIASES = st.lists(st.sampled_from(["a", "aa", "a.a", "b", "hub", "a-a"]), unique=True, max_size=4)
KEYS = st.sampled_from(["a.x", "a->hub.y", "a\\ b", "b.x", "c", "clusters2"])
TEXT = st.text(alphabet="ab,=:# \\é\t", max_size=12)
LINES = st.one_of(
    st.builds("# {}".format, TEXT),
    st.just(""),
    st.builds("{} = {}".format, KEYS, TEXT),
    st.builds("{}: {}\\\n   {}".format, KEYS, TEXT, TEXT),
)


@st.composite
def files(draw: st.DrawFn) -> tuple[bytes, list[str]]:
    aliases = draw(ALIASES)
    glue = draw(st.sampled_from([",", ", ", " , ", ",\\\n  "]))
    lines = draw(st.lists(LINES, max_size=8))
    lines.insert(draw(st.integers(0, len(lines))), "clusters = " + glue.join(aliases))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    text = "\n".join(lines) + draw(st.sampled_from(["", "\n"]))
    return text.replace("\n", end).encode(draw(st.sampled_from(["utf-8", "latin-1"]))), aliases


def values(data: bytes) -> dict[str, str]:
    return {key: entry.value for key, entry in parse(data).entries.items()}


@given(files(), st.dictionaries(st.sampled_from(["new.x", "new->hub.y"]), TEXT, max_size=2))
def test_what_is_added_is_at_the_end_and_what_was_there_is_as_it_was(
    file: tuple[bytes, list[str]], entries: dict[str, str]
) -> None:
    data, _ = file
    try:
        after = edit.add(data, entries)
    except ConfigError:  # the last line goes on, or the encoding has no such letter: refused, not spoilt
        return
    assert after.startswith(data)
    assert values(after) == values(data) | entries


@given(files())
def test_what_is_removed_is_gone_with_its_lines_and_no_others(file: tuple[bytes, list[str]]) -> None:
    data, aliases = file
    assume("clusters" in values(data))  # else the line before goes on over it
    try:
        after = edit.remove(data, lambda key: key.startswith("a."), alias="a" if "a" in aliases else "")
    except ConfigError:
        return
    text = data.decode("utf-8") if data == data.decode("utf-8", "ignore").encode() else data.decode("latin-1")
    gone = {n for one in stretches(text) if one.key.startswith("a.") for n in range(one.first, one.end)}
    named = {n for one in stretches(text) if one.key == "clusters" for n in range(one.first, one.end)}
    kept = [line for n, line in enumerate(split_lines(text), 1) if n not in gone | named]
    left = "".join(split_lines(after.decode("utf-8") if text.encode() == data else after.decode("latin-1")))
    for line in kept:
        assert line in left
    assert {k: v for k, v in values(after).items() if k != "clusters"} == {
        k: v for k, v in values(data).items() if k != "clusters" and not k.startswith("a.")
    }
    there = [one.strip() for one in values(after)["clusters"].split(",") if one.strip()]
    assert there == [one for one in aliases if one != "a"]


@given(files())
def test_a_usual_file_is_not_refused(file: tuple[bytes, list[str]]) -> None:
    _, aliases = file
    text = "# ours\n" + "clusters = " + ", ".join([*aliases, "z", "y"]) + "\nz.x = 1\nb.x = 2\n"
    more = edit.add(text.encode(), {"new.x": "v"}, alias="new")
    assert edit.remove(more, lambda key: key.startswith("new."), alias="new").decode().rstrip("\n") == text.rstrip("\n")
    assert b"z" not in edit.remove(text.encode(), lambda key: key.startswith("z."), alias="z")


def test_a_preview_shows_no_value_of_an_unknown_key() -> None:
    before = b"clusters = us, eu\nus.bootstrap.servers = a:1\n"
    shown = edit.preview(before, before + b"us.sasl.pasword = hunter2\nus.sasl.password = hunter3\nus->eu.topics = a\n")
    assert shown == ["+us.sasl.pasword = ***", "+us.sasl.password = ***", "+us->eu.topics = a"]
