"""Restoring what a directive names, from wherever `targets` has found it; then the fence's parent.

Runs only between a prepare and the go, may be run again after a crash, and never takes another
save than the one that was chosen.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from rtj_api import contract
from rtj_api.reasons import Reason
from rtj_api.wire import (
    Directive,
    Resume,
    SidecarPhase,
    TransferKind,
    Verdict,
)

from rtj_sidecar.checkpoints.foreign import set_aside_dir
from rtj_sidecar.checkpoints.quiescence import Writers
from rtj_sidecar.checkpoints.restore import Owner, RestoreError
from rtj_sidecar.checkpoints.versions import versions_of
from rtj_sidecar.directory_problem import DirectoryProblem
from rtj_sidecar.failing import AttemptFailed, until_stopped
from rtj_sidecar.looking import Looking
from rtj_sidecar.prefetching import Prefetching
from rtj_sidecar.restored_keys import check_keys
from rtj_sidecar.restoring import Restored, Target, restore, set_all_aside
from rtj_sidecar.runs import keys
from rtj_sidecar.runs.fence import Done
from rtj_sidecar.runs.fetch import Fetched, FetchFailed
from rtj_sidecar.runs.peers import Peers
from rtj_sidecar.runs.records import FileRecord, MarkKind
from rtj_sidecar.sources import find_peers
from rtj_sidecar.staging import has_staging, make_staging
from rtj_sidecar.station import Station, log
from rtj_sidecar.stores.base import Cancelled, StoreProblem
from rtj_sidecar.storing import Storing
from rtj_sidecar.targets import Targets
from rtj_sidecar.trainer.losses import LOSS_BAND
from rtj_sidecar.trainer.trail import FACT as TRAIL
from rtj_sidecar.trials import Trials

LIST_SECONDS = 15.0
FOREIGN_KEY = "foreign"


class Restorer:
    """`storing` only on rank 0."""

    def __init__(
        self,
        station: Station,
        looking: Looking,
        storing: Storing | None,
        prefetching: Prefetching,
    ) -> None:
        self._at = station
        self._prefetching = prefetching
        self._looking = looking
        self._storing = storing
        self._targets = Targets(station)
        self._trials = Trials(station)

    async def restore(self, directive: Directive) -> None:
        at, resume = self._at, directive.resume
        if resume is None:
            raise AttemptFailed(Reason.RESTORE_FAILED, "the directive names no save to restore")
        at.set_phase(SidecarPhase.RESTORING)
        await until_stopped(at, directive.attempt - 1)
        await self._prefetching.settle(None if resume.scratch else resume.name)
        if not at.site.touches_directory:
            path = await self._path_of_shared(resume)
            done = Restored(path, 0, 0, ())
        elif resume.scratch or resume.name is None:
            done = await at.on_disk(set_all_aside, at.directory, attempt=directive.attempt)
        else:
            done = await self._restore_save(directive, resume, resume.name)
        if has_staging(at.site):
            await at.on_disk(make_staging, at.site.path)
        if done.quarantined:
            log.info("quarantined %s", ", ".join(done.quarantined))
        self._tell_kept(done, directive)
        await check_keys(at, resume, done.path)
        await self._trials.check(directive, resume, done.path)
        await self._set_parent(directive, resume)
        at.journal.note(
            restored_attempt=directive.attempt,
            restored_bytes=max(done.bytes_fetched, at.fetching),  # vetting may have fetched it
            restore_total_bytes=done.bytes_total,
            resume=resume,
            resume_path=done.path,
            loss_check=None,
            replay=None,
            divergence=None,
        )
        at.reporter.set(loss_check=None, replay=None, divergence=None)
        self._looking.tell()

    def _tell_kept(self, done: Restored, directive: Directive) -> None:
        if not done.kept:
            self._at.reporter.heal(FOREIGN_KEY)
            return
        place = set_aside_dir(self._at.site.path, directive.attempt)
        self._at.reporter.degrade(
            FOREIGN_KEY,
            Reason.FOREIGN_CHECKPOINT,
            f"{', '.join(done.kept[:5])} lay in checkpoint.path before this job's first start and "
            f"the trainer could take it for its newest save: moved to {place}, where nothing is "
            "deleted. Keep what is not this run's own outside of checkpoint.path",
            retrying=False,
        )

    async def _restore_save(self, directive: Directive, resume: Resume, name: str) -> Restored:
        at = self._at
        target = await self._targets.find(resume, name)
        at.reporter.set(
            checkpoint=at.reporter.current.checkpoint.model_copy(
                update={"restore_total_bytes": sum(file.size for file in target.files)}
            )
        )
        urls = [peer.rstrip("/") for peer in resume.peers if peer.rstrip("/") != at.own_url]
        # What is not durable only its writers have: each of them is asked for every file.
        peers = (
            await find_peers(at.http, name, urls, rank=at.site.config.rank)
            if target.durable
            else Peers(urls, headers=at.http.headers)
        )

        def fetch(files: Sequence[FileRecord], incoming: Path) -> int:
            return self._fetch(target, files, incoming, peers)

        band = target.facts.facts.get(LOSS_BAND)
        trail = target.facts.facts.get(TRAIL)
        at.journal.note(
            loss_band=band if isinstance(band, dict) else None,
            trail=trail if isinstance(trail, dict) else None,
            versions=versions_of(target.facts.facts),
        )
        done = await at.on_disk(
            restore,
            at.directory,
            target,
            attempt=directive.attempt,
            owner=self._owner(),
            fetch=fetch,
        )
        await at.on_disk(self._remember_restored, target)
        return done

    def _fetch(
        self, target: Target, files: Sequence[FileRecord], incoming: Path, peers: Peers
    ) -> int:
        """In the directory's thread. Raises RestoreError, AttemptFailed."""
        at, run = self._at, self._at.run
        if run is None:
            raise RestoreError(f"{target.name} is not on this disk, and there is no store")
        size, most = sum(file.size for file in files), at.site.config.max_restore_bytes
        if most is not None and size > most:
            raise AttemptFailed(
                Reason.RESTORE_TOO_LARGE,
                f"rank {at.site.config.rank} would have to fetch {size:,} bytes of {target.name}, "
                f"and checkpoint.local.maxRestoreBytes allows {most:,}: nothing was fetched. Raise "
                "it, or mount a volume at checkpoint.path that outlives the pod",
            )
        try:
            with at.transfers.under_way(
                TransferKind.RESTORE, target.name, size, also=at.fetched
            ) as count:
                found = run.moving.fetch(
                    target.name,
                    incoming,
                    files=files,
                    peers=peers,
                    from_store=target.durable,
                    progress=count,
                    cancel=at.closing,
                )
        except StoreProblem as problem:
            raise RestoreError(f"{target.name}: {problem.message}") from problem
        except Cancelled as cancelled:
            raise RestoreError(f"{target.name}: the sidecar ends") from cancelled
        if isinstance(found, Fetched):
            at.moved(from_peers=found.bytes_from_peers, from_store=found.bytes_from_store)
            return found.bytes_from_peers + found.bytes_from_store
        self._condemn(target, found)
        raise RestoreError(f"{found.reason}: {found.message}")

    def _condemn(self, target: Target, failed: FetchFailed) -> None:
        """The store's copy is bad: a mark keeps every later attempt away from it."""
        at, run = self._at, self._at.run
        if failed.finding is None or run is None:
            return
        with contextlib.suppress(StoreProblem):
            run.judging.mark(
                target.name,
                kind=MarkKind.INVALID,
                reason=failed.reason,
                message=failed.message,
                evidence=failed.evidence,
                fence=at.fence,
            )
        verdict = Verdict(
            name=target.name,
            step=target.facts.step,
            reason=str(failed.reason),
            message=failed.message,
            at=time.time(),
        )
        at.loop.call_soon_threadsafe(at.reporter.add_verdict, verdict)

    def _remember_restored(self, target: Target) -> None:
        """The restored save is a new generation on this disk, but no new save."""
        at = self._at
        try:
            at.directory.ledger.note_laid(())  # all that lies here counts until the trainer writes
            look = at.directory.look(writers=Writers(gone=True))
            at.directory.ledger.note_laid(look.snapshot.files)
            for save, _ in look.judged:
                if save.root_key == target.facts.root_key:
                    number = keys.parse_name(target.name) if target.durable else None
                    fence, n = (number.fence, number.n) if number else (None, None)
                    at.directory.ledger.note(save, fence=fence, n=n)
            back = {file.path for file in target.carried}
            for told in target.facts.facts.get("carried") or ():
                if told["path"] in back:
                    at.directory.ledger.note_carried(told)
            found = [save for save, _ in look.judged]
            strange = [save.identity for save in found if at.directory.ledger.is_news(save)]
            at.journal.note(here_before=strange)
        except (OSError, DirectoryProblem) as error:
            raise RestoreError(f"{target.name}: the ledger was not written: {error}") from error
        shutil.rmtree(at.site.path / contract.HIDDEN_DIR / "incoming", ignore_errors=True)

    async def _path_of_shared(self, resume: Resume) -> str | None:
        """On a shared directory rank 0 restores; where the save lies, its manifest says."""
        at, run = self._at, self._at.run
        if resume.scratch or resume.name is None:
            return None
        root: str | None = None
        with contextlib.suppress(StoreProblem):
            manifest = await asyncio.to_thread(run.manifest, resume.name) if run else None
            root = manifest.root_key if manifest is not None else None
        for peer in [*resume.peers, at.holder_url]:
            if root is None and peer:
                told = await self._targets.ask_peer(peer.rstrip("/"), resume.name)
                root = told.facts.root_key if told is not None else None
        if root is None:
            raise RestoreError(f"nobody tells where {resume.name} lies in {at.site.path}")
        return str(at.site.path / root) if root != "." else str(at.site.path)

    async def _set_parent(self, directive: Directive, resume: Resume) -> None:
        """The fence says what its attempt starts from, before anything trains."""
        at, run, storing = self._at, self._at.run, self._storing
        entry = at.journal.entry
        if storing is None or run is None or entry.fence is None:
            return
        if entry.fence_attempt != directive.attempt:
            return  # The fence is claimed later, together with its parent.
        parent = storing.recalling.parent_for(resume)
        deadline = time.monotonic() + LIST_SECONDS
        while True:
            try:
                answer = await asyncio.to_thread(run.set_parent, fence=entry.fence, parent=parent)
                if isinstance(answer, Done):
                    await storing.recalling.begin_line(run, parent)
                break
            except StoreProblem as problem:
                if time.monotonic() > deadline:
                    raise AttemptFailed(Reason.RESTORE_FAILED, problem.message) from problem
                await asyncio.sleep(1.0)
        if not isinstance(answer, Done):
            raise AttemptFailed(
                Reason.FENCE_TAKEN,
                f"fence {answer.by} follows ours ({entry.fence}): a newer attempt has begun",
            )
        at.journal.note(parent=parent)

    def _owner(self) -> Owner | None:
        """Whom restored files are handed to: the trainer's user, where it is another than ours."""
        state = self._at.supervisor
        if state is None or os.getuid() != 0 or state.uid == 0:
            return None
        return Owner(state.uid, state.gid)
