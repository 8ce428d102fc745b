"""A file with a spoke more or less: what comes and goes, and every other byte as it was."""

from __future__ import annotations

import pytest

from heliograph.config import edit
from heliograph.config.load import parse
from heliograph.config.properties import escaped, split_lines, stretches
from heliograph.config.properties import parse as read
from heliograph.config.spokes import Wish, hub_of, spoke_of, spokes_of, with_spoke, without_spoke
from heliograph.errors import ConfigError

FILE = """\
# Ours. Ask Kim before you touch it.
clusters = spoke1, hub, spoke2
hub.bootstrap.servers = hub:9092

! the first
spoke1.bootstrap.servers: spoke1:9092
spoke1.sasl.jaas.config = secret \\
    words
spoke1->hub.enabled = true
spoke1->hub.mux.topics = topic, \\
    topic2
spoke1->hub.demux = original
# the second
spoke2.bootstrap.servers = spoke2:9092
spoke2->hub.enabled = true
spoke2->hub.mux.topics = topic
spoke2->hub.mux.via = intermediate
spoke2->hub.demux = original
spoke2->hub.demux.weight = 3
spoke2->hub.demux.max.bytes.per.second = 5000000
replication.factor = 1
"""
DATA = FILE.encode()
WISH = Wish("spoke3", "hub", r"topic, pay\..*", "spoke3:9092", {}, {"demux": "original", "demux.weight": "2"})
ADDED = r"""
spoke3.bootstrap.servers = spoke3:9092
spoke3->hub.enabled = true
spoke3->hub.mux.topics = topic, pay\\..*
spoke3->hub.demux = original
spoke3->hub.demux.weight = 2
"""


def test_which_spokes_there_are() -> None:
    first, second = spokes_of(parse(DATA))
    assert (first.name, first.intermediate, first.weight, first.cap) == ("spoke1->hub", False, 1, None)
    assert (second.name, second.intermediate, second.weight) == ("spoke2->hub", True, 3)
    assert second.cap is not None
    assert (second.cap.bytes_per_s, second.cap.topics) == (5_000_000, r"spoke2\.mux-replication_spoke2")
    assert second.own is not None
    assert second.own.name == "spoke2->hub"
    assert first.demux is second.demux
    assert [one.rule and one.rule.spoke.alias for one in (first, second)] == ["spoke1", "spoke2"]
    assert hub_of(parse(DATA)) == "hub"


def test_a_spoke_is_added_at_the_end_and_to_the_clusters() -> None:
    after = with_spoke(DATA, "f", WISH)
    assert after.decode() == FILE.replace("hub, spoke2\n", "hub, spoke2, spoke3\n") + ADDED
    found = spoke_of(parse(after), "spoke3")
    assert found.mux.mux is not None
    assert found.mux.mux.topics == ("topic", r"pay\..*")
    assert found.weight == 2


def test_what_was_added_is_removed_and_nothing_else() -> None:
    after = with_spoke(DATA, "f", WISH)
    back = without_spoke(after, "f", spoke_of(parse(after), "spoke3"))
    assert back.decode().rstrip("\n") == FILE.rstrip("\n")


def test_a_spoke_is_removed_with_its_lines_and_comments_stay() -> None:
    after = without_spoke(DATA, "f", spoke_of(parse(DATA), "spoke1")).decode()
    assert after.startswith("# Ours. Ask Kim before you touch it.\nclusters = hub, spoke2\nhub.boot")
    assert "! the first\n# the second\n" in after
    assert "spoke1" not in after
    assert "words" not in after
    kept = [line for line in FILE.splitlines() if "spoke2" in line and "clusters" not in line]
    assert [line for line in after.splitlines() if "spoke2" in line and "clusters" not in line] == kept
    assert [one.name for one in spokes_of(parse(after.encode()))] == ["spoke2->hub"]


def test_a_cluster_that_others_need_stays() -> None:
    data = DATA + b"spoke1->spoke2.enabled = true\nhub->spoke1.enabled = false\n"
    after = without_spoke(data, "f", spoke_of(parse(data), "spoke1"))
    config = parse(after)
    assert "spoke1" in config.clusters
    assert "spoke1->spoke2" in {flow.name for flow in config.flows}
    assert b"spoke1->hub" not in after
    assert b"hub->spoke1" in after


