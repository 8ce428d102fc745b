"""Two shared one-broker clusters for every broker test, two with ACLs for those that ask who may do what, and unique
topic names so that tests do not meet."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator

import pytest
import structlog
from hypothesis import settings
from structlog.typing import EventDict

from heliograph import batch
from heliograph.embedded import Kafka, running

_counter = itertools.count(1)

settings.register_profile("house", deadline=None)  # a busy machine is no failure of ours
settings.load_profile("house")

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # started behind a shell's `&`: commands under test would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _kernels() -> None:
    """Compiled by the first process that runs tests on a machine, loaded by every one: what must be rewritten would
    wait for them otherwise."""
    batch.warm()


@pytest.fixture(scope="session")
def _pair() -> Iterator[tuple[Kafka, Kafka]]:
    config = {"auto.create.topics.enable": "false", "log.cleaner.backoff.ms": "300"}  # tests wait for the cleaner
    first, second = Kafka("primary", config=config), Kafka("backup", config=config)
    with running(first, second):
        yield first, second


@pytest.fixture(scope="session")
def primary(_pair: tuple[Kafka, Kafka]) -> Kafka:
    """The shared source cluster: one broker, PLAINTEXT. Do not stop it; take a Kafka of your own for that."""
    return _pair[0]


@pytest.fixture(scope="session")
def backup(_pair: tuple[Kafka, Kafka]) -> Kafka:
    """The shared target cluster."""
    return _pair[1]


@pytest.fixture(scope="module")  # up in two seconds; brokers that idle take three hundredths of a core each
def guarded_pair() -> Iterator[tuple[Kafka, Kafka]]:
    """Two more, west and east, with ACLs: admin may do all, alice what she is allowed. A test that allows her more than
    topics of its own takes that back."""
    config = {"auto.create.topics.enable": "false"}
    west = Kafka("west", security=("SASL_PLAINTEXT",), acls=True, config=config)
    east = Kafka("east", security=("SASL_PLAINTEXT",), acls=True, config=config)
    with running(west, east):
        yield west, east


@pytest.fixture
def new_topic() -> Callable[[], str]:
    """A maker of topic names that nobody else uses."""
    return lambda: f"topic-{os.getpid()}-{next(_counter)}"


@pytest.fixture
def topic_name(new_topic: Callable[[], str]) -> str:
    return new_topic()


@pytest.fixture
def logs() -> Iterator[list[EventDict]]:
    """Every line that the code under test logs, whatever level an earlier test has set."""
    before = structlog.get_config()
    structlog.reset_defaults()
    try:
        with structlog.testing.capture_logs() as lines:
            yield lines
    finally:
        structlog.configure(**before)
