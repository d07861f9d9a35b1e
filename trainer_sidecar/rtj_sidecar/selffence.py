"""Every pod's eye on `<path>/.rtj/fence`, and the hand of whoever claims the directory there.

Only on a directory that a pod of another node can write. Reads that file and nothing else, never
the store: a pod that is cut off from everything but its file server must still stop. Its promise,
on which a new attempt starts beside a node that nobody can ask: SETTLED_SECONDS after a newer
attempt was written, no trainer of an older one writes any more. Must never let a trainer go on
because a read did not return.
"""

from __future__ import annotations

import asyncio
import time

from rtj_api.reasons import Reason
from rtj_api.wire import Directive, DirectoryFence, DirectoryOwner

from rtj_sidecar.directory_fence import (
    Bounded,
    Free,
    Hangs,
    Held,
    Passed,
    Self,
    claimable,
    overtaken_by,
    read_fence,
    write_fence,
)
from rtj_sidecar.directory_problem import DirectoryProblem, problem_of
from rtj_sidecar.failing import AttemptFailed
from rtj_sidecar.station import Station, log

READ_SECONDS = 3.0
READ_LIMIT_SECONDS = 2.5  # of one read; one that takes longer goes on and is asked again
SILENT_SECONDS = 10.0
SETTLED_SECONDS = 20.0
CLAIM_SECONDS = 10.0
KEY = "fence-file"


