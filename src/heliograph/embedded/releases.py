"""Kafka releases that embedded clusters can be made of: the pinned one, and others as brokers for `make compat`.

What differs between them is here: the coordinates of their jars, how they log, and who keeps their metadata. Kafka
before 3.3 keeps it in ZooKeeper (KRaft of 2.8 is a preview without transactions and idempotent producers).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PINNED = "4.3.1"
_LOG4J2 = "2.24.3"  # Kafka 4 logs by log4j2, those before by log4j 1, of which reload4j is the maintained one
_RELOAD4J = ("ch.qos.reload4j:reload4j:1.2.25", "org.slf4j:slf4j-reload4j:1.7.36")

LOG4J_1 = """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


@dataclass(frozen=True, slots=True)
class Release:
    version: str
    artifacts: tuple[str, ...] = ("kafka_2.13",)  # of org.apache.kafka; what they depend on comes with them
    logging: tuple[str, ...] = ()  # coordinates that no artifact brings along
    zookeeper: bool = False

    @property
    def lock(self) -> Path:
        return Path(__file__).parent / f"kafka-{self.version}.lock"

    @property
    def log4j_1(self) -> bool:
        return self.logging == _RELOAD4J

    def jvm(self, folder: Path) -> Sequence[str]:
        """What the JVM is told beside what the pinned release's is: log4j 1 reads another file."""
        if not self.log4j_1:
            return ()
        path = folder / "log4j.properties"
        path.write_text(LOG4J_1)
        return (f"-Dlog4j.configuration=file:{path}", "-Dzookeeper.jmx.log4j.disable=true")


RELEASES: Mapping[str, Release] = {
    one.version: one
    for one in (
        Release("2.8.2", logging=_RELOAD4J, zookeeper=True),
        Release("3.3.2", logging=_RELOAD4J),
        Release("3.9.1", logging=_RELOAD4J),
        Release(
            "4.0.2",
            logging=tuple(
                f"org.apache.logging.log4j:{name}:{_LOG4J2}" for name in ("log4j-api", "log4j-core", "log4j-slf4j-impl")
            ),
        ),
        Release(
            PINNED,
            artifacts=("kafka_2.13", "connect-mirror", "connect-runtime", "kafka-tools", "connect-mirror-client"),
        ),
    )
}
