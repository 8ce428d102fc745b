"""`heliograph connectors` by its words and exit codes, against a worker of a few lines on loopback."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from heliograph.cli.main import run
from heliograph.embedded.certificates import Authority
from heliograph.workers import access, client, waiting
from heliograph.workers.standing import Standing
from tests.connect_fake import Connector, FakeConnect

PACKAGE = "org.apache.kafka.connect.mirror"
NAMES = ("mm2-msc-west", "mm2-cpc-west", "mm2-hbc-west")
CLASSES = dict(
    zip(NAMES, ("MirrorSourceConnector", "MirrorCheckpointConnector", "MirrorHeartbeatConnector"), strict=True)
)
TRACE = (
    "org.apache.kafka.connect.errors.ConnectException: it cannot start\n\tat a.b.C(C.java:1)\n"
    "Caused by: org.apache.kafka.common.KafkaException: no way\n\tat d\n"
    "Caused by: org.apache.kafka.common.config.ConfigException: nobody at nowhere:9092\n\tat e\n\t... 3 more\n"
)

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STEADY_S", "NO_TASKS_S", "LOST_S"):
        monkeypatch.setattr(waiting, name, 0.0)
    for where, name in ((waiting, "POLL_S"), (client, "PAUSE_S")):
        monkeypatch.setattr(where, name, 0.005)
    for variable in ("URL", "USER", "PASSWORD", "TOKEN", "CREDENTIALS", "CACERT"):
        monkeypatch.delenv(f"HELIOGRAPH_CONNECT_{variable}", raising=False)


@pytest.fixture
def fake() -> Iterator[FakeConnect]:
    with FakeConnect() as fake:
        yield fake


@pytest.fixture
def call(fake: FakeConnect, capsys: pytest.CaptureFixture[str]) -> Call:
    """`heliograph connectors …` with that worker: code, stdout, stderr."""

    def called(*arguments: str, url: str = "") -> tuple[int, str, str]:
        code = run(["connectors", *arguments, *(["--url", url or fake.url] if url != "-" else [])])
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return code, said.out, said.err

    return called


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files as users have them: booleans and numbers among the values."""
    for name, connector in CLASSES.items():
        config: dict[str, Any] = {"name": name, "connector.class": f"{PACKAGE}.{connector}", "tasks.max": 2}
        config |= {"source.cluster.alias": "west", "sync.topic.acls.enabled": False}
        (tmp_path / f"{name}.json").write_text(json.dumps(config))
    return tmp_path


def change(folder: Path, name: str, **values: Any) -> None:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key.replace("_", "."): v for key, v in values.items()}))


# ---------------------------------------------------------------- files


def test_every_missing_file_is_named_at_once(call: Call, fake: FakeConnect, tmp_path: Path) -> None:
    code, out, err = call("deploy", "west", "--dir", str(tmp_path))
    assert (code, out) == (2, "")
    for name in NAMES:
        assert f"{tmp_path / name}.json: missing" in err
    assert fake.calls == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"name": "mm2-cpc-west",\n  "a" 1}', "no JSON: Expecting ':' delimiter, line 2, column 7"),
        ("[]", "it must be an object"),
        ("", "no JSON"),
        ('{"a": "1", "a": "2", "b": "3"}', "said twice: a"),
        ('{"name": "mm2-cpc-east"}', "name = mm2-cpc-east: must be mm2-cpc-west"),
        ("{}", "connector.class is missing: org.apache.kafka.connect.mirror.MirrorCheckpointConnector"),
        ('{"connector.class": "MirrorSourceConnector"}', "in this file it must be"),
        ('{"connector.class": "MirrorCheckpoint", "groups": null}', "groups = null: a value is a text"),
        ('{"connector.class": "MirrorCheckpoint", "groups": ["a"]}', 'groups = ["a"]: a value is a text'),
        ('{"name": "mm2-cpc-west", "config": {"connector.class": "x"}}', "has the form of POST /connectors"),
        ("[" * 100_000, "nested too deep"),
    ],
)
@pytest.mark.parametrize("verb", ["deploy", "redeploy", "validate"])
def test_a_broken_file_is_told_before_anything_is_changed(
    verb: str, text: str, words: str, call: Call, fake: FakeConnect, folder: Path
) -> None:
    fake.connectors["mm2-msc-west"] = Connector({})
    (folder / "mm2-cpc-west.json").write_text(text)
    (folder / "mm2-hbc-west.json").write_bytes(b"\xff\xfe")
    code, out, err = call(verb, "west", "--dir", str(folder))
    assert (code, out) == (2, "")
    assert words in err
    assert "mm2-hbc-west.json: is not UTF-8" in err
    assert fake.changes() == []


