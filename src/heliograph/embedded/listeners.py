"""Who may talk to an embedded cluster and how: the brokers' listeners, and the matching client properties.

Every broker has two listeners of its own, INTERNAL (broker to broker, and our readiness checks) and CONTROLLER, both
SASL/PLAIN with a password nobody else knows, and one per security protocol asked for, named like the protocol. Nothing
is written or started here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from heliograph.embedded.certificates import Authority
from heliograph.errors import EmbeddedError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER")
INTERNAL_USER = "heliograph-internal"

_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}


def jaas(mechanism: str, **options: str) -> str:
    text = " ".join(f'{key}="{value}"' for key, value in options.items())
    return f"{_MODULES[mechanism]} required {text};"


@dataclass(frozen=True, slots=True)
class Access:
    """How one client comes in."""

    protocol: str
    user: str = "admin"
    password: str = ""
    mechanism: str = "SCRAM-SHA-512"
    store: str = "PEM"  # PEM, PKCS12 or JKS: how the certificates are handed over


@dataclass(frozen=True, slots=True)
class Security:
    """What the listeners of one cluster ask of their clients."""

    protocols: tuple[str, ...]
    users: Mapping[str, str]  # name -> password, the same under every SASL mechanism
    super_users: tuple[str, ...]
    acls: bool
    mutual_tls: bool
    internal_password: str = field(repr=False)
    authority: Authority | None = None

    def __post_init__(self) -> None:
        unknown = [one for one in self.protocols if one not in PROTOCOLS]
        if unknown or not self.protocols:
            raise EmbeddedError(f"unknown security protocol {', '.join(unknown)}", fix=f"Use {', '.join(PROTOCOLS)}")

    def with_authority(self, authority: Authority) -> Security:
        return replace(self, authority=authority)

    @property
    def uses_sasl(self) -> bool:
        return any(one.startswith("SASL") for one in self.protocols)

    @property
    def uses_tls(self) -> bool:
        return any(one.endswith("SSL") for one in self.protocols)

    def broker_properties(self, *, controller: bool = True) -> dict[str, str]:
        """`controller`: whether there is a CONTROLLER listener; brokers that have ZooKeeper refuse its settings."""
        plain = "listener.name.{}.plain.sasl.jaas.config"
        inside = {"username": INTERNAL_USER, "password": self.internal_password}
        own = jaas("PLAIN", **inside, **{f"user_{INTERNAL_USER}": self.internal_password})
        protocols = {"INTERNAL": "SASL_PLAINTEXT", "CONTROLLER": "SASL_PLAINTEXT"} | {p: p for p in self.protocols}
        properties = {
            "listener.security.protocol.map": ",".join(f"{name}:{one}" for name, one in protocols.items()),
            "inter.broker.listener.name": "INTERNAL",
            "controller.listener.names": "CONTROLLER",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.internal.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            plain.format("internal"): own,
            plain.format("controller"): own,
        }
        for protocol in self.protocols:
            if protocol.startswith("SASL"):
                properties |= self._sasl(f"listener.name.{protocol.lower()}")
        if not controller:
            known = properties["listener.security.protocol.map"]
            properties["listener.security.protocol.map"] = known.replace(",CONTROLLER:SASL_PLAINTEXT", "")
            properties = {key: value for key, value in properties.items() if "controller" not in key}
        if self.authority is not None:
            properties |= self._tls(self.authority)
        if self.acls:
            everyone = (INTERNAL_USER, *self.super_users)
            properties |= {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": ";".join(f"User:{name}" for name in everyone),
            }
        return properties

    def _sasl(self, prefix: str) -> dict[str, str]:
        users = {f"user_{name}": password for name, password in self.users.items()}
        return {
            f"{prefix}.sasl.enabled.mechanisms": ",".join(MECHANISMS),
            f"{prefix}.plain.sasl.jaas.config": jaas("PLAIN", **users),
            f"{prefix}.scram-sha-256.sasl.jaas.config": jaas("SCRAM-SHA-256"),
            f"{prefix}.scram-sha-512.sasl.jaas.config": jaas("SCRAM-SHA-512"),
            # Kafka's own validator of unsigned tokens: whoever comes says who he is. Good for tests only.
            f"{prefix}.oauthbearer.sasl.jaas.config": jaas("OAUTHBEARER", unsecuredLoginStringClaim_sub=INTERNAL_USER),
        }

    def _tls(self, authority: Authority) -> dict[str, str]:
        server = authority.issue("broker")
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(server.keystore_pem),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.certificate_pem),
            "listener.name.ssl.ssl.client.auth": "required" if self.mutual_tls else "none",
            # "CN=alice" becomes alice, so that ACLs name the same user over TLS and SASL
            "ssl.principal.mapping.rules": r"RULE:^CN=([^,]+).*$/$1/,DEFAULT",
        }

    def client_properties(self, access: Access) -> dict[str, str]:
        """Kafka's Java client properties for this access (without bootstrap.servers)."""
        self._require(access)
        properties = {"security.protocol": access.protocol}
        if access.protocol.endswith("SSL") and self.authority is not None:
            properties |= self.authority.trust_properties(access.store)
            if self.mutual_tls and access.protocol == "SSL":
                properties |= self.authority.issue(access.user).key_properties(access.store)
        if access.protocol.startswith("SASL"):
            properties["sasl.mechanism"] = access.mechanism
            if access.mechanism == "OAUTHBEARER":
                login = jaas("OAUTHBEARER", unsecuredLoginStringClaim_sub=access.user)
            else:
                login = jaas(access.mechanism, username=access.user, password=self._password(access))
            properties["sasl.jaas.config"] = login
        return properties

    def confluent_properties(self, access: Access) -> dict[str, str]:
        """The same for librdkafka (confluent-kafka)."""
        self._require(access)
        properties = {"security.protocol": access.protocol}
        if access.protocol.endswith("SSL") and self.authority is not None:
            properties["ssl.ca.location"] = str(self.authority.certificate_pem)
            if self.mutual_tls and access.protocol == "SSL":
                mine = self.authority.issue(access.user)
                properties["ssl.certificate.location"] = str(mine.certificate_pem)
                properties["ssl.key.location"] = str(mine.key_pem)
        if access.protocol.startswith("SASL"):
            properties["sasl.mechanism"] = access.mechanism
            if access.mechanism == "OAUTHBEARER":
                properties["enable.sasl.oauthbearer.unsecure.jwt"] = "true"
                properties["sasl.oauthbearer.config"] = f"principal={access.user}"
            else:
                properties |= {"sasl.username": access.user, "sasl.password": self._password(access)}
        return properties

    def _password(self, access: Access) -> str:
        return access.password or self.users.get(access.user, "")

    def _require(self, access: Access) -> None:
        if access.protocol not in self.protocols:
            have = ", ".join(self.protocols)
            raise EmbeddedError(f"this cluster has no {access.protocol} listener", fix=f"It has {have}")
        if access.mechanism not in MECHANISMS:
            raise EmbeddedError(f"unknown SASL mechanism {access.mechanism}", fix=f"Use {', '.join(MECHANISMS)}")
