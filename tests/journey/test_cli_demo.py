"""`heliograph demo` stopped by Ctrl-C: within 5 s, with nothing left. (That it checks its copy is in test_demo.)"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.journey.demos import interrupted


@pytest.mark.parametrize("moment", ["cluster us at", "first record mirrored"])
def test_ctrl_c_ends_a_demo_and_leaves_nothing(moment: str, tmp_path: Path) -> None:
    interrupted(tmp_path, "--partitions", "2", "--rate", "300", moment=moment, clusters="ue")
