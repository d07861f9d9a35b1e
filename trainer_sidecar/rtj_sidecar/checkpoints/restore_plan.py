"""What has to happen on this disk so that a trainer finds exactly the chosen save. Pure.

Nothing is ever deleted: what is torn, newer than the chosen save, or in the way goes to quarantine.
The plan depends only on what is there now, so a restore that was interrupted anywhere is finished
by planning again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field

from rtj_sidecar.checkpoints.begun import begun_after, begun_at_all
from rtj_sidecar.checkpoints.foreign import are_foreign, could_be_resumed, is_foreign
from rtj_sidecar.checkpoints.layouts.grouping import name_of, parent_of
from rtj_sidecar.checkpoints.paths import resolve_link, safe_relative
from rtj_sidecar.checkpoints.types import (
    FoundSave,
    Pointer,
    PointerKind,
    Reason,
    Snapshot,
    Status,
    Verdict,
    WantedFile,
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The save to restore, as its manifest tells it for this rank.

    `files`: everything of it that belongs here, aliases included. `companions` and `pointers` as
    they were after that save. All paths relative to the checkpoint directory.
    """

    root_key: str
    step: int | None
    epoch: int | None
    files: tuple[WantedFile, ...]
    companions: tuple[WantedFile, ...] = ()
    pointers: tuple[Pointer, ...] = ()


@dataclass(frozen=True, slots=True)
class LocalBytes:
    """What is known of bytes on this disk: relative path -> SHA-256. See `restore.survey`.

    `in_place`: under their own names. `incoming`: fetched already. `pinned`: (pin id, hash) of a
    pin's copy. `extended`: companions that only grew since (logs): they stay as they are.
    """

    in_place: Mapping[str, str] = field(default_factory=dict)
    incoming: Mapping[str, str] = field(default_factory=dict)
    pinned: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    extended: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The steps, in the order in which they are done. `fetch` must be done by the caller, into
    `restore.incoming_dir`, before the plan can be applied."""

    root_key: str
    valid: tuple[str, ...]
    """Files that are right where they are: nothing is moved for them."""
    fetch: tuple[WantedFile, ...]
    from_pins: tuple[tuple[str, WantedFile], ...]
    """(pin id, file): copied from a pin on this disk."""
    place: tuple[WantedFile, ...]
    """Every file that is moved into place (fetched, or copied from a pin)."""
    quarantine: tuple[str, ...]
    keep: frozenset[str]
    """Those of `quarantine` that are a person's own: moved where nothing is ever deleted."""
    pointers: tuple[Pointer, ...]
    touch: tuple[str, ...]
    """Files whose mtime is set to now, all alike, so that the chosen save is the newest. Newest
    first, so that a commit marker never looks older than what it marks, wherever we are stopped."""
    after_ns: int = 0
    """The newest mtime among the saves that stay: a clock that went back must not hide ours."""

    @property
    def bytes_to_fetch(self) -> int:
        return sum(wanted.size for wanted in self.fetch)

    @property
    def bytes_wanted(self) -> int:
        return sum(wanted.size for wanted in self.place)


def plan_restore(
    *,
    snapshot: Snapshot,
    verdicts: Mapping[tuple[str, str], Verdict],
    chosen: Chosen,
    local: LocalBytes,
    disowned: Collection[tuple[str, str]] = (),
    foreign: Collection[str] = (),
) -> RestorePlan:
    """The plan. `verdicts` by `FoundSave.identity`; a save without one counts as not torn.
    `disowned`: identities of saves that may not stay. `foreign`: marks of files that do, unless a
    trainer could take them for its newest save (`checkpoints.foreign`).

    Raises UnsafePathError for a path in the manifest that would leave the directory.
    """
    wanted = {safe_relative(file.path): file for file in chosen.files}
    companions = {safe_relative(file.path): file for file in chosen.companions}
    companions = {
        path: file
        for path, file in companions.items()
        if path not in wanted and path not in local.extended
    }
    needed = {**companions, **wanted}
    valid = {path for path, file in needed.items() if local.in_place.get(path) == file.sha256}
    place = [file for path, file in needed.items() if path not in valid]
    fetch, from_pins = [], []
    for file in place:
        if local.incoming.get(file.path) == file.sha256:
            continue
        pin = local.pinned.get(file.path)
        if pin is not None and pin[1] == file.sha256:
            from_pins.append((pin[0], file))
        else:
            fetch.append(file)
    stays = _Stays(verdicts, chosen, frozenset(disowned), frozenset(foreign))
    moved = _quarantined(snapshot, stays, set(wanted), {f.path for f in place})
    moved |= _replaced_by_copies(snapshot, chosen, set(wanted))
    rival = _newest_rival(snapshot, set(wanted), moved)
    return RestorePlan(
        root_key=chosen.root_key,
        valid=tuple(sorted(valid)),
        fetch=tuple(fetch),
        from_pins=tuple(from_pins),
        place=tuple(place),
        quarantine=_outermost(moved),
        keep=_kept(snapshot, _outermost(moved), foreign),
        pointers=_pointers(snapshot, chosen, moved),
        touch=_touch(snapshot, set(wanted), {f.path for f in place}, rival),
        after_ns=rival,
    )


