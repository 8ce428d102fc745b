"""KEY=VALUE arguments (`-X`, `--property`, `--setting`), and secrets that do not stand in them.

Every user of a machine can read the command lines of all processes, and shells keep them. So a secret's value may be
`file:PATH` (what is in the file, without its last line end) or `env:NAME`; one that stands there itself is warned
about.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from heliograph.cli.out import echo
from heliograph.errors import ConfigError
from heliograph.types import is_secret

HELP = "A secret's VALUE may be file:PATH or env:NAME: every user can read command lines."
MAX_SECRET_BYTES = 1 << 20
# Values of keys that end so are about a secret, and are none; some are URLs with file: of their own.
_NO_SECRETS = (".url", ".file", ".location", ".type", ".enabled", ".class", ".name", ".mechanism")


def pairs_of(
    given: Sequence[str], option: str, example: str = "", *, environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Raises click.BadParameter and ConfigError, neither of which shows a value."""
    environment = os.environ if environment is None else environment
    found = {}
    for one in given:
        key, sign, value = one.partition("=")
        key, value = key.strip(), value.strip()
        if not sign or not key:
            hint = f", e.g. {example}" if example else ""
            raise click.BadParameter(f"{key[:40]!r} is not KEY=VALUE{hint}", param_hint=option)
        found[key] = _value(key, value, option, environment)
    return found


def _value(key: str, value: str, option: str, environment: Mapping[str, str]) -> str:
    if value.startswith("env:"):
        name = value.removeprefix("env:")
        if name not in environment:
            raise ConfigError(f"{option} {key}: there is no environment variable {name}")
        return environment[name]
    if not is_secret(key) or key.endswith(_NO_SECRETS):
        return value
    if value.startswith("file:"):
        return _content(key, Path(value.removeprefix("file:").removeprefix("//")), option)
    if value and not value.startswith("${"):
        echo(
            f"warning: {option} {key}: a secret in a command line can be read by every user of this machine: write "
            f"{key}=file:PATH or {key}=env:NAME",
            err=True,
        )
    return value


def _content(key: str, path: Path, option: str) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SECRET_BYTES + 1)
        if len(data) > MAX_SECRET_BYTES:
            raise ValueError(f"it has more than {MAX_SECRET_BYTES} bytes")
        if not data.strip():  # the file is half written, or the wrong one
            raise ValueError("it is empty")
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        why = "it is not text"
    except (OSError, ValueError) as problem:
        why = (problem.strerror if isinstance(problem, OSError) else None) or str(problem)
    raise ConfigError(f"{option} {key}: {path} cannot be read: {why}")
