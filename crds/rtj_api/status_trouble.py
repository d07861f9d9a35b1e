"""The part of a job's status that remembers trouble: the faults since the last durable work, and
what they made suspect. Who is to blame is worked out from it (`rules.blame`). Must never do I/O.
"""

from __future__ import annotations

from pydantic import Field

from rtj_api.status_base import StatusModel, Time

MAX_INCIDENTS = 16
MAX_SUSPICIONS = 4
MAX_BISECTED = 64


class Incident(StatusModel):
    """The first fault of an attempt: what is compared with the others, since durable work."""

    attempt: int
    alike: str = Field(
        max_length=128,
        description="Equal for faults of one kind: a signature of the last words, else how it "
        "ended and its last line without numbers.",
    )
    charge: str = Field(description="Whose budget it used, see Charge.")
    started: bool = Field(True, description="Trainers had been started.")
    node: str | None = None
    save: str | None = Field(None, description="What the attempt had resumed from.")
    from_step: int | None = None
    step: int | None = Field(None, description="Last step; absent: none was seen.")
    ran_seconds: float | None = Field(None, description="From the trainer's start to its end.")
    varied: str | None = Field(
        None, description="What this attempt did otherwise than the one before: Node or Save."
    )
    at: Time


class Suspicion(StatusModel):
    """A save that is passed over until an older one has got past the same point, or not."""

    name: str
    is_proved: bool = Field(False, description="An older one has: it is bad.")
    past_step: int | None = Field(
        None, description="An older save that gets past this step proves it bad; absent: any step."
    )
    attempt: int = Field(description="Whose fault made it suspect.")
    alike: str = Field(max_length=128)

    @property
    def where(self) -> str:
        """` after step 14`, for people."""
        return f" after step {self.past_step}" if self.past_step is not None else " without a step"


class SlowRank(StatusModel):
    """A rank for which all others wait, followed within one attempt."""

    rank: int
    attempt: int
    since: Time
    step: int = Field(description="Its own, at that time.")
    is_due: bool = Field(
        False, description="It was slow for long enough: moved after the next durable save."
    )
    durable_name: str | None = Field(None, description="The newest durable save by then.")


class SlowMove(StatusModel):
    """The last rank that was moved to another node for being slow."""

    rank: int
    node: str | None = Field(None, description="That it left.")
    attempt: int = Field(description="That began with its new pod.")
    at: Time
    ratio: float = Field(description="Its time for a step in medians of the ranks, before.")
    helped: bool | None = Field(
        None, description="It is as fast as the others since, or it is as slow; absent: not known."
    )


class Straggling(StatusModel):
    """What is remembered of slow ranks, with recovery.straggler.onSlow: Replace."""

    slow: SlowRank | None = None
    moved: SlowMove | None = None
    own: list[int] = Field(
        default_factory=list,
        max_length=64,
        description="Ranks that were as slow on another node: not moved again.",
    )
    generation: int = Field(0, description="Of the spec; a changed one is judged anew.")


class Bisection(StatusModel):
    """The search for the newest save that trains on, asked for by a person. Indexes are those of
    `saves`."""

    id: str = Field(description="Of the request.")
    saves: list[str] = Field(max_length=MAX_BISECTED, description="In question, oldest first.")
    steps: list[int] = Field(max_length=MAX_BISECTED, description="Theirs.")
    good: int = Field(-1, description="The newest that is known to be good; -1: none yet.")
    bad: int = Field(description="The oldest that is known to be bad.")
    run_steps: int = Field(description="So many steps beyond it prove a save good.")

    @property
    def trial(self) -> int:
        """The save that is tried now."""
        return (self.good + self.bad) // 2 if self.bad - self.good > 1 else self.bad
