"""`heliograph demo --seconds N` as a newcomer runs it: two clusters, both directions, a copy that was checked."""

from __future__ import annotations

import re
from pathlib import Path

from tests.journey.demos import finished

ROW = r"^\d\d:\d\d:\d\d  {} +running +[\d,]+ +\d+\.\d +[\d,]+ +\d[\d.]*(ms|s) +(\d[\d.]*(ms|s)|-)$"


def test_the_demo_ends_by_itself_and_has_compared_every_record(tmp_path: Path) -> None:
    said, steps = finished(tmp_path, "--seconds", "5", "--rate", "1600", "--report-seconds", "1", at_least=4_000)
    for flow in ("us->eu", "eu->us"):
        assert re.search(rf"^{flow}: [1-9]", said, re.MULTILINE)
        assert re.search(ROW.format(flow), said, re.MULTILINE), said
    assert re.search(r"^time +flow +state +records/s +MB/s +lag +behind +p99$", said, re.MULTILINE)
    assert "{" not in said, "JSON that nobody asked for"
    for step in ("Java", "Kafka's jars", "cluster us at", "cluster eu at", "Spark and both flows"):
        assert re.search(rf"^✓ {step}.* \(\d+\.\d s\)$", steps, re.MULTILINE), steps