def test_files_that_do_not_belong_together_are_warned_about(call: Call, folder: Path) -> None:
    change(folder, "mm2-cpc-west", source_cluster_alias="east")
    code, _, err = call("validate", "west", "--dir", str(folder))
    assert code == 0
    assert "warning: source.cluster.alias is not the same: west in mm2-msc-west.json, east in mm2-cpc-west.json" in err


@pytest.mark.parametrize("cluster", ["../west", "a/b", "", ".", "we st"])
def test_a_cluster_has_a_name(cluster: str, call: Call, folder: Path) -> None:
    for verb in ("deploy", "status", "undeploy"):
        code, _, err = call(verb, cluster, *(["--dir", str(folder)] if verb == "deploy" else []))
        assert code == 2
        assert "is no name of a cluster" in err


def test_offline_asks_nobody(call: Call, folder: Path) -> None:
    code, out, _ = call("validate", "west", "--dir", str(folder), "--offline", url="http://127.0.0.1:1")
    assert code == 0
    assert out.count("well-formed") == 3


# ---------------------------------------------------------------- deploy, undeploy, redeploy


def test_deploy_creates_all_three_and_waits_until_they_run(call: Call, fake: FakeConnect, folder: Path) -> None:
    fake.new.polls_until_running = 3
    code, out, err = call("deploy", "west", "--dir", str(folder))
    assert code == 0
    for name, connector in CLASSES.items():
        assert f"{name}: created" in err
        assert f"{name}: UNASSIGNED" in err
        assert fake.connectors[name].config == {
            "name": name,
            "connector.class": f"{PACKAGE}.{connector}",
            "tasks.max": "2",
            "source.cluster.alias": "west",
            "sync.topic.acls.enabled": "false",
        }
    assert [line.split()[:4] for line in out.splitlines()[1:]] == [
        [name, "created", "RUNNING", "1/1"] for name in NAMES
    ]


def test_what_runs_as_its_file_says_is_left_alone(call: Call, fake: FakeConnect, folder: Path) -> None:
    call("deploy", "west", "--dir", str(folder))
    fake.calls.clear()
    change(folder, "mm2-hbc-west", emit_heartbeats_interval_seconds=5)
    code, out, _ = call("deploy", "west", "--dir", str(folder))
    assert code == 0
    assert [line.split()[1] for line in out.splitlines()[1:]] == ["unchanged", "unchanged", "updated"]
    assert fake.changes() == ["PUT /connectors/mm2-hbc-west/config"]


def test_what_failed_is_restarted(call: Call, fake: FakeConnect, folder: Path) -> None:
    call("deploy", "west", "--dir", str(folder))
    fake.connectors["mm2-msc-west"].tasks = ["FAILED", "RUNNING"]
    code, out, _ = call("deploy", "west", "--dir", str(folder), "-o", "json")
    assert code == 0
    assert json.loads(out)["mm2-msc-west"]["did"] == "restarted"
    assert "POST /connectors/mm2-msc-west/restart?includeTasks=true&onlyFailed=true" in fake.calls


def test_one_that_fails_is_told_with_its_cause_and_the_others_run(call: Call, fake: FakeConnect, folder: Path) -> None:
    fake.new.state, fake.new.trace = "FAILED", TRACE
    fake.connectors["mm2-msc-west"] = Connector({})  # its update makes it fail
    code, out, err = call("deploy", "west", "--dir", str(folder), "-o", "yaml")
    assert code == 1
    assert 'problem: "ConnectException: it cannot start; caused by ConfigException: nobody at nowhere:9092"' in out
    assert "mm2-msc-west: updated" in err


