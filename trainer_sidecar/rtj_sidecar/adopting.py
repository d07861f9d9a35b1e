"""Adoption: a run without any save takes what lies in its directory as its beginning.

For people who trained without this project before. Only at the very first start, only full saves
that state where they are, and never by a guess which of them is the newest.
"""

from __future__ import annotations

import asyncio
import time

from rtj_api.reasons import Reason

from rtj_sidecar.checkpoints.beginning import Mixed, newest_of
from rtj_sidecar.checkpoints.foreign import could_be_resumed
from rtj_sidecar.checkpoints.quiescence import Writers
from rtj_sidecar.directory_problem import DirectoryProblem, problem_of
from rtj_sidecar.holding import Holding
from rtj_sidecar.pinning import pin_found
from rtj_sidecar.shipping import Shipping
from rtj_sidecar.station import Station, log
from rtj_sidecar.stores.base import StoreProblem

KEY = "adopt"


async def adopt_directory(
    at: Station, *, shipping: Shipping, holding: Holding, writers: Writers
) -> None:
    """Name the newest save there as the run's first. What stands against it ends in the report."""
    if at.run is None or at.candidates or at.link.told_to_go():
        return
    try:
        history = await asyncio.to_thread(at.run.history)
        if history.named or history.ever_durable:
            return
        look = await at.on_disk(at.directory.look, writers=writers)
        # Data or weights that a person put there are no beginning of this run.
        verdicts = {s.identity: v for s, v in look.judged if v.candidate and s.full_state is True}
        whole = [s for s, _ in look.judged if s.identity in verdicts and could_be_resumed(s)]
        others = await at.on_disk(
            lambda: [s for s in whole if at.directory.ledger.is_of_another_run(s)]
        )
        good = [s for s in whole if s not in others]
        save = newest_of(good)
        if isinstance(save, Mixed):
            _refuse(at, save)
            return
        if save is None:
            return
        # No trainer of this job wrote it: of its writing nothing is told.
        await at.on_disk(
            pin_found,
            at.directory,
            save,
            verdict=verdicts[save.identity],
            attempt=0,
            since=time.time(),
        )
        log.info("adopted %s step %s, found in the directory", save.root_key, save.step)
        await shipping.telling.tell()
        await holding.work(final=True)
        await shipping.match_own()
        at.reporter.heal(KEY)
    except (StoreProblem, DirectoryProblem) as problem:
        at.reporter.degrade(KEY, problem.reason, str(problem))
    except OSError as error:
        trouble = problem_of(error, at.site.path, "read")
        at.reporter.degrade(KEY, trouble.reason, trouble.message)


def _refuse(at: Station, mixed: Mixed) -> None:
    one, other = mixed.one.root_key, mixed.other.root_key
    at.fail(
        Reason.CHECKPOINT_ORDER_UNKNOWN,
        f"{at.site.path} holds saves from before this job, and nobody can tell whether {one} or "
        f"{other} is the newer one: their numbers count different things. Leave only the one to "
        "begin from in checkpoint.path, or none",
    )