def test_pairs_that_copy_nothing_keep_no_cluster() -> None:
    data = DATA + b"hub->spoke1.enabled = false\n"
    assert b"spoke1" not in without_spoke(data, "f", spoke_of(parse(data), "spoke1"))


@pytest.mark.parametrize("clusters", ["spoke1,hub,spoke2", "hub , spoke2 , spoke1", "hub,\\\n  spoke1,\\\n  spoke2"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_however_the_clusters_are_written(clusters: str, end: str) -> None:
    data = FILE.replace("spoke1, hub, spoke2", clusters).replace("\n", end).encode()
    assert set(parse(with_spoke(data, "f", WISH)).clusters) == {"hub", "spoke1", "spoke2", "spoke3"}
    for alias, other in (("spoke1", "spoke2"), ("spoke2", "spoke1")):
        after = without_spoke(data, "f", spoke_of(parse(data), alias))
        assert set(parse(after).clusters) == {"hub", other}


def test_bytes_that_are_no_utf8_stay_what_they_are() -> None:
    data = b"# Gr\xfc\xdfe\n" + DATA
    after = with_spoke(data, "f", WISH)
    assert after.startswith(b"# Gr\xfc\xdfe\n")
    with pytest.raises(ConfigError, match="encoding cannot"):
        with_spoke(data, "f", Wish("s", "hub", "t", "s:1", {}, {"mux.identifier": "\u20ac"}))
    assert with_spoke(b"\xef\xbb\xbf" + DATA, "f", WISH).startswith(b"\xef\xbb\xbf# Ours")


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (Wish("spoke1", "hub", "t"), "spoke1 is a spoke of hub already"),
        (Wish("spoke3", "hub", "t"), "say where it is: --bootstrap-servers"),
        (Wish("spoke3", "mars", "t", "s:1"), "no cluster 'mars' is in the file: there is spoke1, hub, spoke2"),
        (Wish("spoke3", "hub", "t", "no port"), "spoke3.bootstrap.servers"),
        (Wish("spoke3", "hub", "t", "s:1", {}, {"demux.wait": "1"}), "demux.wait"),
        (Wish("spoke3", "hub", "t", "s:1", {}, {"demux": "original", "demux.weight": "0"}), "demux.weight = 0"),
        (Wish("hub", "spoke1", "t", "s:1"), "hub is in the file already, at hub:9092"),
    ],
)
def test_what_cannot_be_added_is_told(wish: Wish, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_spoke(DATA, "f", wish)
    assert said in str(caught.value)


def test_lines_that_stand_there_already_are_not_written_twice() -> None:
    data = DATA + b"spoke3->hub.mux.topics = old\n"
    with pytest.raises(ConfigError):
        with_spoke(data, "f", WISH)


def test_no_such_spoke_is_told_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean spoke1"):
        spoke_of(parse(DATA), "spok1")
    with pytest.raises(ConfigError, match="the file has no hub yet"):
        hub_of(parse(b"clusters=a,b\na.bootstrap.servers=a:1\nb.bootstrap.servers=b:1\na->b.enabled=true\n"))


def test_the_last_spoke_of_a_file_is_not_removed() -> None:
    data = without_spoke(DATA, "f", spoke_of(parse(DATA), "spoke2"))
    with pytest.raises(ConfigError):  # nothing would be left to run: stop the process instead
        without_spoke(data + b"emit.heartbeats.enabled = false\n", "f", spoke_of(parse(data), "spoke1"))


def test_a_preview_shows_lines_and_no_secret() -> None:
    after = without_spoke(DATA, "f", spoke_of(parse(DATA), "spoke1"))
    shown = edit.preview(DATA, after)
    assert "-spoke1.sasl.jaas.config = ***" in shown
    assert "-clusters = spoke1, hub, spoke2" in shown
    assert "+clusters = hub, spoke2" in shown
    assert not any("words" in line or "secret" in line for line in shown)
    assert not any("spoke2.boot" in line for line in shown)


def test_stretches_and_escapes_follow_the_reader() -> None:
    text = "a = 1\n# no\nb = 2 \\\n  3\n\nc\\:d = 4"
    assert [(one.key, one.first, one.end) for one in stretches(text)] == [("a", 1, 2), ("b", 3, 5), ("c:d", 6, 7)]
    assert "".join(split_lines(text)) == text
    for value in (r"a\.b", " lead", "tab\there", "new\nline", "plain", ""):
        assert read(f"k = {escaped(value)}".encode()).entries["k"].value == value
