"""What a worker says of itself: who it is, its health, its classes and their keys, its loggers. Pure."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from heliograph.config.connectors import CLASSES, class_of
from heliograph.connect import definitions, records, validation
from heliograph.connect.asking import Ask, Decision, Level, Refusal, SetLevel, Sight, Write
from heliograph.connect.bodies import object_of, texts_of
from heliograph.connect.siblings import siblings_of

# The release of Kafka Connect whose API this is: clients go by it. kcctl, told of a lower one, does not try to stop
# connectors, to restart their tasks, nor to read and change their offsets.
SPEAKS = "4.3.1"


def root(sight: Sight, ask: Ask) -> Decision:
    about = {"version": SPEAKS, "commit": f"heliograph-{sight.version}", "kafka_cluster_id": sight.cluster_id}
    return Decision(HTTPStatus.OK, about)


def health(sight: Sight, ask: Ask) -> Decision:
    """To who brought no credentials without the reason: it names addresses."""
    told = ask.role != "anybody"
    if not sight.ready:
        message = (sight.trouble if told else "") or "Worker is still starting up."
        return Decision(HTTPStatus.SERVICE_UNAVAILABLE, {"status": "starting", "message": message})
    if sight.trouble:
        message = sight.trouble if told else "Worker is not healthy: ask with credentials for the reason."
        return Decision(HTTPStatus.INTERNAL_SERVER_ERROR, {"status": "unhealthy", "message": message})
    message = "Worker has completed startup and is ready to handle requests."
    if told and sight.notices:
        message += f" Notice: {'; '.join(sight.notices)}"
    return Decision(HTTPStatus.OK, {"status": "healthy", "message": message})


# ---------------------------------------------------------------- classes


def plugins(sight: Sight, ask: Ask) -> Decision:
    listed = [{"class": name, "type": "source", "version": sight.version} for name in sorted(CLASSES)]
    return Decision(HTTPStatus.OK, listed)


def plugin_config(sight: Sight, ask: Ask) -> Decision:
    name = ask.named["plugin"]
    full = class_of(name)
    if full is None:
        raise Refusal(HTTPStatus.NOT_FOUND, f"Unknown plugin {name}.")
    return Decision(HTTPStatus.OK, [one.json() for one in definitions.of(CLASSES[full]).values()])


def validate(sight: Sight, ask: Ask) -> Decision:
    plugin = ask.named["plugin"]
    given = texts_of(ask.body, "a connector's configuration")
    told = given.get("connector.class")
    if told is None:
        raise Refusal(
            HTTPStatus.BAD_REQUEST, "the configuration contains no connector type: connector.class is missing"
        )
    if not told.strip().removesuffix("Connector").endswith(plugin.removesuffix("Connector").rpartition(".")[2]):
        why = f"Included connector type {told} does not match request type {plugin}"
        raise Refusal(HTTPStatus.BAD_REQUEST, why)
    name = given.get("name") or ""
    # A reader learns nothing of what providers hold, not even whether it would fit.
    worker = sight.worker if ask.role == "admin" else sight.worker.for_readers()
    verdict = validation.judge(name, given, worker, siblings_of(sight.board, given))
    if verdict.made.kind is None:
        raise Refusal(HTTPStatus.BAD_REQUEST, verdict.words)
    return Decision(HTTPStatus.OK, validation.infos(verdict.made.kind, verdict))


# ---------------------------------------------------------------- loggers

LEVELS = ("OFF", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE", "ALL")


def loggers(sight: Sight, ask: Ask) -> Decision:
    return Decision(HTTPStatus.OK, {name: _level_json(one) for name, one in sorted(sight.levels.items())})


def logger(sight: Sight, ask: Ask) -> Decision:
    name = ask.named["logger"]
    found = sight.levels.get(name)
    if found is None:
        raise Refusal(HTTPStatus.NOT_FOUND, f"Logger {name} not found.")
    return Decision(HTTPStatus.OK, _level_json(found))


def set_level(sight: Sight, ask: Ask) -> Decision:
    name = ask.named["logger"]
    told = object_of(ask.body, 'a level: {"level": "DEBUG"}').get("level")
    if told is None:
        raise Refusal(HTTPStatus.BAD_REQUEST, "Desired 'level' parameter was not specified in request.")
    level = str(told).upper()
    if level not in LEVELS:
        raise Refusal(HTTPStatus.NOT_FOUND, f"invalid log level '{told}'.")
    if ask.query.get("scope", ["worker"])[-1].lower() == "cluster":
        return Decision(HTTPStatus.NO_CONTENT, deeds=(Write((records.levelled(name, level),)),))
    return Decision(HTTPStatus.OK, [name], (SetLevel(name, level),))


def _level_json(one: Level) -> dict[str, Any]:
    return {"level": one.level, "last_modified": one.last_modified_ms}
