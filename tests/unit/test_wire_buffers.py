"""Large buffers: used again, never under anybody's eyes, and not kept for ever."""

from __future__ import annotations

import random

import numpy as np

from heliograph.wire.buffers import SPARE, Buffers


def held_bytes(buffers: Buffers) -> int:
    return sum(map(len, buffers._known))


def test_a_buffer_is_used_again_when_its_last_view_is_gone() -> None:
    buffers = Buffers()
    first = buffers.take(100_000)
    first[:] = b"1" * 100_000
    part = first[10:20].toreadonly()
    del first
    second = buffers.take(100_000)
    second[:] = b"2" * 100_000
    assert bytes(part) == b"1" * 10
    home = part.obj
    del part
    del second
    del home
    again = {id(buffers.take(100_000).obj) for _ in range(10)}
    assert len(again) == 1
    assert held_bytes(buffers) < 3 * 112_500


def test_an_array_is_a_view_too() -> None:
    buffers = Buffers()
    array = np.frombuffer(buffers.take(70_000), np.uint8)
    assert not np.shares_memory(array, np.frombuffer(buffers.take(70_000), np.uint8))


def test_views_of_any_order_never_see_another_frame() -> None:
    chance = random.Random(4)
    buffers = Buffers()
    alive: list[tuple[memoryview, int]] = []
    for mark in range(3_000):
        size = chance.choice((1_000, 70_000, 100_000, 300_000))
        view = buffers.take(size)
        assert len(view) == size
        view[:] = bytes([mark % 251]) * size
        alive.append((view, mark % 251))
        del view
        while len(alive) > chance.randrange(8):
            alive.pop(chance.randrange(len(alive)))
        for each, expected in alive:
            assert each[0] == each[-1] == each[len(each) // 2] == expected


def test_what_nobody_uses_is_let_go() -> None:
    buffers = Buffers()
    views = [buffers.take(1_000_000) for _ in range(20)]
    del views
    buffers.take(1_000_000)
    assert len(buffers._known) <= SPARE + 1
    for _ in range(600):
        buffers.take(70_000)
    assert held_bytes(buffers) < 400_000
