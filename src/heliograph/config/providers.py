"""Config providers: `${env:NAME}`, `${file:/path:key}`, `${dir:/path:name}` in values, as Kafka's own classes answer.

Answers for which providers a file declares, their parameters, and replacing expressions. What cannot be looked up is
left as it is written, as in MM2, and said. A provider that fails (a file that cannot be read) is a problem of the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from heliograph.config import properties, values
from heliograph.javaregex import java_regex

# Kafka's own pattern: provider, optional path, key; no `}` in any of them.
EXPRESSION = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")
PACKAGE = "org.apache.kafka.common.config.provider."
OURS = ", ".join(f"{PACKAGE}{name}ConfigProvider" for name in ("EnvVar", "File", "Directory"))


class ProviderProblem(Exception):
    """Words that can follow `key = value: `."""


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
            entry = properties.parse(file.read_bytes()).entries.get(key)
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
            return file.read_text(encoding="utf-8") if file.is_file() else None
        except (OSError, ValueError) as problem:
            raise ProviderProblem(f"{folder / key} cannot be read: {_why(problem)}") from problem


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
        if self._withheld:
            return Replaced(text, False, withheld=any(match[1] in self._known for match in EXPRESSION.finditer(text)))
        left: list[str] = []
        given: list[str] = []

        def one(match: re.Match[str]) -> str:
            provider = self._known.get(match[1])
            found = provider.look_up(match[3] or "", match[4]) if provider else None
            if found is None:
                left.append(match[0])
                return match[0]
            given.append(found)
            return found

        replaced = EXPRESSION.sub(one, text)
        return Replaced(replaced, bool(given), tuple(left), tuple(given))


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
