"""Groups files into saves by directory and step: shared by the layouts without a fixed shape.

One save is everything that the same save of the trainer finished: a numbered directory with all
below it, or the files in one directory that bear the same number. Files of a fixed name
(`last.pt`) are grouped by the layouts, by the step in their content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from rtj_sidecar.checkpoints.layouts.names import NO_NUMBERS, Numbers, is_temporary, numbers_in
from rtj_sidecar.checkpoints.types import FileEntry


@dataclass(frozen=True, slots=True)
class Group:
    """Files that may be one save. `directory` where the save is a whole directory."""

    root: str
    directory: bool
    numbers: Numbers
    seeds: tuple[FileEntry, ...]
    others: tuple[FileEntry, ...]

    @property
    def files(self) -> tuple[FileEntry, ...]:
        return tuple(sorted(self.seeds + self.others, key=lambda entry: entry.path))


def parent_of(path: str) -> str:
    """The directory of a path, `.` for the checkpoint directory itself."""
    return path.rpartition("/")[0] or "."


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


def owner_directory(path: str) -> tuple[str, Numbers] | None:
    """The nearest directory whose number says more than the file's own: the save's root."""
    own = numbers_in(name_of(path))
    parts = path.split("/")[:-1]
    while parts:
        numbers = numbers_in(parts[-1])
        if numbers:
            same = (numbers.step, numbers.epoch, numbers.weak) == (own.step, own.epoch, own.weak)
            if numbers.rank_of_word > own.rank_of_word or same:
                return "/".join(parts), numbers
            return None
        parts.pop()
    return None


def group(files: Iterable[FileEntry], *, is_seed: Callable[[FileEntry], bool]) -> tuple[Group, ...]:
    """All groups with at least one seed; a seed without a number is a group of its own."""
    usable = [entry for entry in files if not is_temporary(entry.path)]
    seeds = [entry for entry in usable if is_seed(entry)]
    owners: dict[str, tuple[Numbers, list[FileEntry]]] = {}
    numbered: dict[tuple[str, Numbers], list[FileEntry]] = {}
    single: list[FileEntry] = []
    for entry in seeds:
        owner = owner_directory(entry.path)
        numbers = numbers_in(name_of(entry.path))
        if owner is not None:
            owners.setdefault(owner[0], (owner[1], []))[1].append(entry)
        elif numbers:
            key = (parent_of(entry.path), _without_rank(numbers))
            numbered.setdefault(key, []).append(entry)
        else:
            single.append(entry)
    _join_reused_directories(owners, single)
    taken = {entry.path for entry in seeds}
    others: dict[str | tuple[str, Numbers], list[FileEntry]] = {}
    for entry in usable:
        if entry.path not in taken and (home := _home(entry.path, owners, numbered)) is not None:
            others.setdefault(home, []).append(entry)
    groups = [
        Group(root, True, numbers, tuple(found), tuple(others.get(root, ())))
        for root, (numbers, found) in owners.items()
    ]
    for key, found in numbered.items():
        root = min(entry.path for entry in found)
        groups.append(Group(root, False, key[1], tuple(found), tuple(others.get(key, ()))))
    groups += [Group(entry.path, False, NO_NUMBERS, (entry,), ()) for entry in single]
    return tuple(groups)


def _without_rank(numbers: Numbers) -> Numbers:
    return replace(numbers, rank_of_word=1)


def _join_reused_directories(
    owners: dict[str, tuple[Numbers, list[FileEntry]]], single: list[FileEntry]
) -> None:
    """A directory without a number that holds an optimizer beside other seeds is one save."""
    by_parent: dict[str, list[FileEntry]] = {}
    for entry in single:
        by_parent.setdefault(parent_of(entry.path), []).append(entry)
    for parent, found in by_parent.items():
        names = [name_of(entry.path).lower() for entry in found]
        if parent != "." and len(found) > 1 and any(name.startswith("optim") for name in names):
            owners[parent] = (NO_NUMBERS, found)
            for entry in found:
                single.remove(entry)


def _home(
    path: str,
    owners: dict[str, tuple[Numbers, list[FileEntry]]],
    numbered: dict[tuple[str, Numbers], list[FileEntry]],
) -> str | tuple[str, Numbers] | None:
    """The group that a file which is no seed belongs to: a directory above it, or its number."""
    parts = path.split("/")[:-1]
    while parts:
        if "/".join(parts) in owners:
            return "/".join(parts)
        parts.pop()
    numbers = numbers_in(name_of(path))
    key = (parent_of(path), _without_rank(numbers))
    return key if numbers and key in numbered else None
