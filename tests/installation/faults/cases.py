"""The faults: what is done to the installation, and what it costs at most."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.installation import upgrades
from tests.installation.faults.scene import Scene
from tests.installation.installation import SYSTEM

# How long a server is away, in seconds.
_AWAY, _HALF_OPEN = 60.0, 300.0
_AGENTS_PORT = 8001


@dataclass(frozen=True)
class Fault:
    """``harm`` returns when the fault is over. ``may_refuse``: the API may answer 503 until it is over."""

    name: str
    harm: Callable[[Scene], None]
    may_refuse: bool = False
    needs_node: bool = False


def _restart_web(scene: Scene) -> None:
    scene.kubectl("-n", SYSTEM, "rollout", "restart", "deployment/portal-web")
    scene.kubectl("-n", SYSTEM, "rollout", "status", "deployment/portal-web", "--timeout=5m")


def _upgrade(scene: Scene) -> None:
    upgrades.to(scene.installation, "0.2.0")


def _rotate(scene: Scene) -> None:
    section = scene.installation.page.section("Rotate secrets")
    scene.installation.run(section.command("--rotate secrets.json"))
    scene.installation.run("bash rotate.sh && cp new-secrets.json secrets.json")


def _stop_database(scene: Scene) -> None:
    scene.scaled_to("statefulset/postgresql", 0)
    scene.hold(_AWAY)
    scene.scale("statefulset/postgresql", 1)


def _kill_trainer_without_database(scene: Scene) -> None:
    scene.scaled_to("statefulset/postgresql", 0)
    scene.kill_replica("trainer-0")
    scene.hold(_AWAY)
    scene.scale("statefulset/postgresql", 1)


def _lose_quorum(scene: Scene) -> None:
    scene.scaled_to("statefulset/etcd", 1)
    scene.hold(_AWAY)
    scene.scale("statefulset/etcd", 3)


def _stop_redis(scene: Scene) -> None:
    scene.scaled_to("deployment/redis", 0)
    scene.hold(_AWAY)
    scene.scale("deployment/redis", 1)


def _stop_gateways(scene: Scene) -> None:
    scene.scaled_to("deployment/coordination-gateway", 0)
    scene.hold(_AWAY)
    scene.scale("deployment/coordination-gateway", 2)


def _drop(policy: str, seconds: float) -> Callable[[Scene], None]:
    def harm(scene: Scene) -> None:
        scene.drop_traffic_to(policy)
        scene.hold(seconds)
        scene.admit_traffic_again()

    return harm


def _cut_off_agents(scene: Scene) -> None:
    scene.drop_traffic_to_port("portal-web", _AGENTS_PORT)
    scene.hold(_HALF_OPEN)
    scene.admit_traffic_again()


def _kill_leader(scene: Scene) -> None:
    scene.kill(SYSTEM, scene.leader())


def _end_node(scene: Scene) -> None:
    """As the section A node dies says, PostgreSQL is moved by hand if it was there."""
    has_database = scene.node_of("postgresql") == "node2"
    scene.end_node()
    scene.hold(_AWAY)
    if has_database:
        scene.kill(SYSTEM, "postgresql-0")
    scene.hold(_AWAY)
    scene.start_node()


FAULTS = (
    Fault("rolling restart of web", _restart_web),
    Fault("both workers killed", lambda scene: scene.kill_all("portal-worker")),
    Fault("both sweeps killed", lambda scene: scene.kill_all("portal-sweep")),
    Fault("leading controller killed", _kill_leader),
    Fault("both coordination gateways killed", lambda scene: scene.kill_all("coordination-gateway")),
    Fault("coordination gateways away 60 s", _stop_gateways),
    Fault("Redis killed", lambda scene: scene.kill_all("redis")),
    Fault("Redis away 60 s", _stop_redis),
    Fault("network to Redis half-open 60 s", _drop("redis", _AWAY)),
    Fault("one etcd member killed", lambda scene: scene.kill(SYSTEM, "etcd-0")),
    Fault("quorum of etcd lost 60 s", _lose_quorum),
    Fault("network to etcd half-open 60 s", _drop("etcd", _AWAY)),
    Fault("PostgreSQL killed", lambda scene: scene.kill(SYSTEM, "postgresql-0"), may_refuse=True),
    Fault("PostgreSQL away 60 s", _stop_database, may_refuse=True),
    Fault("network to PostgreSQL half-open 300 s", _drop("postgresql", _HALF_OPEN), may_refuse=True),
    Fault("network of the agents half-open 300 s", _cut_off_agents),
    Fault("trainer killed", lambda scene: scene.kill_replica("trainer-0")),
    Fault("trainer killed while PostgreSQL is away", _kill_trainer_without_database, may_refuse=True),
    Fault("parameter server killed", lambda scene: scene.kill_replica("pserver-0")),
    Fault("master killed", lambda scene: scene.kill_replica("master-0")),
    Fault("upgrade with a migration", _upgrade, may_refuse=True),
    Fault("rotation of all passwords", _rotate, may_refuse=True),
    Fault("node dies for 120 s", _end_node, may_refuse=True, needs_node=True),
)
