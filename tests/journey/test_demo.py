"""`heliograph demo --seconds N` as a newcomer runs it: two clusters, both directions, a copy that was checked."""

from __future__ import annotations

import re
from pathlib import Path

from tests.journey.demos import finished


def test_the_demo_ends_by_itself_and_has_compared_every_record(tmp_path: Path) -> None:
    said = finished(tmp_path, "--seconds", "5", "--rate", "1600", at_least=4_000)
    assert re.search(r"^us->eu: [1-9]", said, re.MULTILINE)
    assert re.search(r"^eu->us: [1-9]", said, re.MULTILINE)
