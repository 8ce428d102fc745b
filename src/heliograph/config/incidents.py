"""What a flow is told to do about gaps, losses and refusals: `on.*` read together.

Answers for policies that contradict each other. What each of them does is up to `mirror.incident_handler` and the
coordinator, which values a key may hold is up to the table.
"""

from __future__ import annotations

from typing import Any

from heliograph.config.reader import Reader
from heliograph.config.views import View
from heliograph.types import Policies

# field of Policies -> key
KEYS = {
    "gap": "on.gap",
    "recreated": "on.source.recreated",
    "truncated": "on.source.truncated",
    "target_lost": "on.target.lost",
    "refused": "on.refused",
}


def policies_of(view: View, reader: Reader) -> Policies:
    plain = Policies()
    chosen: dict[str, Any] = {field: reader.choice(view, key, getattr(plain, field)) for field, key in KEYS.items()}
    policies = Policies(**chosen)
    if policies.gap == "stop" and policies.target_lost == "restart":
        # Begun anew, the copy holds what the source still has; what retention took of it is passed over without a stop.
        reader.report.refuse(
            view["on.target.lost"].entry,
            f"contradicts on.gap = stop (line {view['on.gap'].entry.line}): a copy that is made anew begins at what "
            f"retention left, which is a gap. Set on.target.lost = stop, or on.gap = skip",
        )
    return policies
