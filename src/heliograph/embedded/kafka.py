"""A real Kafka cluster for demos, tests and benchmarks: KRaft, 1 to 3 brokers, loopback only, gone when done.

    with Kafka("primary", brokers=3, security=("PLAINTEXT", "SASL_SSL"), acls=True) as kafka:
        kafka.cluster(security="SASL_SSL", user="admin")     # heliograph's view: Kafka's Java client properties
        kafka.confluent()                                    # confluent-kafka's view, by the first listener
        kafka.brokers[0].kill()

Several clusters start side by side under `running(first, second)`. Data lives in one temporary folder and is thrown
away at the end, so the end is a SIGKILL and quick; `Broker.stop` is the gentle one.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from heliograph.embedded import archive
from heliograph.embedded.broker import QUICK_JVM, START_SECONDS, Broker, java_command
from heliograph.embedded.certificates import Authority
from heliograph.embedded.jars import fetch_jars
from heliograph.embedded.listeners import INTERNAL_USER, Access, Security
from heliograph.embedded.ports import LOOPBACK, Port, claim_port
from heliograph.embedded.process import Folder
from heliograph.embedded.releases import PINNED, RELEASES
from heliograph.embedded.storage import format_folder, new_id
from heliograph.embedded.zookeeper import ZooKeeper
from heliograph.errors import EmbeddedError
from heliograph.types import Cluster

# What a client is told to connect to: by broker id, or asked for each (broker id, listener, port).
Advertised = Mapping[int, str] | Callable[[int, str, int], str]

USERS = {"admin": "admin-secret", "alice": "alice-secret"}


class Kafka:
    """One cluster. Its ports are fixed by the constructor; `start` (or `with`) brings it up, `stop` leaves nothing."""

    def __init__(
        self,
        name: str = "kafka",
        *,
        brokers: int = 1,
        security: Sequence[str] = ("PLAINTEXT",),
        config: Mapping[str, str] | None = None,
        port: int | None = None,
        users: Mapping[str, str] | None = None,
        acls: bool = False,
        super_users: Sequence[str] = ("admin",),
        mutual_tls: bool = False,
        advertised: Advertised | None = None,
        jvm: Sequence[str] = QUICK_JVM,
        log_dirs: Mapping[int, Sequence[Path]] | None = None,
        release: str = PINNED,
    ) -> None:
        """`log_dirs`: by broker id, folders for its data that are not there yet, in the place of one of its own.
        `release`: another Kafka than the pinned one, without SCRAM users and ACLs where ZooKeeper keeps its metadata.
        """
        if release not in RELEASES:
            raise EmbeddedError(f"Kafka {release} is not pinned here", fix=f"Ask for one of {', '.join(RELEASES)}")
        if not 1 <= brokers <= 3:
            raise EmbeddedError(f"an embedded cluster has 1 to 3 brokers, not {brokers}", fix="Ask for 1, 2 or 3")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise EmbeddedError(f"{name!r} is no name for a cluster", fix="Use letters, digits, '.', '_' and '-'")
        self.name = name
        self.release = RELEASES[release]
        self.cluster_id = new_id()
        self.brokers: list[Broker] = []
        self._config = dict(config or {})
        self._jvm = tuple(jvm)
        self._log_dirs = dict(log_dirs or {})
        self._security = Security(
            protocols=tuple(security),
            users=dict(users or USERS),
            super_users=tuple(super_users),
            acls=acls,
            mutual_tls=mutual_tls,
            internal_password=secrets.token_urlsafe(),
        )
        self._claims: list[Port] = []
        self._ports = {one: self._claim_ports(one, port) for one in range(1, brokers + 1)}
        self._advertised = {one: self._advertise(one, advertised) for one in self._ports}
        self._folder: Folder | None = None
        self._zookeeper: ZooKeeper | None = None

    def _claim_ports(self, broker_id: int, first: int | None) -> dict[str, int]:
        """A port per listener. With `first`, brokers get first, first + 1 … on the first client listener."""
        ports = {}
        controller = () if self.release.zookeeper else ("CONTROLLER",)
        for position, listener in enumerate((*self._security.protocols, "INTERNAL", *controller)):
            wanted = first + broker_id - 1 if first is not None and position == 0 else None
            claim = claim_port(wanted)
            self._claims.append(claim)
            ports[listener] = claim.number
        return ports

    def _advertise(self, broker_id: int, advertised: Advertised | None) -> dict[str, str]:
        addresses = {}
        for position, protocol in enumerate(self._security.protocols):
            port = self._ports[broker_id][protocol]
            address = f"{LOOPBACK}:{port}"
            if callable(advertised):
                address = advertised(broker_id, protocol, port)
            elif advertised and position == 0:
                address = advertised.get(broker_id, address)
            addresses[protocol] = address
        return addresses

    # How clients come in

    @property
    def bootstrap(self) -> str:
        """host:port,… of the first listener, as advertised to clients."""
        return self.bootstrap_of(self._security.protocols[0])

    def bootstrap_of(self, protocol: str) -> str:
        return ",".join(addresses[protocol] for addresses in self._advertised.values())

    def cluster(
        self,
        alias: str = "",
        *,
        security: str = "",
        user: str = "admin",
        password: str = "",
        mechanism: str = "SCRAM-SHA-512",
        store: str = "PEM",
    ) -> Cluster:
        """As Heliograph knows it. Without `security`, by the first listener; without `password`, the user's own."""
        access = Access(security or self._security.protocols[0], user, password, mechanism, store)
        properties = self._security.client_properties(access)
        return Cluster(alias or self.name, {"bootstrap.servers": self.bootstrap_of(access.protocol), **properties})

    def confluent(
        self, *, security: str = "", user: str = "admin", password: str = "", mechanism: str = "SCRAM-SHA-512"
    ) -> dict[str, str]:
        """The same for confluent-kafka clients."""
        access = Access(security or self._security.protocols[0], user, password, mechanism)
        properties = self._security.confluent_properties(access)
        return {"bootstrap.servers": self.bootstrap_of(access.protocol), **properties}

    # Its life

    def start(self, timeout_seconds: float = START_SECONDS) -> Self:
        self.launch()
        self.wait_ready(timeout_seconds)
        return self

    def launch(self) -> None:
        """Start the JVMs without waiting for them, so that several clusters come up side by side."""
        if self.brokers:
            raise EmbeddedError(f"cluster {self.name} is running already", fix="Call stop() first")
        try:
            self._launch(fetch_jars(release=self.release.version))
        except BaseException:
            self.stop()
            raise

    def _launch(self, jars: list[Path]) -> None:
        self._folder = Folder(f"heliograph-{self.name}-")
        folder = self._folder.path
        if self._security.uses_tls:
            self._security = self._security.with_authority(Authority(folder / "certificates", self.name))
        jvm = (*self._jvm, *archive.options(jars)) if self._jvm == QUICK_JVM else self._jvm
        java = java_command(jars, (*jvm, *self.release.jvm(folder)), folder / "log4j2.properties")
        if self.release.zookeeper:
            self._zookeeper = ZooKeeper(folder / "zookeeper", java)
            self._zookeeper.wait_ready()
        command = [*java, "kafka.Kafka"]
        for broker_id, ports in self._ports.items():
            own = folder / f"broker-{broker_id}"
            own.mkdir()
            dirs = self._log_dirs.get(broker_id, (own / "data",))
            for data in dirs:
                if self.release.zookeeper:
                    data.mkdir(parents=True)  # the broker writes its meta.properties, with the id from ZooKeeper
                else:
                    format_folder(data, cluster_id=self.cluster_id, node_id=broker_id, jars=jars)
            broker = Broker(
                broker_id,
                folder=own,
                ports=ports,
                properties=self._properties(broker_id) | {"log.dirs": ",".join(map(str, dirs))},
                internal_client=self._internal_client(ports["INTERNAL"]),
                command=command,
            )
            self.brokers.append(broker)
            broker.launch()

    def wait_ready(
        self, timeout_seconds: float = START_SECONDS, *, give_up: Callable[[], bool] = lambda: False
    ) -> None:
        """Until every broker answers and knows all the others, and the users exist (or `give_up` says so)."""
        try:
            for broker in self.brokers:
                broker.wait_ready(members=len(self._ports), timeout_seconds=timeout_seconds, give_up=give_up)
            if self._security.uses_sasl and not give_up():
                self._create_users(timeout_seconds)
        except BaseException:  # also a Ctrl-C: whoever does not get the cluster cannot stop it
            self.stop()
            raise

    def require_running(self) -> None:
        """Raise, with the end of its log, when a broker has ended by itself."""
        for broker in self.brokers:
            broker.process.require_running()

    def stop(self) -> None:
        for broker in self.brokers:
            broker.kill()
        self.brokers.clear()
        if self._zookeeper is not None:
            self._zookeeper.stop()
            self._zookeeper = None
        if self._folder is not None:
            self._folder.delete()
            self._folder = None
        while self._claims:
            self._claims.pop().release()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # What the brokers are told

    def _properties(self, broker_id: int) -> dict[str, str]:
        ports, count = self._ports[broker_id], len(self._ports)
        if self._zookeeper is not None:
            metadata = {"broker.id": str(broker_id), "zookeeper.connect": self._zookeeper.address}
        else:
            voters = (f"{one}@{LOOPBACK}:{listeners['CONTROLLER']}" for one, listeners in self._ports.items())
            metadata = {
                "process.roles": "broker,controller",
                "node.id": str(broker_id),
                "controller.quorum.voters": ",".join(voters),
            }
        advertised = {**self._advertised[broker_id], "INTERNAL": f"{LOOPBACK}:{ports['INTERNAL']}"}
        copies = str(min(count, 3))
        in_sync = str(max(1, count - 1))
        return {
            **metadata,
            "listeners": ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in ports.items()),
            "advertised.listeners": ",".join(f"{name}://{address}" for name, address in advertised.items()),
            "offsets.topic.num.partitions": "4",  # 50 by default, each a second of a small machine's start
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.num.partitions": "4",
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": in_sync,
            "default.replication.factor": copies,
            "group.initial.rebalance.delay.ms": "0",
            # After a kill -9 the controller refuses the restarted broker until its old session has ended (else 9 s).
            "broker.session.timeout.ms": "5000",
            **self._security.broker_properties(controller=self._zookeeper is None),
            **self._config,
        }

    def _internal_client(self, port: int) -> dict[str, str | int | float | bool]:
        return {
            "bootstrap.servers": f"{LOOPBACK}:{port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": INTERNAL_USER,
            "sasl.password": self._security.internal_password,
            "reconnect.backoff.ms": "20",
            "reconnect.backoff.max.ms": "100",
            "log_level": "0",  # refused connections are expected while a broker starts
        }

    def _create_users(self, timeout_seconds: float) -> None:
        admin = AdminClient(self._internal_client(self.brokers[0].ports["INTERNAL"]))
        kinds = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        for kind in kinds:  # Kafka takes one change per user in a request
            changes: list[UserScramCredentialAlteration] = [
                UserScramCredentialUpsertion(name, ScramCredentialInfo(kind, 4096), password.encode())
                for name, password in self._security.users.items()
            ]
            for name, future in admin.alter_user_scram_credentials(changes).items():
                try:
                    future.result(timeout_seconds)
                except KafkaException as error:
                    raise EmbeddedError(f"user {name} could not be created: {error}", user=name) from error
        for broker in self.brokers:
            broker.wait_users(tuple(self._security.users), timeout_seconds)


@contextmanager
def running(*clusters: Kafka) -> Iterator[tuple[Kafka, ...]]:
    """All of these, started side by side and stopped at the end."""
    with ExitStack() as stack:
        for one in clusters:
            stack.callback(one.stop)
            one.launch()
        for one in clusters:
            one.wait_ready()
        yield clusters
