"""One look at a damaged directory in a process of its own, with limits and under watch.

The child gets a bounded address space and CPU time, and an audit hook that remembers whatever would
run something, load something or write something: a checkpoint must cause none of that.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from kit.checkpoint_looks import judged
from kit.damage import Damage
from rtj_sidecar.checkpoints.beginning import Mixed, newest_of
from rtj_sidecar.checkpoints.types import Expectations, FoundSave, Verdict

MEMORY = 700 << 20
"""Bytes of address space above what the process has when it begins."""
CPU_SECONDS = 60
_WATCHED = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.", "exec")
_WATCHED += ("compile", "import", "pickle.find_class", "marshal.", "socket.", "ctypes.", "shutil.")
_WATCHED += ("os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.truncate")


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look found: root key -> (status, reason, message, layout)."""

    saves: dict[str, tuple[str, str, str, str]]
    resumed: str | None
    """The root key of the save that a run beginning here would take."""
    caused: tuple[str, ...]
    """Audit events that a look must not cause."""
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Amid:
    """A damage that is done when the look first opens the file at `path`, before it reads."""

    path: str
    damage: Damage


class TooMuch(AssertionError):
    """The look ended by a limit: memory or time."""


def look(
    root: Path,
    *,
    world_size: int | None = 2,
    include: tuple[str, ...] = (),
    with_weights: bool = False,
    amid: Amid | None = None,
) -> Seen:
    """Raises TooMuch where the look did not end within its limits, or where `amid` never came."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(
        target=_child, args=(there, root, world_size, include, with_weights, amid), daemon=True
    )
    child.start()
    there.close()
    try:
        told = here.recv() if here.poll(4 * CPU_SECONDS) else None
    except EOFError:
        told = None
    finally:
        child.kill()
        child.join()
        here.close()
    if told is None or "error" in told:
        raise TooMuch(f"no answer within the limits: {told}")
    saves = {key: tuple(value) for key, value in told["saves"].items()}
    return Seen(saves, told["resumed"], tuple(told["caused"]), told["peak"])


def resumed_from(
    found: dict[str, tuple[FoundSave, Verdict]], *, with_weights: bool = False
) -> str | None:
    """What a run that begins here takes: the newest full candidate in an order that is known."""
    usable = [
        save
        for save, verdict in found.values()
        if verdict.candidate
        and (save.step is not None or save.epoch is not None)
        and (with_weights or save.full_state is not False)
    ]
    newest = newest_of(usable)
    return None if newest is None or isinstance(newest, Mixed) else newest.root_key


def _child(
    pipe: Connection,
    root: Path,
    world_size: int | None,
    include: tuple[str, ...],
    with_weights: bool,
    amid: Amid | None,
) -> None:
    caused: list[str] = []
    expect = Expectations(world_size=world_size)
    judged(root.parent / "nothing", include=include, expect=expect)  # imports are done before
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    watching, waits = True, amid is not None

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal watching, waits
        if waits and amid is not None and _opens(event, arguments, amid.path):
            waits = watching = False
            amid.damage(root)
            watching = True
        if watching and (event.startswith(_WATCHED) or _writes(event, arguments)):
            caused.append(f"{event} {arguments!r}"[:200])

    sys.addaudithook(watch)
    try:
        found = judged(root, include=include, expect=expect)
        watching = False
    except BaseException as error:
        pipe.send({"error": f"{type(error).__name__}: {error}"[:500]})
        os._exit(1)
    if waits:
        pipe.send({"error": f"{amid} was never opened"})
        os._exit(1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    saves = {
        key: (verdict.status.value, verdict.reason.value, verdict.message, save.layout)
        for key, (save, verdict) in found.items()
    }
    for save, verdict in found.values():
        json.dumps([dict(save.facts), dict(verdict.facts)], allow_nan=False)
    told = {"saves": saves, "resumed": resumed_from(found, with_weights=with_weights)}
    pipe.send({**told, "caused": caused, "peak": peak * 1024})
    os._exit(0)


def _opens(event: str, arguments: tuple[object, ...], path: str) -> bool:
    """The look opens each file by its last name, below a descriptor of its directory."""
    return event == "open" and arguments[0] == Path(path).name


def _writes(event: str, arguments: tuple[object, ...]) -> bool:
    if event != "open" or len(arguments) < 3:
        return False
    flags = arguments[2]
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