def test_a_task_that_fails_is_named(call: Call, fake: FakeConnect, folder: Path) -> None:
    fake.new.tasks, fake.new.trace = ["RUNNING", "FAILED"], TRACE
    code, out, _ = call("deploy", "west", "--dir", str(folder))
    assert code == 1
    assert "task 1: ConnectException: it cannot start" in out


def test_what_somebody_paused_is_not_waited_for(call: Call, fake: FakeConnect, folder: Path) -> None:
    call("deploy", "west", "--dir", str(folder))
    fake.connectors["mm2-cpc-west"].state = "PAUSED"
    code, out, _ = call("deploy", "west", "--dir", str(folder))
    assert code == 1
    assert "heliograph connectors resume mm2-cpc-west" in out


def test_the_state_from_before_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Just after an order a worker still tells how it was."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr(waiting, "STEADY_S", 1.0)
    monkeypatch.setattr(waiting, "NO_TASKS_S", 4.0)
    monkeypatch.setattr(waiting, "LOST_S", 2.0)
    settled = waiting.lasting(lambda one: one.running, lambda one: one.failed)
    failed, runs, alone = Standing("a", "FAILED"), Standing("a", "RUNNING", "", ("RUNNING",)), Standing("a", "RUNNING")

    def believed(one: Standing, at_s: float) -> bool:
        now[0] = at_s
        return settled(one)

    assert not believed(failed, 0.0)
    assert not believed(failed, 1.9)
    assert not believed(alone, 2.0)  # it was restarted after all, and has no tasks yet
    assert not believed(alone, 5.0)
    assert believed(runs, 5.5)  # for it runs since 2.0
    assert not believed(failed, 6.0)
    assert not believed(Standing("a", "UNASSIGNED"), 7.0)
    assert not believed(failed, 8.5)
    assert believed(failed, 10.5)
    assert believed(Standing("b", "RUNNING", "", ("RUNNING",)), 10.5) is False


def test_waiting_has_an_end(call: Call, fake: FakeConnect, folder: Path) -> None:
    fake.new.polls_until_running = 1_000_000
    code, out, _ = call("deploy", "west", "--dir", str(folder), "--timeout", "0.2")
    assert code == 1
    assert "UNASSIGNED after 0 s" in out
    assert call("deploy", "west", "--dir", str(folder), "--no-wait")[0] == 0


def test_what_the_worker_finds_wrong_stops_all(call: Call, fake: FakeConnect, folder: Path) -> None:
    fake.errors = {name: [f"Invalid value in {name}"] for name in NAMES[:2]}
    for verb in ("deploy", "validate", "redeploy"):
        code, _, err = call(verb, "west", "--dir", str(folder))
        assert code == 2
        for name in NAMES[:2]:
            assert f"{folder / name}.json: Invalid value in {name}" in err
    assert fake.changes() == []


def test_one_that_is_refused_does_not_stop_the_others(call: Call, fake: FakeConnect, folder: Path) -> None:
    fake.answers["PUT /connectors/mm2-cpc-west/config"] = [(500, {"error_code": 500, "message": "no such luck"})]
    code, out, _ = call("deploy", "west", "--dir", str(folder))
    assert code == 1
    assert [line.split()[1] for line in out.splitlines()[1:]] == ["created", "refused", "created"]
    assert "no such luck" in out


def test_undeploy_stops_before_it_deletes(call: Call, fake: FakeConnect) -> None:
    fake.connectors = {name: Connector({}) for name in (*NAMES[:2], "mm2-msc-east")}
    code, out, _ = call("undeploy", "west")
    assert code == 0
    assert [line.split()[1] for line in out.splitlines()[1:]] == ["deleted", "deleted", "absent"]
    assert set(fake.connectors) == {"mm2-msc-east"}
    assert fake.changes() == [
        *(f"PUT /connectors/{name}/stop" for name in NAMES[:2]),
        *(f"DELETE /connectors/{name}" for name in NAMES[:2]),
    ]


