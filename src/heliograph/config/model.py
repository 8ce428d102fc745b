"""What a configuration file comes down to: clusters, the flows between them, and what the reader should hear about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from heliograph.errors import ConfigError
from heliograph.types import Cluster, Flow


@dataclass(frozen=True, slots=True)
class Config:
    clusters: Mapping[str, Cluster]
    flows: tuple[Flow, ...]  # the enabled ones
    warnings: tuple[str, ...] = ()

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
        if not flows:
            running = ", ".join(flow.name for flow in self.flows)
            raise ConfigError(f"no enabled flow ends in {', '.join(targets)}: the file enables {running}")
        return replace(self, flows=flows)
