"""Config providers: `${env:NAME}`, `${file:/path:key}`, `${dir:/path:name}` in values, as Kafka's own classes answer.

Answers for which providers a file declares, their parameters, and replacing expressions. What cannot be looked up is
left as it is written, as in MM2, and said. A provider that fails (a file that cannot be read) is a problem of the file.

Values come from readers of the REST API too (`validate`), so finding expressions takes time linear in the value's
length, and what one value may ask for is bounded (MAX_VALUE_CHARS, MAX_EXPRESSIONS, MAX_FILE_BYTES).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from heliograph.config import properties, values
from heliograph.javaregex import java_regex

MAX_VALUE_CHARS = 1 << 20  # of a value with expressions, and of what replaces them; a bundle of certificates has 250 KB
MAX_EXPRESSIONS = 100  # in one value: each is a file to open
MAX_FILE_BYTES = 1 << 20  # of a file that a provider reads
PACKAGE = "org.apache.kafka.common.config.provider."
OURS = ", ".join(f"{PACKAGE}{name}ConfigProvider" for name in ("EnvVar", "File", "Directory"))


class ProviderProblem(Exception):
    """Words that can follow `key = value: `."""


@dataclass(frozen=True, slots=True)
class Expression:
    """`${provider:key}` or `${provider:path:key}`, and where it stands in the value."""

    provider: str
    path: str
    key: str
    start: int
    end: int  # behind the `}`


def expressions(text: str) -> Iterator[Expression]:
    """Those of a value, from left to right: what Kafka's `\\$\\{([^}]*?):(([^}]*?):)?([^}]*?)\\}` finds (a property
    test compares them). That pattern backtracks: 1,200 characters took it half a minute."""
    end = 0
    while (start := text.find("${", end)) >= 0:
        close = text.find("}", start + 2)
        if close < 0:
            return
        end = close + 1
        provider, colon, rest = text[start + 2 : close].partition(":")
        if colon:  # without one, nothing between `start` and `close` is an expression
            path, second, key = rest.partition(":")
            yield Expression(provider, *((path, key) if second else ("", rest)), start, end)


def is_expression(text: str) -> bool:
    """Whether the whole text is one."""
    found = next(expressions(text), None)
    return found is not None and (found.start, found.end) == (0, len(text))


class Provider(Protocol):
    def look_up(self, path: str, key: str) -> str | None:
        """None: there is no such key, or it is not permitted."""


class Environment:
    """`param.allowlist.pattern`: only variables whose name it matches in full."""

    def __init__(self, parameters: Mapping[str, str], environment: Mapping[str, str]) -> None:
        pattern = parameters.get("allowlist.pattern", "").strip()
        self._allowed = java_regex(pattern) if pattern else None
        self._environment = environment

    def look_up(self, path: str, key: str) -> str | None:
        if path:
            raise ProviderProblem(f"the environment has no path {path!r}: write the name of the variable alone")
        if self._allowed and not self._allowed.fullmatch(key):
            return None
        return self._environment.get(key)


class _Paths:
    """`param.allowed.paths`: only files below these."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._allowed = [Path(os.path.normpath(p)) for p in values.split(parameters.get("allowed.paths", ""))]
        relative = [str(path) for path in self._allowed if not path.is_absolute()]
        if relative:
            raise ValueError(f"allowed.paths has {relative[0]!r}, which is not absolute")

    def permitted(self, text: str) -> Path | None:
        path = Path(os.path.normpath(text))
        if self._allowed and not any(path.is_relative_to(allowed) for allowed in self._allowed):
            return None
        return path


class Files(_Paths):
    """A key of a properties file."""

    def look_up(self, path: str, key: str) -> str | None:
        file = self.permitted(path) if path else None
        if file is None:
            return None
        try:
            entry = properties.parse(_read(file)).entries.get(key)
        except (OSError, ValueError) as problem:
            raise ProviderProblem(f"{file} cannot be read: {_why(problem)}") from problem
        return entry.value if entry else None