def test_redeploy_is_both(call: Call, fake: FakeConnect, folder: Path) -> None:
    call("deploy", "west", "--dir", str(folder))
    fake.calls.clear()
    code, out, err = call("redeploy", "west", "--dir", str(folder))
    assert code == 0
    assert [line.split()[1] for line in out.splitlines()[1:]] == ["created"] * 3
    assert err.count("deleted") == 3
    assert [change.split()[0] for change in fake.changes()] == ["PUT"] * 3 + ["DELETE"] * 3 + ["PUT"] * 3


def test_one_that_would_not_go_keeps_nobody_from_coming_back(call: Call, fake: FakeConnect, folder: Path) -> None:
    call("deploy", "west", "--dir", str(folder))
    fake.answers["DELETE /connectors/mm2-cpc-west"] = [(500, {"error_code": 500, "message": "not now"})]
    code, out, err = call("redeploy", "west", "--dir", str(folder), "-o", "json")
    assert code == 1
    assert "mm2-cpc-west: refused: not now" in err
    found = json.loads(out)
    assert [found[name]["did"] for name in NAMES] == ["created", "unchanged", "created"]
    assert "it is STOPPED" in found["mm2-cpc-west"]["problem"]


def test_status_is_a_code_as_well(call: Call, fake: FakeConnect) -> None:
    fake.connectors = {name: Connector({}) for name in NAMES}
    assert call("status", "west")[0] == 0
    fake.connectors["mm2-cpc-west"].tasks = []  # no groups yet: it runs
    code, out, _ = call("status", "west", "-o", "wide")
    assert code == 0
    assert out.splitlines()[2].split() == ["mm2-cpc-west", "RUNNING", "–", "a:8083"]
    del fake.connectors["mm2-hbc-west"]
    fake.connectors["mm2-msc-west"] = Connector({}, "FAILED", [], TRACE)
    code, out, _ = call("status", "west", "-o", "json")
    assert code == 1
    found = json.loads(out)
    assert [found[name]["state"] for name in NAMES] == ["FAILED", "RUNNING", "ABSENT"]
    assert "nobody at nowhere:9092" in found["mm2-msc-west"]["reason"]


# ---------------------------------------------------------------- single connectors


def test_get(call: Call, fake: FakeConnect) -> None:
    assert call("get") == (0, "no connectors\n", "")
    config = {"connector.class": f"{PACKAGE}.MirrorSourceConnector", "source.cluster.alias": "west"}
    fake.connectors = {"b": Connector(config), "a": Connector({}, "PAUSED", ["PAUSED"])}
    out = call("get")[1]
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["a", "source", "PAUSED", "0/1"],
        ["b", "source", "RUNNING", "1/1", "MirrorSourceConnector"],
    ]
    assert config["connector.class"] in call("get", "b", "-o", "wide")[1]
    assert json.loads(call("get", "b", "-o", "json")[1])["b"]["info"]["config"] == config
    code, _, err = call("get", "c")
    assert code == 2
    assert "has no connector c" in err
    assert "there is a, b" in err


def test_secrets_that_a_worker_shows_are_masked(call: Call, fake: FakeConnect) -> None:
    jaas = 'org.apache.kafka…PlainLoginModule required username="u" password="s3cret";'
    fake.connectors["a"] = Connector(
        {"source.cluster.sasl.jaas.config": jaas, "ssl.key.password": "s3cret", "topics": "t"}
    )
    for verb in (("get",), ("describe", "a")):
        for output in ("text", "wide", "json", "yaml"):
            code, out, err = call(*verb, "-o", output)
            assert code == 0
            assert "s3cret" not in out + err
    assert json.loads(call("get", "-o", "json")[1])["a"]["info"]["config"]["ssl.key.password"] == "***"


