"""Events made up: the nth of a seed is always the same, to the byte, whoever makes it and in which order. Pure.

They are there to be seen and counted: each carries its number, keys come back in uneven shares as customers do, sizes
and headers are as told. A time is not part of an event; the producer gives it one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from heliograph.batch.records import Headers

Shape = Literal["json", "text", "binary"]

BLOCK_BYTES = 64 << 10  # of filling, made once a seed: events take their text from anywhere in it
KINDS = ("order", "payment", "click", "delivery", "return")
_WORDS = 2000
_HOT = 3  # how uneven the shares of keys are: the first tenth of them gets about half of the events


@dataclass(frozen=True, slots=True)
class Recipe:
    seed: int = 0
    sizes: tuple[int, int] = (100, 100)  # of values, in bytes, both included
    keys: int = 100  # different ones; 0: none have a key
    headers: int = 0  # made up ones
    own_headers: Headers = ()  # of every event
    shape: Shape = "json"
    tombstones: float = 0.0  # the share of events without a value


class Event(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers


def event(recipe: Recipe, number: int) -> Event:
    dice = _Dice(f"{recipe.seed}:{number}")
    key = f"customer-{_hot(dice, recipe.keys)}" if recipe.keys else None
    size = recipe.sizes[0] + dice.below(recipe.sizes[1] - recipe.sizes[0] + 1)
    gone = dice.below(1 << 20) < recipe.tombstones * (1 << 20)
    made = tuple((f"header-{n}", f"{dice.below(1 << 20):05x}".encode()) for n in range(recipe.headers))
    value = None if gone else _value(recipe, number, key, size, dice)
    return Event(None if key is None else key.encode(), value, (*recipe.own_headers, *made))


def _hot(dice: _Dice, keys: int) -> int:
    share: float = dice.below(1 << 20) / (1 << 20)
    return int(keys * share**_HOT)


def _value(recipe: Recipe, number: int, key: str | None, size: int, dice: _Dice) -> bytes:
    at = dice.below(BLOCK_BYTES)
    if recipe.shape == "binary":
        return _cut(number.to_bytes(8, "big"), _noise(recipe.seed), at, size)
    if recipe.shape == "text":
        return _cut(f"event {number} ".encode(), _prose(recipe.seed), at, size)
    about = f',"customer":"{key}"' if key else ""
    head = f'{{"event":{number},"kind":"{KINDS[dice.below(len(KINDS))]}"{about},"cents":{dice.below(100_000)},"note":"'
    room = size - len(head) - 2
    if room < 0:  # too short for all that: the number alone, and blanks, which JSON does not mind
        return f'{{"event":{number}}}'.encode().ljust(size)
    return _cut(head.encode(), _prose(recipe.seed), at, size - 2) + b'"}'


def _cut(head: bytes, block: bytes, at: int, size: int) -> bytes:
    """`size` bytes: the head, and as much of the endless block from `at` on as it takes."""
    room = size - len(head)
    if room <= 0:
        return head[:size]
    at %= len(block)
    endless = block * ((at + room) // len(block) + 1) if at + room > len(block) else block
    return head + endless[at : at + room]


@lru_cache(maxsize=4)
def _prose(seed: int) -> bytes:
    """Packs like text: words that come again. Letters and blanks only, so it can stand in JSON."""
    raw = _noise(seed)
    letters = bytes(ord("a") + byte % 26 for byte in raw)
    words = [letters[at : at + 2 + raw[at] % 8] for at in range(0, _WORDS * 10, 10)]
    chosen = (words[int.from_bytes(raw[at : at + 2], "big") % _WORDS] for at in range(0, BLOCK_BYTES, 2))
    return b" ".join(chosen)[:BLOCK_BYTES]


@lru_cache(maxsize=4)
def _noise(seed: int) -> bytes:
    return hashlib.shake_128(f"{seed}".encode()).digest(BLOCK_BYTES)


class _Dice:
    """Numbers that follow from a text: a generator of Python's would cost more to seed than an event to make."""

    __slots__ = ("_pool", "_text", "_turn")

    def __init__(self, text: str) -> None:
        self._text, self._turn = text, 0
        self._pool = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=32).digest(), "big")

    def below(self, end: int) -> int:
        if self._pool < 1 << 64:
            self._turn += 1
            again = hashlib.blake2b(f"{self._text}/{self._turn}".encode(), digest_size=32)
            self._pool = int.from_bytes(again.digest(), "big")
        self._pool, found = divmod(self._pool, end)
        return found
