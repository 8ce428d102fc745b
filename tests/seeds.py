"""Configurations as other people wrote them down ("seeds"): prose with files in it, which tests cut out of the text.

The seeds are not part of the repository. They are looked for in the folder that HELIOGRAPH_SEEDS names, by default
`../shared/seeds` beside the repository. `tests/data/seeds` has configurations of the same shape and size in our own
words, which are tested where the seeds are not at hand (HELIOGRAPH_SEEDS=/nowhere for these).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
FOLDER = Path(os.environ.get("HELIOGRAPH_SEEDS") or REPOSITORY.parent / "shared" / "seeds")
OWN = Path(__file__).parent / "data" / "seeds"
_BLOCK = re.compile(r"^```[a-z]*[ \t]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def seeds_or(*own: str, seeds: tuple[str, ...]) -> list[str]:
    """Which of them to test: "seed 001" for the seed of that number."""
    there = all(any(FOLDER.glob(f"{seed.split()[1]}_*.txt")) for seed in seeds)
    return list(seeds if there else own)


def text_of(number: str) -> str:
    """A seed's whole text, by the number that its file's name begins with."""
    found = sorted(FOLDER.glob(f"{number}_*.txt"))
    if not found:
        pytest.skip(f"seed {number} is not in {FOLDER}: set HELIOGRAPH_SEEDS to the folder that has it")
    return found[0].read_text(encoding="utf-8")


def block(text: str, *words: str) -> str:
    """The one fenced block that holds all of these words."""
    (found,) = [one for one in _BLOCK.findall(text) if all(word in one for word in words)]
    return str(found)