def test_the_address_may_come_from_the_environment(
    call: Call, fake: FakeConnect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELIOGRAPH_CONNECT_URL", fake.url)
    assert call("get", url="-")[0] == 0
    assert fake.calls == ["GET /connectors?expand=status&expand=info"]


def test_describe(call: Call, fake: FakeConnect) -> None:
    fake.connectors["a"] = Connector({"topics": "orders"}, "FAILED", [], TRACE)
    fake.offsets["a"] = [{"partition": {"topic": "orders", "partition": 0}, "offset": {"offset": 7}}]
    code, out, _ = call("describe", "a")
    assert code == 0
    assert "failed   ConnectException: it cannot start; caused by" in out
    assert "topics = orders" in out
    assert "topics   a, b" in out
    assert "partition=0  topic=orders  offset=7" in out
    assert "C.java" not in out
    assert "at a.b.C(C.java:1)" in call("describe", "a", "-o", "wide")[1]
    yaml = call("describe", "a", "-o", "yaml")[1]
    assert "\n    trace: |\n      org.apache.kafka.connect.errors.ConnectException: it cannot start\n" in yaml
    fake.answers["GET /connectors/a/topics"] = [(403, {"error_code": 403, "message": "disabled"})]
    fake.answers["GET /connectors/a/offsets"] = [(500, {"error_code": 500, "message": "no"})]
    code, out, _ = call("describe", "a")
    assert code == 0
    assert "topics   not told" in out
    assert "offsets  not told" in out
    assert call("describe", "b")[0] == 2


@pytest.mark.parametrize(
    ("verb", "asked", "state"),
    [
        ("pause", "PUT /connectors/a/pause", "PAUSED"),
        ("stop", "PUT /connectors/a/stop", "STOPPED"),
        ("resume", "PUT /connectors/a/resume", "RUNNING"),
        ("restart", "POST /connectors/a/restart?includeTasks=false&onlyFailed=false", "RUNNING"),
    ],
)
def test_steering_waits_until_it_is_so(verb: str, asked: str, state: str, call: Call, fake: FakeConnect) -> None:
    fake.connectors = {"a": Connector({}), "b": Connector({})}
    code, out, _ = call(verb, "a", "b")
    assert code == 0
    assert fake.changes()[0] == asked
    assert out.startswith(f"a: {state}")
    assert "\nb: " in out
    code, _, err = call(verb, "a", "c")
    assert code == 2
    assert "/connectors/c" in err
    assert len(fake.changes()) == 2  # nobody was told before it was clear that c is not there
    fake.connectors["a"].polls_until_running = 10**6
    code, _, err = call(verb, "a", "--timeout", "0.1")
    assert code == 1
    assert "--timeout waits longer" in err


def test_restart_of_tasks(call: Call, fake: FakeConnect) -> None:
    fake.connectors["a"] = Connector({}, tasks=["FAILED"])
    assert call("restart", "a", "--tasks", "--only-failed")[0] == 0
    assert call("restart", "a", "--task", "0")[0] == 0
    assert fake.changes() == [
        "POST /connectors/a/restart?includeTasks=true&onlyFailed=true",
        "POST /connectors/a/tasks/0/restart",
    ]
    assert call("restart", "a", "--task", "0", "--tasks")[0] == 2


def test_delete(call: Call, fake: FakeConnect) -> None:
    fake.connectors["a/b ü?"] = Connector({})
    assert call("delete", "a/b ü?")[:2] == (0, "a/b ü?: deleted\n")
    assert fake.calls[-1] == "DELETE /connectors/a%2Fb%20%C3%BC%3F"
    assert call("delete", "a")[0] == 2


def test_offsets(call: Call, fake: FakeConnect, tmp_path: Path) -> None:
    fake.connectors["a"] = Connector({})
    assert call("offsets", "a") == (0, "no offsets\n", "")
    wanted = {"offsets": [{"partition": {"topic": "t", "partition": 0}, "offset": {"offset": 4}}]}
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps(wanted))
    code, _, err = call("offsets", "a", "--alter", str(file))
    assert code == 1
    assert "STOPPED state" in err
    call("stop", "a")
    code, out, err = call("offsets", "a", "--alter", str(file), "-o", "json")
    assert (code, err) == (0, "altered\n")
    assert json.loads(out) == wanted
    assert call("offsets", "a", "--reset")[:2] == (0, "no offsets\n")
    assert call("offsets", "a", "--reset", "--alter", str(file))[0] == 2
    for text in ("[]", '{"offsets": 1}', "{", ""):
        file.write_text(text)
        code, _, err = call("offsets", "a", "--alter", str(file))
        assert code == 2
        assert str(file) in err
    assert call("offsets", "a", "--alter", str(tmp_path / "absent"))[0] == 2


