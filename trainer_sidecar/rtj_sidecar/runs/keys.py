"""Where each record of a run lies in the store, and back. Pure; the layout is DESIGN §6.

Keys are relative to the run. Order comes from the integers in a key, never from its text, and what
does not parse is not ours: it is left alone.
"""

from __future__ import annotations

import re
from typing import NamedTuple

RUN = "run.json"
INDEX = "manifest.json"
FENCES = "fences/"
SHIPS = "ships/"
PARTS = "parts/"
MANIFESTS = "manifests/"
MARKS = "marks/"
BUNDLES = "bundles/"
MARK_BUNDLES = "bundles/marks/"
CHECKPOINTS = "checkpoints/"
READY = "ready/"

_NAME = re.compile(r"f(\d+)-n(\d+)(?:-s(\d+))?")
_FENCE = re.compile(r"fences/(\d{8,})\.json")
_SHIP = re.compile(r"ships/f(\d+)/(\d+)\.json")
_PART = re.compile(r"parts/f(\d+)/(\d+)/(\d+)\.json")
_MANIFEST = re.compile(r"manifests/f(\d+)-n(\d+)\.json")
_BUNDLE = re.compile(r"bundles/f\d+-n\d+_f\d+-n\d+\.json")
_MARK_BUNDLE = re.compile(r"bundles/marks/[0-9a-f]{16}\.json")
_READY = re.compile(r"ready/f(\d+)/(\d+)\.json")
_MARK = re.compile(r"marks/f(\d+)-n(\d+)/(\d+)\.json")


class SaveId(NamedTuple):
    """The n-th save of a fence. Orders saves of one fence; across fences only lineage does."""

    fence: int
    n: int

    def __str__(self) -> str:
        return f"f{self.fence}-n{self.n}"


def save_name(save: SaveId, step: int | None) -> str:
    """`f<fence>-n<n>-s<step>`; without the step where it is unknown. The step is only a label."""
    return str(save) if step is None else f"{save}-s{step}"


def parse_name(name: str) -> SaveId | None:
    match = _NAME.fullmatch(name)
    return SaveId(int(match[1]), int(match[2])) if match else None


def step_in(name: str) -> int | None:
    match = _NAME.fullmatch(name)
    return int(match[3]) if match and match[3] else None


def fence_key(fence: int) -> str:
    return f"{FENCES}{fence:08}.json"


def parse_fence(key: str) -> int | None:
    match = _FENCE.fullmatch(key)
    return int(match[1]) if match else None


def ship_key(save: SaveId) -> str:
    return f"{SHIPS}f{save.fence}/{save.n}.json"


def parse_ship(key: str) -> SaveId | None:
    return _id(_SHIP.fullmatch(key))


def part_key(save: SaveId, rank: int) -> str:
    return f"{PARTS}f{save.fence}/{save.n}/{rank}.json"


def parse_part(key: str) -> tuple[SaveId, int] | None:
    match = _PART.fullmatch(key)
    return (SaveId(int(match[1]), int(match[2])), int(match[3])) if match else None


def manifest_key(save: SaveId) -> str:
    return f"{MANIFESTS}{save}.json"


def parse_manifest(key: str) -> SaveId | None:
    return _id(_MANIFEST.fullmatch(key))


def bundle_key(first: SaveId, last: SaveId) -> str:
    return f"{BUNDLES}{first}_{last}.json"


def is_bundle(key: str) -> bool:
    return _BUNDLE.fullmatch(key) is not None


def mark_bundle_key(digest: str) -> str:
    """`digest`: 16 hex digits, of the marks in it."""
    return f"{MARK_BUNDLES}{digest}.json"


def is_mark_bundle(key: str) -> bool:
    return _MARK_BUNDLE.fullmatch(key) is not None


def marks_of(save: SaveId) -> str:
    return f"{MARKS}{save}/"


def mark_key(save: SaveId, k: int) -> str:
    return f"{marks_of(save)}{k}.json"


def parse_mark(key: str) -> tuple[SaveId, int] | None:
    match = _MARK.fullmatch(key)
    return (SaveId(int(match[1]), int(match[2])), int(match[3])) if match else None


def ready_key(fence: int, rank: int) -> str:
    return f"{READY}f{fence}/{rank}.json"


def parse_ready(key: str) -> tuple[int, int] | None:
    """(fence, rank)."""
    match = _READY.fullmatch(key)
    return (int(match[1]), int(match[2])) if match else None


def data_key(name: str, path: str, *, rank: int | None = None) -> str:
    """Where a file of a save lies; with `rank`, as that rank's own version of a shared path."""
    own = "" if rank is None else f".rank{rank}/"
    return f"{CHECKPOINTS}{name}/{own}{path}"


def save_of(key: str) -> SaveId | None:
    """Whose file lies at a data key."""
    name = key.removeprefix(CHECKPOINTS).partition("/")[0]
    return parse_name(name) if key.startswith(CHECKPOINTS) else None


def _id(match: re.Match[str] | None) -> SaveId | None:
    return SaveId(int(match[1]), int(match[2])) if match else None
