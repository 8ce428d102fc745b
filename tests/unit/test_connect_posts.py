"""One connector on a node: begun, paused, stopped, restarted, failed and tried again; its old work ends before new."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from heliograph.connect import posts
from heliograph.connect.posts import Post, PostLook, Room, Wanted
from heliograph.connect.works import TaskLook, WorkLook
from heliograph.errors import FlowError, HeliographError
from heliograph.types import Cluster, Flow
from tests.kit import wait_until

FLOW = Flow(Cluster("a"), Cluster("b"), label="one")


class FakeWork:
    """Keeps what was done to it, and to all, in order."""

    def __init__(self, flow: Flow, said: list[str], failures: list[HeliographError]) -> None:
        self._said, self._failures = said, failures
        self._topics = ",".join(flow.topics)
        self.seen = WorkLook(tasks=(TaskLook(),))
        self.wrong: HeliographError | None = None

    def check(self) -> None:
        if self.wrong is not None:
            raise self.wrong

    def begin(self, *, paused: bool) -> None:
        self._said.append(f"begin {self._topics}" + (" paused" if paused else ""))
        if self._failures:
            raise self._failures.pop()

    def pause(self, paused: bool) -> None:
        self._said.append("pause" if paused else "go on")

    def take_up(self, flow: Flow) -> bool:
        if "alive" not in flow.topics:
            return False
        self._said.append("take up")
        return True

    def end(self) -> None:
        self._said.append(f"end {self._topics}")

    def look(self) -> WorkLook:
        return self.seen


class Scene:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.failures: list[HeliographError] = []
        self.works: list[FakeWork] = []
        self.posts: list[Post] = []
        self.room = Room(1)
        self.wrong: HeliographError | None = None  # with the clusters

    def make(self, flow: Flow) -> FakeWork:
        self.works.append(FakeWork(flow, self.said, self.failures))
        self.works[-1].seen = WorkLook(starting="slow" in flow.topics, tasks=(TaskLook(),))
        self.works[-1].wrong = self.wrong
        return self.works[-1]

    def post(self, wanted: Wanted, name: str = "one") -> Post:
        self.posts.append(Post(name, self.make, wanted, self.room))
        return self.posts[-1]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(posts, "AGAIN_FIRST_S", 0.05)
    monkeypatch.setattr(posts, "LOOK_EVERY_S", 0.02)
    scene = Scene()
    yield scene
    for post in scene.posts:
        post.leave()
        post.join(5)
        assert post.gone


def shows(post: Post, state: str, **more: str) -> Callable[[], bool]:
    def holds() -> bool:
        look: PostLook = post.look()
        return look.state == state and all(word in getattr(look, name) for name, word in more.items())

    return holds


def test_it_runs_and_ends(scene: Scene) -> None:
    post = scene.post(Wanted(FLOW))
    wait_until(shows(post, "RUNNING"))
    assert post.look().work.tasks == (TaskLook(),)
    post.leave()
    wait_until(lambda: post.gone)
    assert scene.said == ["begin .*", "end .*"]


def test_pausing_is_a_word_and_stopping_is_the_end(scene: Scene) -> None:
    wanted = Wanted(FLOW)
    post = scene.post(wanted)
    wait_until(shows(post, "RUNNING"))
    post.want(replace(wanted, target="PAUSED"))
    wait_until(shows(post, "PAUSED"))
    post.want(wanted)
    wait_until(shows(post, "RUNNING"))
    post.want(replace(wanted, target="STOPPED"))
    wait_until(shows(post, "STOPPED"))
    assert post.look().work.tasks == ()
    post.want(replace(wanted, target="PAUSED"))
    wait_until(shows(post, "PAUSED"))
    assert scene.said == ["begin .*", "pause", "go on", "end .*", "begin .* paused"]


def test_another_configuration_or_a_restart_begins_anew_after_the_old_has_ended(scene: Scene) -> None:
    post = scene.post(Wanted(FLOW))
    wait_until(shows(post, "RUNNING"))
    post.want(Wanted(replace(FLOW, topics=("t",))))
    wait_until(lambda: "begin t" in scene.said)
    post.want(Wanted(replace(FLOW, topics=("t",)), restarts=7))
    wait_until(lambda: scene.said.count("begin t") == 2)
    assert scene.said == ["begin .*", "end .*", "begin t", "end t", "begin t"]


def test_what_can_be_taken_up_as_it_goes_is(scene: Scene) -> None:
    post = scene.post(Wanted(FLOW))
    wait_until(shows(post, "RUNNING"))
    post.want(Wanted(replace(FLOW, topics=("alive",))))
    wait_until(lambda: "take up" in scene.said)
    post.want(Wanted(replace(FLOW, topics=("alive",)), restarts=3))
    wait_until(lambda: "begin alive" in scene.said)
    assert scene.said == ["begin .*", "take up", "end .*", "begin alive"]


def test_what_fails_is_shown_and_tried_again(scene: Scene) -> None:
    scene.failures += [FlowError("nobody is there", fix="look"), FlowError("nobody is there", fix="look")]
    post = scene.post(Wanted(FLOW))
    wait_until(shows(post, "FAILED", trace="FLOW: nobody is there. look"))
    wait_until(shows(post, "RUNNING"))
    assert scene.said == ["begin .*", "end .*"] * 2 + ["begin .*"]


def test_a_configuration_that_makes_no_flow_is_failed_until_there_is_another(scene: Scene) -> None:
    post = scene.post(Wanted(None, "topics is wrong"))
    wait_until(shows(post, "FAILED", trace="topics is wrong"))
    assert scene.said == []
    post.want(Wanted(FLOW))
    wait_until(shows(post, "RUNNING"))


def test_what_goes_wrong_later_is_in_its_state(scene: Scene) -> None:
    post = scene.post(Wanted(FLOW))
    wait_until(shows(post, "RUNNING"))
    scene.works[0].seen = WorkLook("the query ended", restarting=True)
    wait_until(shows(post, "RESTARTING", trace="the query ended"))
    scene.works[0].seen = WorkLook("it is over")
    wait_until(shows(post, "FAILED", trace="it is over"))
    scene.works[0].seen = WorkLook(trouble="no heartbeats")
    wait_until(shows(post, "RUNNING", trace="no heartbeats"))


def test_a_configuration_that_makes_no_flow_keeps_its_reason_when_it_is_paused(scene: Scene) -> None:
    wanted = Wanted(None, "topics is wrong")
    post = scene.post(wanted)
    wait_until(shows(post, "FAILED", trace="topics is wrong"))
    post.want(replace(wanted, target="PAUSED"))
    wait_until(lambda: post._of is not None and post._of.target == "PAUSED", what="the word taken")
    assert shows(post, "FAILED", trace="topics is wrong")()
    post.want(Wanted(FLOW, target="PAUSED"))
    wait_until(shows(post, "PAUSED"))
    assert scene.said == ["begin .* paused"]


def test_an_end_that_fails_is_not_the_end_of_the_post(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(_: FakeWork) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(FakeWork, "end", explode)
    monkeypatch.setattr(FakeWork, "look", explode)
    post = scene.post(Wanted(FLOW))
    wait_until(shows(post, "FAILED", trace="INTERNAL: RuntimeError: a fault of ours"))
    wait_until(lambda: scene.said.count("begin .*") > 1, what="another try")
    assert not post.gone
    monkeypatch.undo()
    monkeypatch.setattr(posts, "LOOK_EVERY_S", 0.02)
    wait_until(shows(post, "RUNNING"))


def test_one_that_begins_is_waited_for_and_who_waits_can_be_told_otherwise(scene: Scene) -> None:
    """Invariant c."""
    first = scene.post(Wanted(replace(FLOW, topics=("slow",))), "first")
    wait_until(lambda: scene.said == ["begin slow"])
    wanted = Wanted(replace(FLOW, topics=("t",)))
    second = scene.post(wanted, "second")
    wait_until(shows(second, "UNASSIGNED", trace="waits until others"))
    second.want(replace(wanted, target="PAUSED"))
    wait_until(shows(second, "PAUSED", trace="waits until others"))
    second.want(replace(wanted, target="STOPPED"))
    wait_until(shows(second, "STOPPED"))
    second.want(wanted)
    third = scene.post(Wanted(FLOW), "third")
    wait_until(shows(third, "UNASSIGNED", trace="waits until others"))
    third.leave()
    wait_until(lambda: third.gone)
    wait_until(shows(second, "UNASSIGNED", trace="waits until others"))
    assert scene.said == ["begin slow"]
    scene.works[0].seen = WorkLook(tasks=(TaskLook(),))
    wait_until(shows(first, "RUNNING"))
    wait_until(shows(second, "RUNNING"))
    assert scene.said == ["begin slow", "begin t"]


def test_nobody_waits_for_one_that_ended_hangs_or_cannot_reach_its_cluster(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.wrong = FlowError("nobody is there")
    lost = scene.post(Wanted(replace(FLOW, topics=("slow",))), "lost")
    wait_until(shows(lost, "FAILED", trace="nobody is there"))
    scene.wrong = None
    lost.leave()
    slow = scene.post(Wanted(replace(FLOW, topics=("slow",))), "slow")
    wait_until(lambda: scene.said == ["begin slow"])
    after = scene.post(Wanted(FLOW), "after")
    wait_until(shows(after, "UNASSIGNED", trace="waits until others"))
    slow.leave()
    wait_until(shows(after, "RUNNING"))
    monkeypatch.setattr(posts, "BEGIN_S", 0.1)
    scene.post(Wanted(replace(FLOW, topics=("slow",))), "hangs")
    wait_until(lambda: scene.said.count("begin slow") == 2)
    wait_until(shows(scene.post(Wanted(FLOW), "last"), "RUNNING"))
