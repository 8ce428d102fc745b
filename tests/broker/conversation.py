"""Plays tests/data/connect/conversation.toml against a Connect worker, and compares two workers' answers.

    answers = play("http://127.0.0.1:8083", source="host:port", target="host:port", topic=prepare(client, "orders"))
    assert not unjustified(recorded(), answers)

By hand:

    python -m tests.broker.conversation http://127.0.0.1:8083 SOURCE TARGET TOPIC    what differs from the recording
    python -m tests.broker.conversation --record    starts a real worker and writes the recording anew

Answers are kept normal: what depends on the place (ports, ids) stands as $NAME, texts of documentation are left out and
stack traces keep their first line. So a recording is the same wherever it is made. Needs neither Java nor a client of
ours.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import urlsplit

from tests.kit import Record, create_topic, produce

DATA = Path(__file__).parent.parent / "data" / "connect"
RECORDING = DATA / "real-4.3.1.json"
HEADERS = ("content-type", "location")  # compared, beside status and body
UNTIL_S = 40.0
STEADY_S = 1.0
OPTIONAL = " (some)"  # no field is called so
REBALANCE = "rebalance is expected"  # in the text of a 500 that means: later


@dataclass(frozen=True, slots=True)
class Call:
    id: str
    call: str
    body: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    until: Mapping[str, Any] = field(default_factory=dict)
    same: Sequence[str] = ()
    maps: Sequence[str] = ()
    brief: bool = False
    steady: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """`body` is JSON where it can be read as such, else text; None where there is none."""

    status: int
    headers: Mapping[str, str]
    body: Any

    def plain(self) -> dict[str, Any]:
        return {"status": self.status, "headers": dict(self.headers), "body": self.body}


Answers = Mapping[str, Answer]


@dataclass(frozen=True, slots=True)
class Difference:
    id: str  # of the call
    where: str  # status, header.location, body.a.*.b
    text: str

    def __str__(self) -> str:
        return f"{self.id}: {self.where}: {self.text}"


def conversation() -> list[Call]:
    document = tomllib.loads((DATA / "conversation.toml").read_text())
    calls = [Call(**one) for one in document["call"]]
    assert len({call.id for call in calls}) == len(calls), "two calls of one id"
    return calls


def recorded() -> dict[str, Answer]:
    """What the real worker answered."""
    found = json.loads(RECORDING.read_text())
    return {one: Answer(**answer) for one, answer in found.items()}


def write_recording(answers: Answers) -> None:
    entries = (
        f"{json.dumps(one)}: {json.dumps(answer.plain(), ensure_ascii=False)}" for one, answer in answers.items()
    )
    RECORDING.write_text("{\n" + ",\n".join(entries) + "\n}\n")  # a line an answer: its changes can be read


def prepare(client: Mapping[str, str], topic: str) -> str:
    """The topic that the conversation is about, made on the source cluster."""
    create_topic(client, topic, 1)
    produce(client, topic, [Record(b"k%d" % n, b"v%d" % n) for n in range(10)])
    return topic


# ---------------------------------------------------------------- playing


def play(
    url: str,
    *,
    source: str,
    target: str,
    topic: str,
    headers: Mapping[str, str] | None = None,
    until_s: float = UNTIL_S,
    loud: bool = False,
) -> dict[str, Answer]:
    """All answers, by the calls' ids. `source`, `target`: bootstrap servers. `headers`: with every call, as credentials
    are."""
    document = tomllib.loads((DATA / "conversation.toml").read_text())
    place = {"SOURCE": source, "TARGET": target, "TOPIC": topic}
    texts = place | document["texts"]
    marks = {urlsplit(url).netloc: "$WORKER", **{value: f"${name}" for name, value in place.items()}}
    answers = {}
    for one in conversation():
        call = replace(one, headers={**(headers or {}), **one.headers})
        began = time.monotonic()
        answers[call.id] = _played(url, call, texts, marks, until_s)
        if loud:
            print(f"{time.monotonic() - began:5.1f} s  {answers[call.id].status}  {call.id}", file=sys.stderr)
    return answers


def _played(url: str, call: Call, texts: Mapping[str, str], marks: Mapping[str, str], until_s: float) -> Answer:
    deadline = time.monotonic() + until_s
    since = float("inf")
    while True:
        answer = normal(_send(url, call, texts), marks)
        if call.brief and isinstance(answer.body, dict) and "configs" in answer.body:
            answer.body["configs"] = [one for one in answer.body["configs"] if one["value"]["errors"]]
        now = time.monotonic()
        since = min(since, now) if _come(call, answer) and not _rebalancing(answer) else float("inf")
        if now > deadline or now - since >= (STEADY_S if call.steady else 0):
            return answer
        time.sleep(0.1)


def _come(call: Call, answer: Answer) -> bool:
    if not call.until:
        return True
    wanted = dict(call.until)
    if answer.status != wanted.pop("status", 200):
        return False
    return all(list(values(answer.body, path)) == [value] for path, value in wanted.items())


def _rebalancing(answer: Answer) -> bool:
    taken = "already exists" in str(answer.body)
    return (answer.status == 409 and not taken) or (answer.status == 500 and REBALANCE in str(answer.body))


def _send(url: str, call: Call, texts: Mapping[str, str]) -> Answer:
    method, path = call.call.split(" ", 1)
    body = None if call.body is None else _filled(call.body, texts).encode()
    headers = {"Accept": "application/json", **({} if body is None else {"Content-Type": "application/json"})}
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=100)  # Connect's own deadline is 90 s
    try:
        connection.request(method, _filled(path, texts), body, {**headers, **call.headers})
        response = connection.getresponse()
        content = response.read()
        kept = {name: value for name in HEADERS if (value := response.getheader(name)) is not None}
        return Answer(response.status, kept, _read(content))
    finally:
        connection.close()


def _filled(text: str, texts: Mapping[str, str]) -> str:
    while "$" in text:
        text = Template(text).substitute(texts)
    return text


def _read(content: bytes) -> Any:
    if not content:
        return None
    try:
        return json.loads(content)
    except ValueError:
        return content.decode(errors="replace")


# ---------------------------------------------------------------- what answers have in common


def normal(answer: Answer, marks: Mapping[str, str]) -> Answer:
    """The same wherever it was given."""

    def marked(text: str) -> str:
        for value, name in marks.items():
            text = text.replace(value, name)
        return text

    headers = {name: marked(value) for name, value in answer.headers.items()}
    return Answer(answer.status, headers, _normal(json.loads(marked(json.dumps(answer.body)))))


def _normal(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _normal(one, key) for key, one in value.items()}
    if isinstance(value, list):
        return [_normal(one) for one in value]
    if name == "documentation" and isinstance(value, str):
        return "…"
    if name == "trace" and isinstance(value, str):
        return value.split("\n", 1)[0]
    if name == "kafka_cluster_id" and isinstance(value, str):
        return "$CLUSTER"
    return value


def values(body: Any, path: str) -> Iterator[Any]:
    """What stands at this path of the data file; nothing where it does not lead anywhere."""
    step, _, rest = path.partition(".")
    if path == "" or path == "$":
        yield body
    elif step == "*" and isinstance(body, list):
        for one in body:
            yield from values(one, rest)
    elif step == "#" and isinstance(body, list):
        yield len(body)
    elif step.startswith("{") and isinstance(body, dict):
        yield {name: body[name] for name in path.strip("{}").split(",") if name in body}
    elif isinstance(body, list) and step.isdigit() and int(step) < len(body):
        yield from values(body[int(step)], rest)
    elif isinstance(body, dict) and step in body:
        yield from values(body[step], rest)
    elif isinstance(body, dict) and (name := _dotted(body, path)):
        yield from values(body[name], path[len(name) :].removeprefix("."))


def _dotted(body: Mapping[str, Any], path: str) -> str:
    """A key with dots in it that the path begins with."""
    return next((name for name in body if path == name or path.startswith(f"{name}.")), "")


def shape(body: Any, maps: Sequence[str] = (), at: str = "") -> Any:
    """Keys and types. Lists have one shape for all elements; a key that only some of them have ends in `OPTIONAL`."""
    if isinstance(body, dict):
        shapes = {name: shape(one, maps, _below(at, name)) for name, one in body.items()}
        if (at or "$") in maps or _any_name(at) in maps:
            return {"*": merged(list(shapes.values()))}
        return shapes
    if isinstance(body, list):
        return [merged([shape(one, maps, _below(at, "*")) for one in body])] if body else []
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
    return kinds[type(body)]


def _below(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _any_name(at: str) -> str:
    """The path with `*` for its first step: in `maps`, a step over names of connectors is a star as well."""
    _, dot, rest = at.partition(".")
    return f"*{dot}{rest}"


def merged(shapes: Sequence[Any]) -> Any:
    """One shape for several."""
    if all(isinstance(one, dict) for one in shapes):
        names = sorted({name.removesuffix(OPTIONAL) for one in shapes for name in one})
        together = {}
        for name in names:
            found = [one[key] for one in shapes for key in (name, name + OPTIONAL) if key in one]
            always = len(found) == len(shapes) and all(name in one for one in shapes)
            together[name if always else name + OPTIONAL] = merged(found)
        return together
    if all(isinstance(one, list) for one in shapes):
        inner = [one[0] for one in shapes if one]
        return [merged(inner)] if inner else []
    plain = {part for one in shapes for part in (one.split("|") if isinstance(one, str) else [json.dumps(one)])}
    return "|".join(sorted(plain))


# ---------------------------------------------------------------- comparing


def differences(call: Call, real: Answer, other: Answer) -> list[Difference]:
    """Everything in which the other answer is not like the real one."""
    found = []
    if real.status != other.status:
        found.append(("status", f"{other.status}, a real worker says {real.status}"))
    for name in HEADERS:
        mine, theirs = (_media(one.headers.get(name)) for one in (other, real))
        if mine != theirs:
            found.append((f"header.{name}", f"{mine!r}, a real worker says {theirs!r}"))
    found += _unlike("body", shape(real.body, call.maps), shape(other.body, call.maps))
    for path in call.same:
        mine, theirs = (_sorted(values(one.body, path)) for one in (other, real))
        if mine != theirs:
            found.append((f"same.{path}", _apart(mine, theirs)))
    return [Difference(call.id, where, text) for where, text in found]


def _media(header: str | None) -> str | None:
    """Without parameters: charsets are not the point."""
    return None if header is None else header.split(";")[0].strip()


def _unlike(at: str, real: Any, other: Any) -> list[tuple[str, str]]:
    if isinstance(real, dict) and isinstance(other, dict):
        found = []
        for name in sorted({one.removesuffix(OPTIONAL) for one in (*real, *other)}):
            theirs, mine = (one.get(name, one.get(name + OPTIONAL)) for one in (real, other))
            if mine is None:
                found.append((f"{at}.{name}", "missing"))
            elif theirs is None:
                found.append((f"{at}.{name}", "a real worker has no such field"))
            else:
                found += _unlike(f"{at}.{name}", theirs, mine)
        return found
    if isinstance(real, list) and isinstance(other, list):
        return _unlike(f"{at}.*", real[0], other[0]) if real and other else []  # how many: `same` says where it matters
    return [] if real == other else [(at, f"{json.dumps(other)}, a real worker has {json.dumps(real)}")]


def _sorted(found: Iterator[Any]) -> list[str]:
    return sorted(json.dumps(one, sort_keys=True, ensure_ascii=False) for one in found)


def _apart(mine: Sequence[str], theirs: Sequence[str]) -> str:
    extra, missing = [one for one in mine if one not in theirs], [one for one in theirs if one not in mine]
    if not extra and not missing:
        return f"{len(mine)} of them, a real worker has {len(theirs)}"
    return f"only here: {'; '.join(extra) or 'nothing'}; only of a real worker: {'; '.join(missing) or 'nothing'}"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why these calls may be answered otherwise, in these places."""

    ids: Sequence[str]
    where: Sequence[str]
    reason: str
    sometimes: bool = False  # it may also be as with a real worker

    def covers(self, one: Difference) -> bool:
        return one.where in self.where and ("*" in self.ids or one.id in self.ids)


