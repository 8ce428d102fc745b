"""Whether credentials that somebody else gave may go where a configuration sends them. Pure.

Two kinds of credentials are not known to the author of a connector's JSON: the worker's own, which a connector
inherits, and those stored in the connector, which the API shows as `***`. Both stay with the address that they were
given for: who changes where they are sent, or how they are protected on the way (DESTINATION), gives them again.

A config provider's expression (`${file:…}`) is no secret: an admin may write it into any configuration, and
`param.allowed.paths` of the worker's file bounds what it reads.
"""

from __future__ import annotations

from collections.abc import Mapping

from heliograph.config import connector_keys, providers

MASK = "***"
# What decides who gets to read a secret: the address, the encryption, and how the other side is known.
DESTINATION = (
    *("bootstrap.servers", "security.protocol", "sasl.mechanism", "sasl.oauthbearer.token.endpoint.url"),
    *("ssl.endpoint.identification.algorithm", "ssl.truststore.location", "ssl.truststore.certificates"),
)
_DEFAULTS = {"security.protocol": "PLAINTEXT", "ssl.endpoint.identification.algorithm": "https"}
CREDENTIALS = ("sasl.", "ssl.keystore.", "ssl.key.")
BOTH = frozenset({"source", "target"})
_SIDES = {"source": {"source"}, "consumer": {"source"}, "target": {"target"}, "producer": {"target"}}


class SecretsNotKept(Exception):
    """`secrets` would go elsewhere than they were given for, since `changed` changed."""

    def __init__(self, changed: list[str], secrets: list[str]) -> None:
        super().__init__(
            f"{', '.join(changed)} changed: hidden secrets are not sent elsewhere than they were given for; give "
            f"{', '.join(secrets)} again"
        )


def masked(config: Mapping[str, str | None]) -> dict[str, str | None]:
    """Fit to be seen: secrets and values of unknown keys hidden, unless a provider's expression stands there."""
    return {k: MASK if _is_hidden(k, v) else v for k, v in config.items()}


def unmasked(new: Mapping[str, str | None], stored: Mapping[str, str | None]) -> dict[str, str | None]:
    """`***` that comes back (somebody edited what we showed) stands for what is stored. Raises SecretsNotKept."""
    kept = [k for k, v in new.items() if v == MASK and _is_hidden(k, stored.get(k))]
    _require_same_destination({k: v for k, v in new.items() if k not in kept}, stored, kept)
    return {k: stored[k] if k in kept else v for k, v in new.items()}


def patched(change: Mapping[str, str | None], stored: Mapping[str, str | None]) -> dict[str, str]:
    """A stored configuration with some keys changed, or removed (None). Raises SecretsNotKept."""
    change = {k: v for k, v in change.items() if not (v == MASK and _is_hidden(k, stored.get(k)))}
    merged = {k: v for k, v in {**stored, **change}.items() if v is not None}
    _require_same_destination(merged, stored, [k for k in merged if k not in change and _is_hidden(k, stored.get(k))])
    return merged


def withheld(inherited: Mapping[str, str], override: Mapping[str, str]) -> tuple[str, ...]:
    """The credentials that a client with this override does not inherit; all of them bare keys."""
    return tuple(sorted(filter(_is_credential, inherited))) if moved(inherited, override) else ()


def moved(inherited: Mapping[str, str], override: Mapping[str, str]) -> tuple[str, ...]:
    """The bare keys by which the override decides anew who gets to read a secret."""
    return tuple(key for key in DESTINATION if key in override and _value(override, key) != _value(inherited, key))


def _require_same_destination(new: Mapping[str, str | None], stored: Mapping[str, str | None], kept: list[str]) -> None:
    names = {k for k in (*new, *stored) if k.endswith(DESTINATION)}
    changed = sorted(k for k in names if _value(new, k) != _value(stored, k))
    sides = frozenset().union(*map(_sides, changed)) if changed else frozenset[str]()
    lost = sorted(k for k in kept if _sides(k) & sides)
    if lost:
        raise SecretsNotKept([k for k in changed if any(_sides(k) & _sides(one) for one in lost)], lost)


def _sides(key: str) -> frozenset[str]:
    """Whose connections a key concerns; of `admin.` and bare keys: any."""
    return frozenset(_SIDES.get(key.partition(".")[0], BOTH))


def _value(config: Mapping[str, str | None], key: str) -> str:
    """What counts: unset is not empty, where empty turns a check off."""
    value = config.get(key)
    default = next((text for name, text in _DEFAULTS.items() if key.endswith(name)), "")
    return default if value is None else value.strip()


def _is_hidden(key: str, value: str | None) -> bool:
    return bool(value) and not connector_keys.is_shown(key) and not providers.is_expression((value or "").strip())


def _is_credential(key: str) -> bool:
    return key.startswith(CREDENTIALS) and key not in DESTINATION
