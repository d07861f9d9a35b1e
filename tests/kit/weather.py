"""Bad weather for a simulated world: every kind of fault, drawn by a seed, each with its end.

The faults of the world are in `FAULTS`; what goes wrong between operator and API server is in
`kit.doors`. Decides nothing and checks nothing: the laws do (`kit.simulated_laws`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rtj_api import wire
from rtj_api.rules.hang import Standing

from kit.simulated import World
from kit.simulated_pod import Pod

SPOT = "cloud.google.com/impending-node-termination:NoSchedule"


class Weather:
    """Draws one fault now and then; all of them heal when it is over."""

    def __init__(
        self,
        world: World,
        *,
        draw: random.Random,
        kinds: Sequence[str] | None = None,
        rate: float = 0.015,
    ) -> None:
        self.world, self.random, self.rate = world, draw, rate
        self.kinds = tuple(kinds or USUAL)
        self.ends: dict[str, tuple[float, Callable[[], None]]] = {}
        self.said: list[str] = []
        self.counts: Counter[str] = Counter()

    def tick(self) -> None:
        for key, (at, end) in list(self.ends.items()):
            if self.world.now >= at:
                del self.ends[key]
                end()
        if self.random.random() < self.rate:
            self._strike(self.random.choice(self.kinds))

    def lasting(self, key: str, seconds: float, end: Callable[[], None]) -> None:
        """It ends by itself after so long, or with the storm."""
        self.ends[key] = (self.world.now + seconds, end)

    def _strike(self, name: str) -> None:
        running = [p for p in self.world.pods.values() if p.phase == "Running" and p.node]
        pod = self.random.choice(running) if running else None
        if FAULTS[name].strike(self, pod):
            self.counts[name] += 1
            self.said.append(f"{self.world.now - 1000:8.2f} {name}")

    def clear(self) -> None:
        for _, end in self.ends.values():
            end()
        self.ends.clear()
        self.world.hint = True


Strike = Callable[[Weather, Pod | None], bool]


@dataclass(frozen=True)
class Fault:
    """`strike`: whether it could. `harmless`: nobody may lose his attempt to it."""

    what: str
    strike: Strike
    harmless: bool = False


def _on_pod(strike: Callable[[Weather, Pod], None]) -> Strike:
    def on(weather: Weather, pod: Pod | None) -> bool:
        if pod is not None:
            strike(weather, pod)
        return pod is not None

    return on


def _trainer_dies(weather: Weather, pod: Pod | None) -> bool:
    if pod is None or pod.trainer is None or pod.trainer.state != wire.TrainerState.RUNNING:
        return False
    draw = weather.random
    # No two are alike: weather is not what comes again and again for one cause.
    pod.trainer.tail = ["Error: " + "".join(draw.choices("abcdefgh", k=8))]
    pod.trainer.end(now=weather.world.now, code=draw.choice([-9, -11, 1, 2, 137]))
    pod.change()
    return True


def _trainer_hangs(weather: Weather, pod: Pod | None) -> bool:
    if pod is None or pod.trainer is None:
        return False
    pod.trainer.hung = weather.random.choice([Standing.STOPPED, Standing.STILL])
    return True


def _container_dies(weather: Weather, pod: Pod) -> None:
    world = weather.world
    pod.container_ended_at = float(int(world.now))
    pod.container_down_until = world.now + weather.random.choice([1.0, 3.0, 20.0])
    pod.container_exit = (137, "OOMKilled")
    world.touch(pod)


def _sidecar_dies(weather: Weather, pod: Pod) -> None:
    pod.sidecar_down_until = weather.world.now + weather.random.choice([0.5, 4.0, 30.0])
    weather.world.touch(pod)


def _sidecar_dies_at_a_write(weather: Weather, pod: Pod | None) -> bool:
    weather.world.store.crash_in = weather.random.randrange(1, 12)
    return True


def _pod_fails(weather: Weather, pod: Pod) -> None:
    pod.phase, pod.reason, pod.message = "Failed", "Evicted", "node was low on memory"
    weather.world.touch(pod)


def _pod_goes(cause: str | None) -> Callable[[Weather, Pod], None]:
    return lambda weather, pod: weather.world.delete_pod(pod.name, disruption=cause)


def _node(strike: Callable[[Weather, str], None], *, seconds: tuple[float, float]) -> Strike:
    """On the pod's node; of two at most at a time."""

    def on(weather: Weather, pod: Pod | None) -> bool:
        nodes = [key for key in weather.ends if key.startswith("node")]
        if pod is None or pod.node is None or pod.node in nodes or len(nodes) >= 2:
            return False
        name = pod.node
        strike(weather, name)
        weather.lasting(name, weather.random.uniform(*seconds), lambda: _healed(weather, name))
        return True

    return on


def _healed(weather: Weather, name: str) -> None:
    weather.world.nodes[name].taints = ()
    weather.world.heal_node(name)


def _notice(weather: Weather, name: str) -> None:
    weather.world.nodes[name].taints = (SPOT,)
    weather.world.hint = True


def _skewed(weather: Weather, pod: Pod | None) -> bool:
    """Its node's clock is wrong for the rest of the storm."""
    if pod is None or pod.node is None:
        return False
    node = weather.world.nodes[pod.node]
    node.skew = weather.random.uniform(-40, 40)
    weather.lasting(f"skew of {node.name}", 1e9, lambda: setattr(node, "skew", 0.0))
    return True