# ---------------------------------------------------------------- the way to the worker


def test_nobody_there(call: Call) -> None:
    code, _, err = call("get", url="http://127.0.0.1:1")
    assert code == 75
    assert "error [UNREACHABLE] no Connect worker answers at http://127.0.0.1:1: Connection refused" in err
    assert "--url" in err
    code, _, err = call("get", url="http://nowhere.invalid:8083")
    assert code == 75
    assert "the name is not known" in err


def test_any_worker_of_a_group_is_asked(call: Call, fake: FakeConnect) -> None:
    assert call("get", url=f"http://127.0.0.1:1, {fake.url}")[0] == 0
    assert call("get", url=f"{fake.url}/,http://127.0.0.1:1")[0] == 0


@pytest.mark.parametrize(
    "url", ["ftp://a:1", "http://", "http://a:b", "http://a:99999", "http://a/?x=1", ",", "http://u:secret@a:1"]
)
def test_what_is_no_address(url: str, call: Call) -> None:
    code, _, err = call("get", url=url)
    assert code == 2
    assert "secret" not in err
    assert "--url" in err


def test_a_group_that_rebalances_is_asked_again(call: Call, fake: FakeConnect) -> None:
    later = {
        "error_code": 409,
        "message": "Cannot complete request because of a conflicting operation (e.g. worker rebalance)",
    }
    stale = {"error_code": 409, "message": "Cannot complete request momentarily due to stale configuration"}
    expected = {"error_code": 500, "message": "Request cannot be completed because a rebalance is expected"}
    fake.answers["GET /connectors"] = [(409, later), (409, stale), (500, expected), (200, {})]
    assert call("get")[0] == 0
    assert len(fake.calls) == 4
    fake.answers["GET /connectors"] = [(409, {"error_code": 409, "message": "Connector a already exists"})]
    code, _, err = call("get")
    assert code == 1
    assert "answered with 409: Connector a already exists" in err


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((200, "<html>hello</html>"), "what is no JSON"),
        ((500, "<html>oh</html>"), "answered with 500: <html>oh</html>"),
        ((502, None), "answered with 502: Bad Gateway"),
        ((500, {"error_code": 500, "message": None}), "Internal Server Error"),
        ((200, [1, 2]), "what no Connect worker says: [1, 2]"),
        ((200, {"a": 1}), "what no Connect worker says"),
    ],
)
def test_answers_that_are_none(answer: tuple[int, Any], words: str, call: Call, fake: FakeConnect) -> None:
    fake.answers["GET /connectors"] = [answer]
    code, _, err = call("get")
    assert code == 1
    assert words in err
    assert fake.url in err


def test_an_answer_without_end_is_bounded(call: Call, fake: FakeConnect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "LIMIT_BYTES", 1000)
    fake.answers["GET /connectors"] = [(200, "x" * 5000)]
    code, _, err = call("get")
    assert code == 1
    assert "answers with more than" in err


@pytest.mark.parametrize(
    "answer", [[], 1, "text", None, {}, {"configs": 1}, {"offsets": 1}, {"message": 1}, {"a": None}]
)
def test_whatever_is_answered_is_one_message(answer: Any, call: Call, fake: FakeConnect, folder: Path) -> None:
    fake.connectors = {name: Connector({"connector.class": "x"}, "STOPPED", []) for name in (*NAMES, "a")}
    paths = ["", "/a", "/a/config", "/a/status", "/a/tasks", "/a/topics", "/a/offsets", "/mm2-msc-west/status"]
    verbs = [("get",), ("describe", "a"), ("offsets", "a"), ("offsets", "a", "--reset"), ("status", "west")]
    verbs += [("undeploy", "west"), ("deploy", "west", "--dir", str(folder), "--timeout", "0.1")]
    for method in ("GET", "DELETE", "PUT"):
        for path in paths:
            fake.answers[f"{method} /connectors{path}"] = [(200, json.dumps(answer))]
    for verb in verbs:
        code, _, err = call(*verb)
        assert code in (0, 1, 2), err
        assert "INTERNAL" not in err