class Directory(_Paths):
    """A file of a directory; its whole content is the value."""

    def look_up(self, path: str, key: str) -> str | None:
        folder = self.permitted(path) if path else None
        if folder is None or not key or os.sep in key or key in (".", ".."):
            return None
        try:
            file = folder / key
            return _read(file).decode() if file.is_file() else None
        except (OSError, ValueError) as problem:
            raise ProviderProblem(f"{folder / key} cannot be read: {_why(problem)}") from problem


def _read(file: Path) -> bytes:
    """A regular file, of at most MAX_FILE_BYTES: /dev/zero has no end, and a pipe may never answer."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ProviderProblem(f"{file} is not a regular file")
        data = opened.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ProviderProblem(f"{file} has more than {MAX_FILE_BYTES} bytes")
    return data


def _why(problem: OSError | ValueError) -> str:
    """Without a word of what is in the file."""
    if isinstance(problem, OSError):
        return problem.strerror or type(problem).__name__
    return "its text is not UTF-8, or has a \\u without four hexadecimal digits"


@dataclass(frozen=True, slots=True)
class Replaced:
    text: str
    provided: bool  # something was looked up
    left: tuple[str, ...] = ()  # the expressions that were not
    found: tuple[str, ...] = ()  # what was looked up, each
    withheld: bool = False  # something would have been, for others


class Providers:
    """The providers of one file, by the names that it gives them."""

    def __init__(self, known: Mapping[str, Provider], *, withheld: bool = False) -> None:
        self._known, self._withheld = known, withheld

    def withheld(self) -> Providers:
        """The same, that look nothing up: for those who may not know what is there, nor by its effects."""
        return Providers(self._known, withheld=True)

    def replace(self, text: str) -> Replaced:
        """Raises ProviderProblem."""
        if len(text) > MAX_VALUE_CHARS:
            raise ProviderProblem(f"has {len(text)} characters: a value with ${{…}} may have {MAX_VALUE_CHARS}")
        if self._withheld:
            return Replaced(text, False, withheld=any(one.provider in self._known for one in expressions(text)))
        left: list[str] = []
        given: list[str] = []
        pieces: list[str] = []
        behind, looked_up, length = 0, 0, len(text)
        for one in expressions(text):
            provider = self._known.get(one.provider)
            looked_up += provider is not None
            if looked_up > MAX_EXPRESSIONS:
                raise ProviderProblem(f"has more than {MAX_EXPRESSIONS} expressions to look up")
            found = provider.look_up(one.path, one.key) if provider else None
            if found is None:
                left.append(text[one.start : one.end])
                continue
            given.append(found)
            length += len(found)
            if length > MAX_VALUE_CHARS:
                raise ProviderProblem(f"what its expressions stand for has more than {MAX_VALUE_CHARS} characters")
            pieces += (text[behind : one.start], found)
            behind = one.end
        pieces.append(text[behind:])
        return Replaced("".join(pieces), bool(given), tuple(left), tuple(given))


@dataclass(frozen=True, slots=True)
class Complaint:
    key: str
    why: str
    fatal: bool  # MM2 would not start either


def declared(texts: Mapping[str, str], environment: Mapping[str, str]) -> tuple[Providers, list[Complaint]]:
    """The providers that a file declares. `texts`: its keys and values, as written."""
    known: dict[str, Provider] = {}
    complaints: list[Complaint] = []
    for name in values.split(texts.get("config.providers", "")):
        key, prefix = f"config.providers.{name}.class", f"config.providers.{name}.param."
        given = {k[len(prefix) :]: v for k, v in texts.items() if k.startswith(prefix)}
        try:
            match texts.get(key, "").strip().removeprefix(PACKAGE):
                case "EnvVarConfigProvider":
                    known[name] = Environment(given, environment)
                case "FileConfigProvider":
                    known[name] = Files(given)
                case "DirectoryConfigProvider":
                    known[name] = Directory(given)
                case "":
                    complaints.append(Complaint("config.providers", f"{key} is missing: write one of {OURS}", True))
                case _:
                    why = f"a Java class that cannot be loaded here; there are {OURS}"
                    complaints.append(Complaint(key, why, False))
        except ValueError as problem:
            complaints.append(Complaint(key, f"its parameters: {problem}", True))
    return Providers(known), complaints
