"""What a place holds and which of it is the newest: the look before an import. Reads only.

A manifest in the playbook's form is heeded where it is named and where it lies beside the saves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rtj_sidecar.checkpoints.layouts import AUTO, layouts_for
from rtj_sidecar.checkpoints.layouts.base import Layout
from rtj_sidecar.checkpoints.types import Snapshot
from rtj_sidecar.runs.imports import playbook
from rtj_sidecar.runs.imports.choosing import Order, Passed, by_playbook, in_order
from rtj_sidecar.runs.imports.places import Bucket, Directory, Place, within
from rtj_sidecar.stores.base import Progress

_TOLD = 5


class Unusable(Exception):
    """Why nothing of a place can be taken, with the remedy. `passed`: what was looked at."""

    def __init__(self, message: str, passed: Sequence[Passed] = ()) -> None:
        super().__init__(message)
        self.passed = tuple(passed)


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """What an import goes by. `incoming`: an empty place on this disk for what a bucket holds."""

    incoming: Path
    layout: str = AUTO
    include: tuple[str, ...] = ()
    progress: Progress | None = None
    cancel: threading.Event | None = None
    say: Callable[[str], None] = field(default=lambda _: None)


@dataclass(frozen=True, slots=True)
class Survey:
    """What a place holds. `order.problem` set: nothing can be chosen."""

    place: Place
    look: Snapshot
    order: Order
    layouts: tuple[Layout, ...]


def survey(place: Place, *, how: How) -> Survey:
    """Looks, and reads the manifest that is named or lies there. Raises Unusable, SourceChanged,
    StoreProblem, OSError, UnknownLayoutError."""
    named = _named_manifest(place)
    if named is not None:
        place, name = named
        found = _playbook_of(place, name, must=True)
    else:
        name = playbook.NAME
        found = _playbook_of(place, name, must=False)
    include = how.include
    if found is not None:
        # What a manifest names is a checkpoint whatever its form.
        include = (*include, *(each.path.rpartition("/")[2] for each in found.entries))
    layouts = layouts_for(layout=how.layout, include=include)
    place, seen = within(place, layouts)
    look = seen.found
    torn = tuple(Passed(key, f"Torn: {detail}") for key, detail in seen.broken.items())
    latest, passed, saves = None, torn, look.saves
    if found is not None:
        listed = by_playbook(look, found, place=place.url)
        latest, passed, saves = listed.latest, (*torn, *listed.passed), listed.saves
        if not saves:
            problem = f"{place.url}/{name} names no checkpoint that is there and valid"
            order = Order(passed=passed, problem=_with(problem, passed))
            return Survey(place, look, order, layouts)
    whole = [save for save in saves if save.root_key not in seen.broken]
    if saves and not whole:
        problem = f"{place.url} holds no checkpoint that is whole"
        return Survey(place, look, Order(passed=passed, problem=_with(problem, passed)), layouts)
    order = in_order(whole, place=place.url, latest=latest)
    return Survey(place, look, replace(order, passed=(*passed, *order.passed)), layouts)


def _with(problem: str, passed: Sequence[Passed]) -> str:
    told = "; ".join(str(each) for each in passed[:_TOLD])
    return f"{problem}: {told}" if told else problem


def _named_manifest(place: Place) -> tuple[Place, str] | None:
    """(its directory, its name) where the place is a file that ends in .json."""
    if not place.url.endswith(".json"):
        return None
    if isinstance(place, Directory):
        if place.only is not None or not place.root.is_file():
            return None
        return replace(place, root=place.root.parent), place.root.name
    if isinstance(place, Bucket) and place.only is None:
        parent, _, name = place.prefix.rpartition("/")
        there = Bucket(place.store, parent)
        return (there, name) if there.store.head(place.prefix) is not None else None
    return None


def _playbook_of(place: Place, name: str, *, must: bool) -> playbook.Playbook | None:
    """`must` False: a manifest.json that is in another form is another's business."""
    try:
        data = place.small(name, limit=playbook.LARGEST)
        return None if data is None else playbook.read_playbook(data)
    except playbook.NoPlaybook as error:
        if not must:
            return None
        raise Unusable(
            f"{place.url}/{name} is not a manifest in the playbook's form: {error}. Write "
            '{"checkpoints": [{"path", "epoch", "step", "validation_loss", "timestamp", '
            '"is_valid"}], "latest_valid_checkpoint"}, or name the directory itself'
        ) from None
    except ValueError as error:
        if not must:
            return None
        raise Unusable(str(error)) from None
