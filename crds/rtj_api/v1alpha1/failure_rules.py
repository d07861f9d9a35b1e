"""`recovery.failureRules`: what a person knows of their own trainer's faults. Must never do I/O."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from rtj_api.api_base import Api
from rtj_api.rules.overrides import FailureAction
from rtj_api.rules.overrides import FailureRule as PlainRule

RuleName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9]*$", max_length=63)]
ExitCode = Annotated[int, Field(ge=1, le=255)]


class FailureRule(Api):
    """An end of a trainer by its exit code, its last lines or both, and what follows from it."""

    name: RuleName = Field(
        description="Shown as the fault's signature, in status.current.culprit and in events."
    )
    exit_codes: tuple[ExitCode, ...] = Field(
        (),
        max_length=64,
        description="As a shell sees them: 128 + the signal for a signal. Any of them.",
    )
    log_pattern: Annotated[str, StringConstraints(min_length=3, max_length=256)] | None = Field(
        None,
        description=(
            "Text in one of the trainer's last lines, whatever its case; `*` stands for anything. "
            "Not a regular expression."
        ),
    )
    action: FailureAction = Field(
        description=(
            "Count: the restart uses recovery.maxRestarts, and the fault is never taken for one "
            "that always comes again. Ignore: the restart is free, but paced. AvoidNode: free, and "
            "the rank moves to another node. RollBack: free; the save that was resumed is suspect "
            "and the one before it is tried. FailJob: the job fails at once."
        )
    )

    def plain(self) -> PlainRule:
        """As the rules know it."""
        return PlainRule(
            name=self.name,
            action=self.action,
            exit_codes=self.exit_codes,
            log_pattern=self.log_pattern,
        )
