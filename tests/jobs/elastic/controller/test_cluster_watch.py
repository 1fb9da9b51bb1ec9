"""Reading all nodes and pods, with API servers that fail in different ways."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from jobs.elastic.controller.cluster_watch import ClusterWatch
from jobs.operator.client.api import Refusal
from jobs.operator.client.resources import ALL_PODS, NODES
from tests.jobs.operator.api_servers import FaithfulServer, LivingServer, RefusingServer
from tests.waiting import until

Server = TypeVar("Server", bound=FaithfulServer)
Follow = Callable[[FaithfulServer], ClusterWatch]


@pytest.fixture
def follow() -> Iterator[Follow]:
    """Return a function that starts a watch of a server. All watches are stopped after the test."""
    begun: list[ClusterWatch] = []

    def begin(server: FaithfulServer) -> ClusterWatch:
        begun.append(ClusterWatch(server))
        begun[-1].follow()
        return begun[-1]

    yield begin
    for watch in begun:
        watch.end()


def with_node(server: Server) -> Server:
    status = {"allocatable": {"cpu": "2"}, "conditions": [{"type": "Ready", "status": "True"}]}
    FaithfulServer.call(server, "POST", NODES.path(), {"metadata": {"name": "n1"}, "spec": {}, "status": status})
    return server


def make_pod(server: FaithfulServer, name: str, cpu: str = "1") -> None:
    spec = {"containers": [{"resources": {"requests": {"cpu": cpu}}}], "nodeName": "n1"}
    server.call("POST", ALL_PODS.path("shop"), {"metadata": {"name": name}, "spec": spec})


def seen(watch: ClusterWatch) -> dict[str, int]:
    state = watch.follow()
    return {} if state is None else {pod.name: pod.needs.cpu for pod in state.pods}


def test_a_single_read_lists_nodes_and_pods() -> None:
    server = with_node(FaithfulServer())
    make_pod(server, "web")
    state = ClusterWatch(server).look()
    assert state is not None
    assert [node.allocatable.cpu for node in state.nodes] == [2000]
    assert [(pod.name, pod.node, pod.needs.cpu) for pod in state.pods] == [("web", "n1", 1000)]


def test_changes_are_followed(follow: Follow) -> None:
    server = with_node(LivingServer())
    make_pod(server, "first")
    watch = follow(server)
    until("it knows what is there", lambda: seen(watch) == {"first": 1000}, 10)
    make_pod(server, "second", "500m")
    until("it has heard of a new pod", lambda: seen(watch) == {"first": 1000, "second": 500}, 10)
    server.drop("Pod", "shop", "first")
    until("it has heard of one that went", lambda: seen(watch) == {"second": 500}, 10)


def refusing(status: int) -> FaithfulServer:
    return with_node(RefusingServer(Refusal(status, "No"), lambda method, kind: (method, kind) == ("GET", "Pod")))


def test_a_refused_read_is_reported_as_forbidden(follow: Follow) -> None:
    watch = ClusterWatch(refusing(403))
    assert watch.look() is None
    assert watch.forbidden
    followed = follow(refusing(403))
    until("it was reported", lambda: followed.forbidden, 10)
    assert followed.follow() is None


def test_while_the_server_does_not_answer_nothing_is_known_and_nothing_is_forbidden() -> None:
    watch = ClusterWatch(refusing(0))
    assert watch.look() is None
    assert not watch.forbidden


def test_a_server_that_falls_silent_after_it_was_listed_is_not_believed_for_long(follow: Follow) -> None:
    server = with_node(BreakingServer())
    watch = follow(server)
    until("it knows what is there", lambda: watch.follow() is not None, 10)
    server.broken = True
    until("it knows that it knows nothing", lambda: watch.follow() is None, 20)
    server.broken = False
    until("it knows again", lambda: watch.follow() is not None, 30)


@pytest.mark.parametrize("damaged", [{}, {"type": "MODIFIED"}, {"type": "ADDED", "object": {"metadata": None}}])
def test_an_event_that_cannot_be_read_ends_no_watch_for_good(follow: Follow, damaged: dict[str, Any]) -> None:
    server = with_node(DamagingServer(damaged))
    watch = follow(server)
    until("it knows what is there", lambda: watch.follow() is not None, 10)
    server.damages = True
    until("it knows that it knows nothing", lambda: watch.follow() is None, 20)
    server.damages = False
    make_pod(server, "new")
    until("it knows again", lambda: seen(watch) == {"new": 1000}, 30)


def test_once_it_is_ended_its_threads_end(follow: Follow) -> None:
    before = set(threading.enumerate())
    watch = follow(with_node(FaithfulServer()))
    followers = set(threading.enumerate()) - before
    assert followers
    watch.end()
    until("all of them have ended", lambda: not followers & set(threading.enumerate()), 10)


class BreakingServer(FaithfulServer):
    """A server whose watches break while ``broken`` is set."""

    broken = False

    def watch(self, *arguments: Any) -> Any:
        if self.broken:
            raise Refusal(0, "BrokenWatch", "the connection was reset")
        return super().watch(*arguments)


class DamagingServer(FaithfulServer):
    """A server whose watches send an unreadable event while ``damages`` is set."""

    def __init__(self, event: dict[str, Any]) -> None:
        super().__init__()
        self.event, self.damages = event, False

    def watch(self, *arguments: Any) -> Any:
        if self.damages:
            yield self.event
        yield from super().watch(*arguments)