class SelfFence:
    """One pod's. `claims`: this sidecar touches the directory and writes there for it."""

    def __init__(self, station: Station) -> None:
        self._at = station
        self._reads: Bounded[DirectoryOwner | None] = Bounded("read-fence")
        self._writes: Bounded[Free | Held | Passed] = Bounded("write-fence")
        self._read_at = boot_time()  # of the last read that returned
        self._was_there = False
        self._is_first = False  # nobody had claimed this directory before
        self._one_read = asyncio.Lock()
        self._settling: asyncio.TimerHandle | None = None

    @property
    def is_fenced(self) -> bool:
        return self._at.site.config.fenced_directory

    @property
    def claims(self) -> bool:
        return self.is_fenced and self._at.site.touches_directory

    def _me(self, attempt: int | None = None) -> Self:
        config = self._at.site.config
        return Self(
            config.cluster_uid,
            config.job_uid,
            self._at.attempt if attempt is None else attempt,
        )

    # --- reading ---

    async def loop(self) -> None:
        """Until cancelled, whether a trainer runs or not."""
        if not self.is_fenced:
            return
        while True:
            await self.look()
            await asyncio.sleep(READ_SECONDS)

    async def look(self) -> None:
        """Read once; stop the trainer of this pod where it may not write any more."""
        at = self._at
        try:
            owner = await self._read()
        except OSError as error:
            is_missing = isinstance(error, FileNotFoundError) and not self._was_there
            if is_missing and not (at.is_training or at.is_after_go):
                return  # not made yet
            await self._silent(error)
            return
        at.reporter.heal(KEY)
        by = overtaken_by(owner, me=self._me())
        if by is not None:
            self._stop(
                Reason.FENCE_TAKEN,
                f"{at.site.config.path} belongs to {by} now: this pod writes there no more",
            )
        elif self._has_claimed and (owner is None or not self._stands(owner)):
            # A sidecar that hung in its prepare has put back an older one, or somebody removed it.
            await self._restore_claim()

    async def _read(self) -> DirectoryOwner | None:
        """Raises OSError, also for a file that was there and is missing."""
        at = self._at
        async with self._one_read:
            owner = await asyncio.to_thread(
                self._reads.call, lambda: read_fence(at.site.path), seconds=READ_LIMIT_SECONDS
            )
        if owner is None and self._was_there and not self.claims:
            raise FileNotFoundError(f"{at.site.config.path}/.rtj/fence is gone")
        self._was_there = self._was_there or owner is not None
        self._read_at = boot_time()
        return owner

    async def _silent(self, error: OSError) -> None:
        at = self._at
        silent = boot_time() - self._read_at
        text = f"the fence in {at.site.config.path} cannot be read: {error.strerror or error}"
        log.warning("%s (for %.0f s)", text, silent)
        at.reporter.degrade(KEY, Reason.DIRECTORY_UNREACHABLE, text)
        # The next look comes too late to notice it in time.
        left = max(0.0, SILENT_SECONDS - silent)
        if left > READ_SECONDS or not (at.is_training or at.is_after_go):
            return
        while (left := SILENT_SECONDS - (boot_time() - self._read_at)) > 0:
            await asyncio.sleep(min(left, 0.5))
            try:
                await self._read()
                return
            except OSError:
                continue
        self._stop(
            Reason.DIRECTORY_UNREACHABLE,
            f"{text}, for {SILENT_SECONDS:.0f} s: this pod cannot see whether it was replaced, so "
            "its trainer was stopped",
        )

    def _stop(self, reason: Reason, message: str) -> None:
        at = self._at
        if at.overtaken or not (at.is_training or at.is_after_go):
            return
        at.overtaken = True
        at.may_publish = False
        at.kill_trainer(up_to=at.attempt)
        at.fail(reason, message)

    async def check_before_go(self, attempt: int) -> None:
        """A trainer starts only where the directory is seen to be its attempt's.

        Raises AttemptFailed.
        """
        if not self.is_fenced:
            return
        begun = boot_time()
        while True:
            try:
                owner = await self._read()
                break
            except OSError as error:
                if boot_time() - begun > SILENT_SECONDS:
                    raise AttemptFailed(
                        Reason.DIRECTORY_UNREACHABLE,
                        f"the fence in {self._at.site.config.path} cannot be read: "
                        f"{error.strerror or error}",
                    ) from error
                await asyncio.sleep(0.5)
        by = overtaken_by(owner, me=self._me(attempt))
        if by is not None:
            raise AttemptFailed(
                Reason.FENCE_TAKEN,
                f"{self._at.site.config.path} belongs to {by}: no trainer is started here",
            )

    # --- claiming ---

    async def claim(self, directive: Directive) -> bool:
        """Write the attempt of a prepare. False where another job has the directory, which is
        then reported. Raises AttemptFailed."""
        at = self._at
        if not self.claims:
            return True
        if self._settling is not None:
            self._settling.cancel()
        await self._make_directory()
        at.reporter.set(directory=None)
        me = self._me(directive.attempt)
        found = await self._write(me, may_claim=directive.may_claim)
        match found:
            case Held(owner, job):
                at.reporter.set(fence_owner=owner, listed=True)
                at.fail(
                    Reason.RUN_IN_USE,
                    f"{at.site.config.path} belongs to job {job}, whose pods may still write there",
                    retrying=True,
                )
                return False
            case Passed(attempt):
                raise AttemptFailed(
                    Reason.FENCE_TAKEN,
                    f"attempt {attempt} of this job already writes {at.site.config.path}: this pod "
                    "is an older one's",
                )
            case Free(followed):
                log.info("the directory is attempt %d's", directive.attempt)
                told = DirectoryFence(attempt=directive.attempt, followed=followed)
                at.reporter.set(directory=told)
                self._was_there, self._read_at = True, boot_time()
                self._settling = at.loop.call_later(SETTLED_SECONDS, self._settled, told)
        return True

    async def _make_directory(self) -> None:
        at, state = self._at, self._at.supervisor
        if state is None:
            return
        making = at.on_disk(at.directory.make, uid=state.uid, gid=state.gid)
        try:
            await asyncio.wait_for(making, CLAIM_SECONDS)
        except DirectoryProblem as problem:
            raise AttemptFailed(problem.reason, problem.message) from problem
        except TimeoutError:
            raise AttemptFailed(
                Reason.DIRECTORY_UNREACHABLE,
                f"{at.site.config.path} does not answer for {CLAIM_SECONDS:.0f} s",
            ) from None

    def _settled(self, told: DirectoryFence) -> None:
        at = self._at
        if at.reporter.current.directory == told:
            at.reporter.set(directory=told.model_copy(update={"settled": True}))

    async def until_settled(self) -> None:
        """Where no operator tells which older writers are proved ended: until every one of them
        has stopped itself."""
        while self._has_claimed and not self._is_first:
            told = self._at.reporter.current.directory
            if told is None or told.settled:
                return
            await asyncio.sleep(0.2)

    async def _write(self, me: Self, *, may_claim: bool) -> Free | Held | Passed:
        at = self._at
        config = at.site.config

        def work() -> Free | Held | Passed:
            there = read_fence(at.site.path)
            self._is_first = there is None
            found = claimable(there, me=me, may_claim=may_claim)
            if isinstance(found, Free):
                write_fence(
                    at.site.path,
                    DirectoryOwner(
                        cluster_uid=me.cluster_uid,
                        job_uid=me.job_uid,
                        job=f"{config.namespace}/{config.job}",
                        attempt=me.attempt,
                        written_at=time.time(),
                    ),
                )
            return found

        begun = boot_time()
        while True:
            try:
                return await asyncio.to_thread(self._writes.call, work, seconds=CLAIM_SECONDS)
            except OSError as error:
                # Replaced under the reader, or written by two at once: worth another look.
                if isinstance(error, Hangs) or boot_time() - begun > CLAIM_SECONDS:
                    if isinstance(error, Hangs):
                        reason, text = Reason.DIRECTORY_UNREACHABLE, str(error.strerror)
                    else:
                        problem = problem_of(error, at.site.path, "write .rtj/fence in")
                        reason, text = problem.reason, problem.message
                    raise AttemptFailed(reason, f"{config.path}: {text}") from error
                await asyncio.sleep(0.5)

    @property
    def _has_claimed(self) -> bool:
        told = self._at.reporter.current.directory
        return self.claims and told is not None and told.attempt == self._at.attempt

    def _stands(self, owner: DirectoryOwner) -> bool:
        me = self._me()
        return owner.released or (me.owns(owner) and owner.attempt == me.attempt)

    async def _restore_claim(self) -> None:
        log.warning("the fence in %s is not what was written there", self._at.site.config.path)
        try:
            await self._write(self._me(), may_claim=False)
        except AttemptFailed as failed:
            log.warning("%s", failed)

    async def release(self) -> None:
        """The job is complete: whoever comes next need not ask for it."""
        at = self._at
        if not self._has_claimed:
            return

        def work() -> Free:
            owner = read_fence(at.site.path)
            if owner is not None and self._stands(owner):
                write_fence(at.site.path, owner.model_copy(update={"released": True}))
            return Free()

        try:
            await asyncio.to_thread(self._writes.call, work, seconds=CLAIM_SECONDS)
        except OSError as error:
            log.warning("the fence in %s is not released: %s", at.site.config.path, error)


def boot_time() -> float:
    """Seconds since the machine started, sleep included: a frozen node has not read either."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