def plan_set_aside(snapshot: Snapshot, *, foreign: Collection[str] = ()) -> RestorePlan:
    """The plan for a start from nothing: every save goes to quarantine that the trainer could
    begin from, with every pointer that names one. A person's weights and data stay."""
    going: set[str] = set()
    for save in snapshot.saves:
        if could_be_resumed(save) or not are_foreign(save.all_files, foreign):
            going |= paths_of(save)
    going |= {entry.path for entry in snapshot.left} | begun_at_all(snapshot)
    going |= {p.path for p in snapshot.pointers if p.names is not None and _below(p.names, going)}
    return RestorePlan(
        root_key=".",
        valid=(),
        fetch=(),
        from_pins=(),
        place=(),
        quarantine=_outermost(going),
        keep=_kept(snapshot, _outermost(going), foreign),
        pointers=(),
        touch=(),
    )


def paths_of(save: FoundSave) -> set[str]:
    """What to move to move a whole save: its directory where it has one, and what lies beside."""
    paths = {entry.path for entry in save.all_files}
    if save.root_key in paths | {"."}:
        return paths
    return {save.root_key} | {p for p in paths if not p.startswith(f"{save.root_key}/")}


def _kept(snapshot: Snapshot, going: Collection[str], foreign: Collection[str]) -> frozenset[str]:
    kept = set()
    for entry in snapshot.files if foreign else ():
        if is_foreign(entry, foreign):
            kept |= {entry.path, *_parents(entry.path)} & set(going)
    return frozenset(kept)


def _quarantined(snapshot: Snapshot, stays: _Stays, wanted: set[str], place: set[str]) -> set[str]:
    moved: set[str] = set()
    verdicts, chosen = stays.verdicts, stays.chosen
    above = {parent for path in wanted for parent in _parents(path)}
    for save in snapshot.saves:
        paths = {entry.path for entry in save.all_files}
        if save.root_key == chosen.root_key or paths & wanted:
            # The exact set: what the manifest does not name is of another save, or torn. Only a
            # whole `last.pt` of this very step may stay.
            verdict = verdicts.get(save.identity)
            sound = verdict is not None and verdict.candidate and save.step == chosen.step
            own = {entry.path for entry in save.files}
            inside = save.root_key in above
            if save.root_key != chosen.root_key and not sound and not inside:
                # They only share a file: an empty directory must not stay as the newest by name.
                paths = paths_of(save)
            moved |= (own if sound else paths) - wanted
        elif not stays.holds(save):
            inside = save.root_key in above
            moved |= paths if inside else paths_of(save)
    moved |= {entry.path for entry in snapshot.left} - wanted
    staying = {s.root_key for s in snapshot.saves if stays.holds(s)} | {chosen.root_key}
    moved |= begun_after(snapshot, root_key=chosen.root_key, staying=staying)
    present = {entry.path for entry in snapshot.lying}
    if chosen.root_key in above:
        prefix = f"{chosen.root_key}/"
        moved |= {p for p in present if p.startswith(prefix) and p not in wanted}
    # Whatever stands where a file must go, or where one of its directories must be.
    occupied = present | {link.path for link in snapshot.links} | {o.path for o in snapshot.odd}
    directories = {parent for path in present for parent in _parents(path)}
    for path in place:
        moved |= {path} & (occupied | directories)
        moved |= _parents(path) & occupied
    return moved


def _replaced_by_copies(snapshot: Snapshot, chosen: Chosen, wanted: set[str]) -> set[str]:
    """Files of a fixed name that give way to a copy of the chosen save's file: they may be the only
    ones with their bytes."""
    copies = {pointer.path for pointer in chosen.pointers if pointer.kind is PointerKind.COPY}
    return {entry.path for entry in snapshot.files if entry.path in copies - wanted}


