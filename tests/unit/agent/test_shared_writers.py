"""What rank 0's sidecar knows of other pods' trainers that write its directory."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from rtj_api.wire import SEQ, Directive, Phase
from rtj_sidecar.checkpoints.quiescence import Writers
from rtj_sidecar.holding import Holding
from rtj_sidecar.looking import Looking
from rtj_sidecar.messages import Seen


def eyes(*, shared: bool = True, training: bool = False, replaced: tuple[int, ...] = ()) -> Any:
    """Rank 0 of two, in attempt 2; its own trainer has `own` open."""
    directive = Directive(
        job_uid="job",
        pod_uid="pod",
        rank=0,
        attempt=2,
        seq=SEQ[Phase.GO],
        phase=Phase.GO,
        world_size=2,
        replaced=list(replaced),
    )
    config = SimpleNamespace(rank=0, job_uid="job", shared_directory=shared)
    station = SimpleNamespace(
        directive=directive,
        attempt=2,
        site=SimpleNamespace(config=config),
        ship_now=asyncio.Event(),
        supervisor=SimpleNamespace(open_for_writing=["own"]),
        link=SimpleNamespace(told_to_go=lambda: 2),
        is_training=training,
    )
    holding = Holding(station)  # type: ignore[arg-type]
    return Looking(station, holding), holding  # type: ignore[arg-type]


def said(*, attempt: int = 2, final: bool = False, open_paths: list[str] | None = None) -> Seen:
    return Seen(job_uid="job", rank=1, attempt=attempt, final=final, open_paths=open_paths)


UNKNOWN = Writers(None, False)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (None, UNKNOWN),
        (said(attempt=1, final=True, open_paths=[]), UNKNOWN),
        (said(), UNKNOWN),  # a sidecar of an older version tells of no open files
        (said(open_paths=["other"]), Writers(frozenset({"own", "other"}), False)),
        (said(open_paths=[], final=True), Writers(frozenset({"own"}), True)),
    ],
)
def test_nobody_is_taken_for_ended_or_idle_without_a_word(
    seen: Seen | None, expected: Writers
) -> None:
    looking, holding = eyes()
    if seen is not None:
        holding.hear(seen)
    assert looking.writers(gone=True) == expected


def test_its_own_trainer_counts_too() -> None:
    looking, holding = eyes(training=True)
    holding.hear(said(open_paths=[], final=True))
    assert looking.writers(gone=False).gone is False


def test_a_replaced_ranks_older_pod_may_write_on() -> None:
    looking, holding = eyes(replaced=(1,))
    holding.hear(said(open_paths=[], final=True))
    assert looking.writers(gone=True).gone is False


def test_in_a_directory_of_its_own_a_pod_knows_for_itself() -> None:
    looking, _ = eyes(shared=False)
    assert looking.writers(gone=True) == Writers(frozenset({"own"}), True)