def _for_a_while(
    key: str,
    seconds: tuple[float, float],
    begin: Callable[[World], None],
    end: Callable[[World], None],
) -> Strike:
    def on(weather: Weather, _: Pod | None) -> bool:
        if key in weather.ends:
            return False
        begin(weather.world)
        weather.lasting(key, weather.random.uniform(*seconds), lambda: end(weather.world))
        return True

    return on


def _corrupt(weather: Weather, _: Pod | None) -> bool:
    valid = weather.world.store.valid()
    if len(valid) > 2:
        weather.world.corrupt(valid[-1].name)
    return len(valid) > 2


def _template(weather: Weather, _: Pod | None) -> bool:
    weather.world.change_spec(template_hash=f"h{weather.random.random()}")
    return True


def _conflict(weather: Weather, _: Pod | None) -> bool:
    weather.world.job_rv += 1
    return True


def _restart(weather: Weather, _: Pod | None) -> bool:
    world = weather.world
    world.request = wire.Request(id=str(weather.random.random()), action=wire.RequestAction.RESTART)
    world.hint = True
    return True


def _unheard(weather: Weather, pod: Pod | None) -> bool:
    """Shorter than what makes a rank lost or the store the way to talk."""
    if pod is None or "deaf" in weather.ends:
        return False
    world = weather.world
    world.deaf_ranks = frozenset({pod.rank})
    seconds = weather.random.uniform(1, 14)
    weather.lasting("deaf", seconds, lambda: setattr(world, "deaf_ranks", frozenset()))
    return True


def _set(**fields: object) -> Callable[[World], None]:
    def on(world: World) -> None:
        for name, value in fields.items():
            setattr(world, name, value)

    return on


FAULTS: dict[str, Fault] = {
    "trainer": Fault("a trainer's process ends, by whatever code or signal", _trainer_dies),
    "hang": Fault("a trainer is stopped, or stands still", _trainer_hangs),
    "oom": Fault(
        "the kernel kills a trainer's container, supervisor and all; it is back after 1 to 20 s",
        _on_pod(_container_dies),
    ),
    "sidecar": Fault("a sidecar dies and is back after 0.5 to 30 s", _on_pod(_sidecar_dies)),
    "sidecar-at-a-write": Fault(
        "rank 0's sidecar dies between two of its writes to the store, any of the next twelve",
        _sidecar_dies_at_a_write,
    ),
    "delete": Fault("somebody deletes a pod", _on_pod(_pod_goes(None))),
    "evict": Fault("a pod is evicted", _on_pod(_pod_goes("EvictionByEvictionAPI"))),
    "failpod": Fault("the kubelet fails a pod for want of memory", _on_pod(_pod_fails)),
    "node": Fault(
        "a node loses power, for 2 to 120 s",
        _node(lambda w, n: w.world.kill_node(n), seconds=(2, 120)),
    ),
    "cut": Fault(
        "a node is cut off and its pods run on; once healed they try to publish",
        _node(lambda w, n: w.world.cut_node(n), seconds=(2, 120)),
    ),
    "notice": Fault("a spot node says that it goes", _node(_notice, seconds=(10, 60))),
    "store": Fault(
        "the store does not answer, for 5 to 90 s",
        _for_a_while(
            "store",
            (5, 90),
            lambda w: setattr(w.store, "reachable", False),
            lambda w: setattr(w.store, "reachable", True),
        ),
        harmless=True,
    ),
    "corrupt": Fault("the newest save is found damaged, in the store and on the disks", _corrupt),
    "suspend": Fault(
        "the job is suspended, for 1 to 60 s",
        _for_a_while(
            "suspend",
            (1, 60),
            lambda w: w.change_spec(suspend=True),
            lambda w: w.change_spec(suspend=False),
        ),
    ),
    "template": Fault("the template changes", _template),
    "restart": Fault("a person asks for a restart", _restart),
    "conflict": Fault(
        "somebody else writes the job: the next guarded write gets 409", _conflict, harmless=True
    ),
    "api-down": Fault(
        "the API server answers nobody for 5 to 40 s, and no Lease is renewed",
        _for_a_while("api", (5, 40), _set(api_down=True), _set(api_down=False)),
        harmless=True,
    ),
    "unheard": Fault(
        "the operator hears one rank's sidecar not, for 1 to 14 s", _unheard, harmless=True
    ),
    "skew": Fault("the clock of a node is up to 40 s off", _skewed, harmless=True),
    "slow-saves": Fault(
        "a save takes 30 s to ship instead of 1.5, for 10 to 60 s",
        _for_a_while("slow", (10, 60), _set(upload_seconds=30.0), _set(upload_seconds=1.5)),
        harmless=True,
    ),
    "long-steps": Fault(
        "a step takes 5 s instead of 1, for 10 to 60 s",
        _for_a_while("long", (10, 60), _set(step_seconds=5.0), _set(step_seconds=1.0)),
        harmless=True,
    ),
}
HARMLESS = tuple(name for name, fault in FAULTS.items() if fault.harmless)
# Kinds that are named twice come twice as often.
USUAL = (*FAULTS, "trainer", "hang", "delete")