@dataclass(frozen=True, slots=True)
class _Stays:
    """Which saves beside the chosen one stay where they are."""

    verdicts: Mapping[tuple[str, str], Verdict]
    chosen: Chosen
    disowned: frozenset[tuple[str, str]]
    foreign: frozenset[str]

    def holds(self, save: FoundSave) -> bool:
        """Only what is provably not newer than the chosen save, and not torn; and what is a
        person's own, unless a trainer could take it for the newest save."""
        verdict = self.verdicts.get(save.identity)
        if save.identity in self.disowned:
            return False
        older: bool | None = None
        same = False
        if save.step is not None and self.chosen.step is not None:
            older, same = save.step < self.chosen.step, save.step == self.chosen.step
        elif save.epoch is not None and self.chosen.epoch is not None:
            older, same = save.epoch < self.chosen.epoch, save.epoch == self.chosen.epoch
        if are_foreign(save.all_files, self.foreign) and (older or not could_be_resumed(save)):
            return True
        if verdict is not None and Reason.BEING_REMOVED is verdict.reason:
            return False  # nobody goes on removing it: the trainer has ended
        if verdict is not None and verdict.status is Status.TORN:
            return False
        return bool(older) or (same and verdict is not None and verdict.candidate)


def _pointers(snapshot: Snapshot, chosen: Chosen, moved: set[str]) -> tuple[Pointer, ...]:
    """The manifest's own pointers as they were; every other one here is turned to the chosen save
    unless it names a save that stays (a `best` link to an older one)."""
    files = {file.path for file in chosen.files}
    wanted = {
        safe_relative(pointer.path): pointer
        for pointer in chosen.pointers
        if pointer.path not in files
    }
    leaving = frozenset(_outermost(moved))
    for pointer in snapshot.pointers:
        if pointer.path in wanted or _below(pointer.path, leaving):
            continue
        if pointer.names == chosen.root_key:
            continue
        stays = pointer.names is not None and not _below(pointer.names, leaving)
        if stays and "best" in name_of(pointer.path):
            continue
        if (there := turned(pointer, chosen)) is not None:
            wanted[pointer.path] = there
    return tuple(
        pointer
        for _, pointer in sorted(wanted.items())
        if pointer.kind is PointerKind.TEXT or _leads_somewhere(pointer, files)
    )


def _leads_somewhere(pointer: Pointer, files: Collection[str]) -> bool:
    """Within the directory; and a copy to a file of the save, which will be there."""
    target = resolve_link(link=pointer.path, target=pointer.value)
    return target is not None and (pointer.kind is PointerKind.LINK or target in files)


def turned(pointer: Pointer, chosen: Chosen) -> Pointer | None:
    """The same pointer, naming the chosen save in the same style; None where it cannot."""
    if chosen.root_key == ".":
        return None
    if pointer.kind is PointerKind.TEXT and pointer.value.strip().isdecimal():
        if chosen.step is None:
            return None
        text = str(chosen.step)
    else:
        text = _relative(chosen.root_key, parent_of(pointer.path))
    if pointer.kind is PointerKind.TEXT and pointer.value.endswith("\n"):
        text += "\n"
    return Pointer(pointer.path, pointer.kind, text, chosen.root_key)


def _relative(path: str, directory: str) -> str:
    parts, base = path.split("/"), [] if directory == "." else directory.split("/")
    while parts and base and parts[0] == base[0]:
        parts, base = parts[1:], base[1:]
    return "/".join([".."] * len(base) + parts)


def _newest_rival(snapshot: Snapshot, wanted: set[str], moved: set[str]) -> int:
    """The newest mtime of a save that stays beside the chosen one; 0 where there is none."""
    leaving = frozenset(_outermost(moved))
    times = [
        entry.mtime_ns
        for save in snapshot.saves
        for entry in save.all_files
        if entry.path not in wanted and not _below(entry.path, leaving)
    ]
    return max(times, default=0)


def _touch(snapshot: Snapshot, wanted: set[str], place: set[str], rival: int) -> tuple[str, ...]:
    """Files of the save that stay, if one is placed or a save that stays looks as new as it."""
    here = [entry for entry in snapshot.lying if entry.path in wanted]
    late = any(entry.mtime_ns <= rival for entry in here)
    if not (place & wanted or late):
        return ()
    staying = [entry for entry in here if entry.path not in place]
    return tuple(e.path for e in sorted(staying, key=lambda e: (-e.mtime_ns, e.path)))


def _parents(path: str) -> set[str]:
    parts = path.split("/")[:-1]
    return {"/".join(parts[: depth + 1]) for depth in range(len(parts))}


def _outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """The paths without those that lie below another one of them."""
    chosen = set(paths)
    return tuple(sorted(path for path in chosen if not _parents(path) & chosen))


def _below(path: str, roots: Set[str]) -> bool:
    return path in roots or not _parents(path).isdisjoint(roots)
