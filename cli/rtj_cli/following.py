"""What `rtj run` says while a trainer runs: what became durable, what is wrong, what moves.

Must never decide anything.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from rtj_api.wire import Report, SidecarPhase, TrainerState
from rtj_sidecar.report import Reporter

from rtj_cli.bars import Bars, Say

TOLD_EVERY_SECONDS = 10.0


@dataclass
class Teller:
    """Follows the reports of this machine's agent."""

    reporter: Reporter
    bars: Bars
    say: Say
    _told_durable: float = 0.0
    _named_durable: str | None = None

    async def run(self) -> None:
        """Newly durable steps (not all, where they come fast) and problems, as they come."""
        told: set[tuple[str, str]] = set()
        sequence: int | None = None
        while True:
            report = await self.reporter.after(sequence, wait=5.0)
            sequence = report.sequence
            trains = report.trainer.state is TrainerState.RUNNING
            self.bars.show(report.transfers, alone=not trains)
            now = {(p.reason, p.message) for p in report.degraded}
            for reason, message in sorted(now - told):
                self.say(f"{reason}: {message}")
            for reason, _ in sorted(told - now):
                if reason not in {r for r, _ in now}:
                    self.say(f"{reason}: over")
            told = now
            self._tell_durable(report)

    def _tell_durable(self, report: Report) -> None:
        seen = report.checkpoint
        due = time.monotonic() - self._told_durable > TOLD_EVERY_SECONDS
        if due and seen.last_durable_name not in (None, self._named_durable):
            if self._named_durable is not None or report.phase is SidecarPhase.TRAINING:
                self.say(f"durable: step {seen.last_durable_step} ({seen.last_durable_name})")
                self._told_durable = time.monotonic()
            self._named_durable = seen.last_durable_name
