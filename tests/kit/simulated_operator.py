"""A simulated operator: observe, decide and apply over a simulated World.

One guarded write at a time; the world's gate may raise Crash before any of them. What comes back
at the next tick remembers nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from rtj_operator.core.decide import decide
from rtj_operator.core.observed import Observed
from rtj_operator.core.plan import (
    CreatePod,
    CreateSpare,
    DeleteJob,
    DeletePod,
    FreePod,
    PatchDirective,
    Plan,
)
from rtj_operator.core.policy import Policy

from kit.simulated import Conflict, Crash, World
from kit.simulated_laws import LawBroken


@dataclass
class Operator:
    """observe → decide → apply over a World, with a log a person can read."""

    world: World
    policy: Policy = field(default_factory=Policy)
    log: list[str] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    wake_at: float | None = None
    drop_hint: Callable[[], bool] = lambda: False
    stale: Callable[[], bool] = lambda: False
    crashes: int = 0
    _last: Observed | None = None

    def run_pass(self) -> Plan:
        """One pass. Raises Crash when the world's gate says so."""
        world = self.world
        observed = world.observe()
        if self.stale() and self._last is not None:
            observed = replace(self._last, now=world.now)
        self._last = observed
        plan = decide(observed, self.policy)
        self.plans.append(plan)
        if not plan.is_empty and plan.wake_at is None and not world.state.is_terminal:
            raise LawBroken(f"rule {plan.rule} waits without an end")
        try:
            self._apply(observed, plan)
        except Conflict:
            world.hint = True
        self.wake_at = plan.wake_at
        return plan

    def _apply(self, observed: Observed, plan: Plan) -> None:
        world = self.world
        self._write_log(plan)
        for kind in (DeletePod, FreePod, CreatePod | CreateSpare, PatchDirective, DeleteJob):
            for action in plan.actions:
                if isinstance(action, kind):
                    match action:
                        case DeletePod():
                            world.delete(action)
                        case FreePod():
                            world.free(action)
                        case CreatePod() | CreateSpare():
                            world.create(action)
                        case PatchDirective():
                            world.patch(action)
                        case DeleteJob():
                            world.delete_job(action)
        if plan.status is not None and observed.job is not None:
            world.put_status(observed.job.resource_version, plan.status)

    def _write_log(self, plan: Plan) -> None:
        if plan.is_empty:
            return
        at = self.world.now - 1000.0
        if plan.status is not None:
            s = plan.status
            self.log.append(
                f"{at:8.2f} {plan.rule}: {plan.why} -> {s.phase} attempt={s.attempt} "
                f"starts={s.starts} restarts={s.restarts}"
            )
            self.log += [f"{'':9}  event {n.type} {n.reason}: {n.message}" for n in plan.notes]
            return
        parts = []
        for action in plan.actions:
            if isinstance(action, CreatePod | CreateSpare):
                parts.append(f"create {action.name}")
            elif isinstance(action, DeletePod):
                parts.append(f"{'force-delete' if action.force else 'delete'} {action.name}")
            elif isinstance(action, FreePod):
                parts.append(f"free {action.name} of the queue")
            elif isinstance(action, DeleteJob):
                parts.append("delete the job")
            else:
                d = action.directive
                stop = f" and stop at {d.stop_step}" if d.stop_step is not None else ""
                parts.append(f"tell {action.pod} {'fast ' if d.fast else ''}{d.phase}{stop}")
        self.log.append(f"{at:8.2f} {plan.rule}: {', '.join(parts)}")

    def tick(self) -> None:
        """The world moves once; then passes run while there is reason to."""
        self.world.tick()
        if self.world.hint and self.drop_hint():
            self.world.hint = False
        for _ in range(12):
            due = self.wake_at is not None and self.world.now >= self.wake_at
            if not self.world.hint and not due:
                return
            self.world.hint = False
            self.wake_at = None
            try:
                plan = self.run_pass()
            except Crash as crash:
                self.crashes += 1
                self._last = None
                self.log.append(
                    f"{self.world.now - 1000:8.2f} -- the operator dies before a {crash}"
                )
                self.world.hint = True
                return
            if plan.is_empty:
                return
            self.world.hint = True

    def run(self, seconds: float) -> None:
        end = self.world.now + seconds
        while self.world.now < end:
            self.tick()

    def run_until(self, condition: Callable[[], bool], *, within: float = 300.0) -> None:
        end = self.world.now + within
        while not condition():
            if self.world.now >= end:
                tail = "\n".join(self.log[-25:])
                raise AssertionError(f"not within {within} s of simulated time; log:\n{tail}")
            self.tick()
