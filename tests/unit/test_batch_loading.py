"""Kernels that cannot be loaded: said, and tried again; never a thread that is gone without a word."""

from __future__ import annotations

import threading

import pytest

from heliograph.batch import loading
from tests.kit import wait_until


def test_loading_that_fails_is_said_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels, ended = loading._Kernels(), []
    monkeypatch.setattr(loading, "_kernels", kernels)
    monkeypatch.setattr(threading, "excepthook", lambda args: ended.append(args.exc_value))
    tries: list[int] = []

    def fail() -> None:
        tries.append(1)
        raise OSError("No space left on device")

    monkeypatch.setattr(kernels, "load", fail)
    assert not loading.ready()
    wait_until(lambda: len(ended) == 1, what="the failure")
    assert isinstance(ended[0], OSError)
    assert not loading.ready()  # not at once
    assert len(tries) == 1
    kernels.again_at = 0.0
    monkeypatch.setattr(kernels, "load", lambda: setattr(kernels, "there", True))
    loading.ready()
    wait_until(loading.ready, what="the kernels")


def test_a_process_without_threads_goes_on_without_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = loading._Kernels()
    monkeypatch.setattr(loading, "_kernels", kernels)

    def fail(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    assert not loading.ready()
    assert not kernels.begun