def justified() -> list[Reason]:
    document = tomllib.loads((DATA / "differences.toml").read_text())
    return [Reason(**one) for one in document.get("difference", [])]


def unjustified(real: Answers, other: Answers, reasons: Sequence[Reason] | None = None) -> list[str]:
    """What differs without a reason, and reasons that nothing needs."""
    reasons = justified() if reasons is None else reasons
    seen = [one for call in conversation() for one in differences(call, real[call.id], other[call.id])]
    found = [str(one) for one in seen if not any(reason.covers(one) for reason in reasons)]
    for reason in reasons:
        if reason.sometimes:
            continue
        covered = [one for one in seen if reason.covers(one)]
        ids, places = {one.id for one in covered} | {"*"}, {one.where for one in covered}
        gone = [f"call {one}" for one in reason.ids if one not in ids or not covered]
        gone += [f"place {one}" for one in reason.where if one not in places]
        found += [f"{one} is no difference any more: {reason.reason}" for one in gone]
    return found


def record() -> None:
    """The answers of a real worker, written down."""
    from heliograph.embedded import ConnectWorker, Kafka, connect_properties, running

    with running(Kafka("west"), Kafka("east")) as (west, east):
        topic = prepare(west.confluent(), "orders")
        with ConnectWorker(connect_properties(east.cluster())) as worker:
            answers = play(worker.url, source=west.bootstrap, target=east.bootstrap, topic=topic, loud=True)
    write_recording(answers)


def main(arguments: Sequence[str]) -> int:
    if list(arguments) == ["--record"]:
        record()
        return 0
    url, source, target, topic = arguments
    found = unjustified(recorded(), play(url, source=source, target=target, topic=topic, loud=True))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
