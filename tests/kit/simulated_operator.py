"""A simulated operator: observe, decide and apply over a simulated World.

One guarded write at a time; the world's gates may raise Crash or ServerError before or after any of
them. What comes back after a crash remembers nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from rtj_operator.core.decide import decide
from rtj_operator.core.observed import Observed
from rtj_operator.core.plan import (
    Action,
    CreatePod,
    CreateSpare,
    DeleteJob,
    DeletePod,
    FreePod,
    PatchDirective,
    Plan,
)
from rtj_operator.core.policy import Policy

from kit import simulated_laws
from kit.simulated import Conflict, Crash, ServerError, World

PASSES = 12  # at one moment, most
RETRY_SECONDS = 1.0  # after a pass that failed, as the queue's first back-off


@dataclass
class Operator:
    """observe → decide → apply over a World, with a log a person can read."""

    world: World
    policy: Policy = field(default_factory=Policy)
    log: list[str] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    wake_at: float | None = None
    drop_hint: Callable[[], bool] = lambda: False
    more_hint: Callable[[], bool] = lambda: False
    stale: Callable[[], str | None] = lambda: None
    doubt: Callable[[], bool] = lambda: False  # whether the laws of `decide` are tried now
    crashes: int = 0
    _seen: deque[Observed] = field(default_factory=lambda: deque(maxlen=3))

    def run_pass(self) -> Plan:
        """One pass. Raises Crash when the world's gate says so."""
        world = self.world
        if world.api_down:
            raise ServerError("read")
        observed = self._read()
        plan = decide(observed, self.policy)
        self.plans.append(plan)
        simulated_laws.waits_with_an_end(observed, plan)
        if self.doubt():
            simulated_laws.is_steady(observed, plan, policy=self.policy)
        try:
            self._apply(observed, plan)
        except Conflict:
            world.hint = True
        self.wake_at = plan.wake_at
        return plan

    def _read(self) -> Observed:
        """What is there, or as it was some passes ago, in part or as a whole."""
        now, then = self.world.observe(), self._seen[0] if self._seen else None
        self._seen.append(now)
        match self.stale():
            case "all" if then is not None:
                return replace(then, now=now.now)
            case "pods" if then is not None:
                return replace(now, pods=then.pods)
            case "reports" if then is not None:
                return replace(now, reports=then.reports)
            case _:
                return now

    def _apply(self, observed: Observed, plan: Plan) -> None:
        world = self.world
        self._write_log(plan)
        for kind in (DeletePod, FreePod, CreatePod | CreateSpare, PatchDirective, DeleteJob):
            for action in plan.actions:
                if isinstance(action, kind):
                    self._carry_out(action)
        if plan.status is not None and observed.job is not None:
            world.put_status(observed.job.resource_version, plan.status)
            world.after("status")

    def _carry_out(self, action: Action) -> None:
        world = self.world
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
        world.after(type(action).__name__)

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
        self.world.hint |= self.more_hint()
        for _ in range(PASSES):
            due = self.wake_at is not None and self.world.now >= self.wake_at
            if not self.world.hint and not due:
                return
            self.world.hint = False
            self.wake_at = None
            try:
                plan = self.run_pass()
            except Crash as crash:
                self.crashes += 1
                self._seen.clear()
                self.log.append(
                    f"{self.world.now - 1000:8.2f} -- the operator dies before a {crash}"
                )
                self.world.hint = True
                return
            except ServerError as error:
                self.log.append(f"{self.world.now - 1000:8.2f} -- 5xx: {error}")
                self.wake_at = self.world.now + RETRY_SECONDS
                return
            if plan.is_empty:
                return
            self.world.hint = True
        simulated_laws.comes_to_rest(self.plans[-PASSES:])

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
