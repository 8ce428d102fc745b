"""What a configuration file comes down to: clusters, the flows between them, and what the reader should hear about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from heliograph.errors import ConfigError
from heliograph.types import Cluster, Flow


@dataclass(frozen=True, slots=True)
class Explained:
    """One effective value and where it came from. Secrets are masked before they get here."""

    key: str
    value: str
    line: int = 0  # 0: it is the default
    written: str = ""  # the key as it stands on that line
    provider: str = ""  # the expression that a config provider answered, as written

    @property
    def origin(self) -> str:
        if not self.line:
            return "default"
        return f"line {self.line}: {self.written}" + (f" = {self.provider}" if self.provider else "")


@dataclass(frozen=True, slots=True)
class Config:
    clusters: Mapping[str, Cluster]
    flows: tuple[Flow, ...]  # the enabled ones
    warnings: tuple[str, ...] = ()
    heartbeat_only: tuple[Flow, ...] = ()  # pairs that MM2 would write heartbeats for without copying anything
    explained: Mapping[str, tuple[Explained, ...]] = field(default_factory=dict)  # by flow name and by alias
    # TLS of `run --http`: `listeners.https.*` without that prefix. Never printed, for it holds a password.
    https: Mapping[str, str] = field(default_factory=dict, repr=False)

    def serving(self, targets: Sequence[str]) -> Config:
        """Only the flows into these clusters (`--clusters`, as MM2's own start script has it); none named: all."""
        if not targets:
            return self
        unknown = [alias for alias in targets if alias not in self.clusters]
        if unknown:
            raise ConfigError(
                f"--clusters names {', '.join(unknown)}, but the file declares only {', '.join(self.clusters)}"
            )
        flows = tuple(flow for flow in self.flows if flow.target.alias in targets)
        heartbeat_only = tuple(flow for flow in self.heartbeat_only if flow.target.alias in targets)
        if not flows and not heartbeat_only:
            running = ", ".join(flow.name for flow in self.flows)
            raise ConfigError(f"no enabled flow ends in {', '.join(targets)}: the file enables {running}")
        return replace(self, flows=flows, heartbeat_only=heartbeat_only)