def test_a_worker_that_goes_away_while_it_is_waited_for(call: Call, fake: FakeConnect, folder: Path) -> None:
    fake.answers["GET /connectors/mm2-hbc-west/status"] = [
        (404, None),
        (503, {"error_code": 503, "message": "going"}),
        (200, {"connector": {"state": "RUNNING", "worker_id": "b:1"}, "tasks": []}),
    ]
    assert call("deploy", "west", "--dir", str(folder))[0] == 0


# ---------------------------------------------------------------- who we are


def test_credentials_by_file_and_environment(
    call: Call, fake: FakeConnect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.authorization = "Basic YWRtaW46c2VjOnJldA=="  # admin:sec:ret
    code, _, err = call("get")
    assert code == 2
    assert "error [LOGIN_FAILED]" in err
    assert "--credentials FILE" in err
    file = tmp_path / "login"
    file.write_text("# ours\nuser = admin\npassword = sec:ret\n")
    assert call("get", "--credentials", str(file))[0] == 0
    monkeypatch.setenv("HELIOGRAPH_CONNECT_USER", "admin")
    monkeypatch.setenv("HELIOGRAPH_CONNECT_PASSWORD", "wrong")
    code, _, err = call("get")
    assert code == 2
    assert "not known there" in err
    monkeypatch.setenv("HELIOGRAPH_CONNECT_PASSWORD", "sec:ret")
    assert call("get")[0] == 0
    monkeypatch.setenv("HELIOGRAPH_CONNECT_TOKEN", "abc")
    assert call("get")[0] == 2  # which of them?
    monkeypatch.delenv("HELIOGRAPH_CONNECT_USER")
    monkeypatch.delenv("HELIOGRAPH_CONNECT_PASSWORD")
    fake.authorization = "Bearer abc"
    assert call("get")[0] == 0


@pytest.mark.parametrize(
    "text", ["", "user = a", "password = s3cret", "s3cret", "token = s3cret\nuser = a", "user=a:b\npassword=c"]
)
def test_credentials_that_are_none_are_not_shown(text: str, call: Call, fake: FakeConnect, tmp_path: Path) -> None:
    file = tmp_path / "login"
    file.write_text(text)
    code, _, err = call("get", "--credentials", str(file))
    assert code == 2
    assert str(file) in err
    assert "s3cret" not in err
    assert fake.calls == []
    assert call("get", "--credentials", str(tmp_path / "absent"))[0] == 2


def test_secrets_are_not_printed_and_crossing_a_network_is_warned_about() -> None:
    login = {"HELIOGRAPH_CONNECT_TOKEN": "s3cret"}
    assert "s3cret" not in repr(access.access("http://connect:8083", environment=login))
    assert access.access("http://connect:8083", environment=login).in_the_clear
    assert not access.access("https://connect:8083", environment=login).in_the_clear
    assert not access.access("http://localhost:8083", environment=login).in_the_clear
    assert not access.access("http://connect:8083", environment={}).in_the_clear


def test_certificates(call: Call, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "test")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("worker").keystore_pem)
    ca = authority.certificate_pem
    with FakeConnect(context=context) as fake:
        assert call("get", "--cacert", str(ca), url=fake.url)[0] == 0
        code, _, err = call("get", url=fake.url)
        assert code == 2
        assert "error [UNTRUSTED]" in err
        assert "--cacert" in err
    (tmp_path / "empty.pem").write_text("")
    code, _, err = call("get", "--cacert", str(tmp_path / "empty.pem"), url="https://127.0.0.1:1")
    assert code == 2
    assert "no certificates in PEM" in err
    assert call("get", "--cacert", str(ca), url="http://127.0.0.1:1")[0] == 2


def test_a_terminal_sees_a_bar(call: Call, fake: FakeConnect, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich looks there
    monkeypatch.delenv("NO_COLOR", raising=False)
    fake.new.polls_until_running = 20
    code, _, err = call("deploy", "west", "--dir", str(folder))
    assert code == 0
    assert "running" in err
    assert "/3" in err
