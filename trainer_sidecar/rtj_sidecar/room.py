"""Keeps room on the checkpoint directory's volume: who gives way is `checkpoints.budget`'s to say.

Runs in the directory's thread, after each look. Must never remove a save of the trainer's on a
volume that outlives the pod, and never one that is not durable while no newer one is.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from rtj_api.contract import HIDDEN_DIR
from rtj_api.reasons import Reason

from rtj_sidecar.checkpoints.budget import (
    NEWEST_KEPT,
    POD_VOLUME_SHARE,
    Usage,
    fullest,
    needless_saves,
)
from rtj_sidecar.checkpoints.foreign import are_foreign
from rtj_sidecar.checkpoints.ledger import read_ledger
from rtj_sidecar.checkpoints.pins import disk_room
from rtj_sidecar.checkpoints.quarantine import free_quarantine
from rtj_sidecar.checkpoints.restore_plan import paths_of
from rtj_sidecar.checkpoints.types import FoundSave, Snapshot
from rtj_sidecar.directory import Directory
from rtj_sidecar.directory_problem import DirectoryProblem
from rtj_sidecar.localsave import LocalSave

TRASH = "trash"


@dataclass(frozen=True, slots=True)
class PodVolume:
    """The directory's volume ends with its pod. `limit`: its sizeLimit in bytes, if it has one;
    `keep`: so many of the newest saves stay, and durable older ones go however empty it is."""

    limit: int | None = None
    keep: int | None = None


@dataclass(frozen=True, slots=True)
class Eased:
    """`removed`: root keys of local saves. `short`: bytes still missing for the next save."""

    removed: tuple[str, ...] = ()
    short: int = 0
    free: int = 0


def ease(directory: Directory, snapshot: Snapshot, *, pod_volume: PodVolume | None) -> Eased:
    """Give room back where it is short. Raises OSError where the disk does not answer."""
    root = directory.path
    gone: list[FoundSave] = []
    if pod_volume is not None and pod_volume.keep is not None:
        gone += _remove_needless(directory, snapshot, wanted=inf, keep=pod_volume.keep)
    if pod_volume is not None and (many := _too_many(root, pod_volume)):
        many -= free_quarantine(root, wanted=many)
        many -= _drop_mirrors(directory, many)
        if many > 0:
            left = replace(snapshot, saves=tuple(s for s in snapshot.saves if s not in gone))
            gone += _remove_needless(directory, left, wanted=many, keep=NEWEST_KEPT)
    removed = [save.root_key for save in gone]
    room = disk_room(root, largest_save=directory.sight.largest, wanted=0)
    short = room.reserve - room.free
    if short > 0:
        short -= free_quarantine(root, wanted=short)
        short -= _drop_mirrors(directory, short)
        short -= _drop_durable_pins(directory, short)
    return Eased(tuple(removed), max(0, short), room.free)


def _remove_needless(
    directory: Directory, snapshot: Snapshot, *, wanted: float, keep: int
) -> tuple[FoundSave, ...]:
    """Remove the trainer's own saves that durable newer ones have made needless; those removed."""
    ledger = read_ledger(directory.path)
    durable = {(e.root, e.fingerprint) for e in ledger.entries if e.n is not None}
    saves = needless_saves(
        snapshot,
        bytes_needed=wanted,
        is_own=lambda save: (
            ledger.find(save, run_id=directory.run_id) is not None
            and not are_foreign(save.all_files, directory.ledger.foreign)
        ),
        is_durable=lambda save: save.identity in durable,
        keep=keep,
    )
    for save in saves:
        _remove(directory.path, save)
    return saves


def make_room(directory: Directory, wanted: int) -> None:
    """Empty quarantine, then drop the oldest durable pins, until `wanted` bytes fit.

    Raises DirectoryProblem.
    """
    while True:
        room = disk_room(
            directory.path, largest_save=directory.sight.largest if wanted else 0, wanted=wanted
        )
        if wanted == 0 or room.fits:
            return
        if free_quarantine(directory.path, wanted=room.wanted + room.reserve - room.free) > 0:
            continue
        spare = [save for save in directory.saves if save.record.durable or save.record.over]
        if not spare:
            raise DirectoryProblem(
                Reason.DISK_FULL,
                f"{directory.path} has {room.free:,} bytes free; {wanted:,} are needed beside the "
                f"{room.reserve:,} that the next save may need. Make the volume larger, or let "
                "the trainer keep fewer checkpoints",
            )
        directory.drop(spare[0])


def _drop_mirrors(directory: Directory, wanted: int) -> int:
    """Drop what was fetched for others, oldest first; the bytes that came free."""
    return _drop(directory, [s for s in directory.saves if s.record.mirror], wanted)


def _drop_durable_pins(directory: Directory, wanted: int) -> int:
    """Drop pins that the store has, or that never will be in it, newest last; the bytes that
    may have come free."""
    spare = [s for s in directory.saves if s.record.durable or s.record.over]
    return _drop(directory, spare[:-1], wanted)


def _drop(directory: Directory, spare: list[LocalSave], wanted: int) -> int:
    freed = 0
    for save in spare:
        if freed >= wanted:
            break
        freed += save.bytes
        directory.drop(save)
    return freed


def _too_many(root: Path, volume: PodVolume) -> int:
    usages = [_disk_usage(root)]
    if volume.limit is not None and volume.limit < usages[0].limit:
        usages.append(Usage(_bytes_below(root), volume.limit))
    return fullest(usages).above(POD_VOLUME_SHARE)


def _disk_usage(root: Path) -> Usage:
    """As df(1) tells it: what only root may use counts for nobody."""
    status = os.statvfs(root)
    used = (status.f_blocks - status.f_bfree) * status.f_frsize
    return Usage(used, used + status.f_bavail * status.f_frsize)


def _bytes_below(root: Path) -> int:
    """Each inode once: a pin that is a link takes nothing."""
    held = {}
    for parent, _, names in os.walk(root):
        for name in names:
            try:
                found = os.lstat(os.path.join(parent, name))
            except OSError:
                continue
            held[(found.st_dev, found.st_ino)] = found.st_blocks * 512
    return sum(held.values())


def _remove(root: Path, save: FoundSave) -> None:
    """Out of sight by one rename, so that nobody takes half of it for a save; then gone."""
    trash = root / HIDDEN_DIR / TRASH
    for path in sorted(paths_of(save)):
        place = trash / path
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(root / path, place)
        except FileNotFoundError:
            continue  # the trainer's own rotation was first
    shutil.rmtree(trash, ignore_errors=True)
