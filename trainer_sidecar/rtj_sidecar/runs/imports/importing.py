"""A place's newest whole save becomes a committed save of a run: looked for, proved, copied.

In this order: what is there, which is newest, its files to where they can be proved, the gates of
its layout, every byte into the run with its hash, a second look that nobody wrote meanwhile, the
manifest last. What fails the gates is told by name and the next older one is taken. Must never
take what it cannot prove, and never leave a manifest of half a save.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rtj_api.reasons import Reason

from rtj_sidecar.checkpoints.layouts import GENERIC, layout_named
from rtj_sidecar.checkpoints.layouts.common import family_of, name_set
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.restore_plan import Chosen, turned
from rtj_sidecar.checkpoints.scan import take_snapshot
from rtj_sidecar.checkpoints.types import (
    Expectations,
    FileEntry,
    FoundSave,
    Gate,
    GateResult,
    Pointer,
    Snapshot,
    Status,
    Verdict,
)
from rtj_sidecar.checkpoints.types import Reason as Why
from rtj_sidecar.checkpoints.validate import judge
from rtj_sidecar.runs import keys
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.fence import lost_to
from rtj_sidecar.runs.history import History, read_history
from rtj_sidecar.runs.imports import playbook
from rtj_sidecar.runs.imports.choosing import Passed
from rtj_sidecar.runs.imports.places import Directory, Place
from rtj_sidecar.runs.imports.sending import send
from rtj_sidecar.runs.imports.surveying import How, Survey, Unusable
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.runs.records import Imported, ManifestRecord
from rtj_sidecar.runs.ships import reserve
from rtj_sidecar.runs.verify import check_files
from rtj_sidecar.stores.base import SourceChanged, StoreProblem, check_cancel

_FILES_AT_ONCE = 4
_QUIET = GateResult(Gate.QUIET, True, "nobody writes it")


@dataclass(frozen=True, slots=True)
class Proved:
    """A save that passed its gates; its files lie below `root`."""

    save: FoundSave
    verdict: Verdict
    root: Path
    fingerprint: str
    passed: tuple[Passed, ...] = ()
    beside: tuple[FileEntry, ...] = ()  # companions
    pointers: tuple[Pointer, ...] = ()


def first_proved(found: Survey, *, how: How) -> Proved:
    """The newest save that passes its gates. Raises Unusable with the words for each, and as
    `survey`."""
    if found.order.problem is not None:
        raise Unusable(found.order.problem, found.order.passed)
    torn: list[Passed] = []
    for save in found.order.saves:
        outcome = prove(found, save, how=how)
        if isinstance(outcome, Proved):
            return replace(outcome, passed=(*torn, *found.order.passed))
        torn.append(outcome)
        how.say(f"passed over {outcome}")
    told = "; ".join(str(each) for each in torn[:5])
    raise Unusable(
        f"{found.place.url} holds no checkpoint that is whole: {told}", (*torn, *found.order.passed)
    )


def prove(found: Survey, save: FoundSave, *, how: How) -> Proved | Passed:
    """Bring its files to where its gates can judge them. Raises as `survey`, Cancelled."""
    check_cancel(how.cancel)
    before = found.place.fingerprint(save)
    beside = _companions(found.look)
    how.say(f"proves {save.root_key} ({save.size:,} bytes)")
    files = (*save.all_files, *beside)
    root = found.place.bring(files, how.incoming, progress=how.progress, cancel=how.cancel)
    here, verdict = _judged(save, root, found)
    if not verdict.candidate:
        why: str | None = f"{verdict.status.value}: {verdict.message}"
    elif here.full_state is False:
        why = "it holds weights only"
    elif _could_be_anything(here, verdict):
        why = "nothing in it shows that it is a checkpoint: where it is one, say so with include"
    else:
        why = _contradicts(save, here)
    if why is None:
        pointers = _pointers(found.look, here)
        return Proved(here, verdict, root, before, beside=beside, pointers=pointers)
    if root == how.incoming:
        shutil.rmtree(root, ignore_errors=True)
    return Passed(save.root_key, why)


def bring_in(
    context: Context,
    history: History,
    proved: Proved,
    place: Place,
    *,
    fence: int,
    how: How,
    in_line: bool = False,
) -> ManifestRecord:
    """Copy a proved save into the run and commit it; the same save of the same place that was
    copied before is taken as it is. `fence`: the held one. `in_line`: it is a save of that fence
    like any other, and not one that is reached only by its name. Raises StoreProblem,
    SourceChanged, Cancelled, OSError."""
    origin = Imported(
        url=place.url, run="", name=proved.save.root_key, fingerprint=proved.fingerprint
    )
    if (known := _taken(history, origin)) is not None:
        return known
    save = proved.save
    ship = reserve(
        context,
        history,
        fence=fence,
        root_key=f"{place.url}/{save.root_key}",
        layout=save.layout,
        step=save.step,
    )
    at, name = SaveId(ship.fence, ship.n), ship.name
    if in_line and (known := _taken(read_history(context), origin)) is not None:
        # Another command that imports the same was faster: the line has it, before what follows.
        return known
    files = send(context, name, proved.save, proved.beside, proved.root, how=how)
    if place.fingerprint(save) != proved.fingerprint:
        raise SourceChanged(f"{place.url} {save.root_key}", "was written while it was copied")
    if findings := check_files(context, files, cancel=how.cancel):
        raise StoreProblem(
            Reason.STORE_UNREACHABLE,
            f"{name} did not arrive whole: {findings[0].message}",
            transient=True,
        )
    facts = {
        **save.facts,
        **({"origin": origin.dump()} if in_line else {}),
        "aliases": [entry.path for entry in save.aliases],
        "companions": [entry.path for entry in proved.beside],
        "pointers": [
            {"path": p.path, "kind": p.kind.value, "value": p.value} for p in proved.pointers
        ],
    }
    manifest = ManifestRecord(
        run_id=context.run_id,
        name=name,
        fence=at.fence,
        n=at.n,
        root_key=save.root_key,
        layout=save.layout,
        step=save.step,
        epoch=save.epoch,
        loss=save.loss,
        full_state=save.full_state,
        status=proved.verdict.status.value,
        world_size=1,
        attempt=0,
        job_uid=context.job_uid,
        cluster_uid=context.cluster_uid,
        committed_by_fence=fence,
        committed_at=context.now(),
        ranks=[0],
        files=files,
        gates=[
            {"name": gate.name.value, "passed": gate.passed, "detail": gate.detail}
            for gate in proved.verdict.gates
        ],
        facts=facts,
        imported=None if in_line else origin,
    )
    publish(context, manifest, fence=fence, what=f"{place.url} {save.root_key}")
    return manifest


def _taken(history: History, origin: Imported) -> ManifestRecord | None:
    for there, manifest in history.manifests.items():
        known = origin in (manifest.imported, _origin(manifest))
        if known and history.condemned(there) is None and not history.deleted(there):
            return manifest
    return None


def _origin(manifest: ManifestRecord) -> Imported | None:
    told = manifest.facts.get("origin")
    return Imported.model_validate(told) if isinstance(told, dict) else None


def publish(context: Context, manifest: ManifestRecord, *, fence: int, what: str) -> None:
    """Write the manifest of a copied save, last and once. Raises StoreProblem FENCE_TAKEN."""
    at = SaveId(manifest.fence, manifest.n)
    if lost := lost_to(context, fence):
        raise StoreProblem(
            Reason.FENCE_TAKEN,
            f"fence {lost.by} of run {context.run_id} was claimed while {what} was copied",
        )
    if not context.create(keys.manifest_key(at), manifest):
        # Something else was named there meanwhile: what was copied is not what bears that name.
        raise StoreProblem(
            Reason.FENCE_TAKEN,
            f"{at} of run {context.run_id} was given to another save while {what} was copied",
            transient=True,
        )


def _judged(save: FoundSave, root: Path, found: Survey) -> tuple[FoundSave, Verdict]:
    """By the gates, where its files lie by now, as they say of themselves there."""
    reader = Reader(root)
    if isinstance(found.place, Directory):
        here = save
    else:
        look = take_snapshot(reader=reader, layouts=found.layouts)
        same = [each for each in look.saves if each.root_key == save.root_key]
        here = same[0] if same else save
        if not same:
            return save, _no_save(save)
    layout = layout_named(here.layout)
    own = next((each for each in found.layouts if each.name == here.layout), layout)
    if own is None:
        return here, _no_save(save)
    earlier = _earlier(save, found.order.saves)
    expect = Expectations(name_sets=tuple(name_set(each) for each in earlier))
    verdict = judge(save=here, layout=own, reader=reader, expect=expect, quiet=_QUIET, closed=True)
    # What a manifest states stands in for what the content does not say.
    return (
        replace(
            here,
            step=save.step if here.step is None else here.step,
            epoch=save.epoch if here.epoch is None else here.epoch,
            loss=save.loss if here.loss is None else here.loss,
        ),
        verdict,
    )


def _earlier(save: FoundSave, newest_first: Sequence[FoundSave]) -> list[FoundSave]:
    """The two saves of its kind before it: they tell which files belong to one."""
    family = family_of(save)
    at = newest_first.index(save)
    older = [each for each in newest_first[at + 1 :] if family and family_of(each) == family]
    return older[:2] if len(older) >= 2 else []


def _could_be_anything(save: FoundSave, verdict: Verdict) -> bool:
    """No gate applies, nothing of its content could be read, and nobody said that it is one."""
    silent = verdict.status is Status.SETTLED and save.full_state is None
    return silent and save.layout != GENERIC


def _contradicts(seen: FoundSave, here: FoundSave) -> str | None:
    """Why the order it was chosen by does not hold for what its whole content says."""
    for word, before, now in (("step", seen.step, here.step), ("epoch", seen.epoch, here.epoch)):
        if before is not None and now is not None and before != now:
            return f"it was taken for {word} {before} and its content says {word} {now}"
    return None


def _no_save(save: FoundSave) -> Verdict:
    message = f"{save.root_key} is no checkpoint of a known layout once its files are here"
    return Verdict(Status.UNKNOWN, (), Why.MALFORMED, message, False)


def _companions(look: Snapshot) -> tuple[FileEntry, ...]:
    """Small files beside the saves, but for the manifest, which is the place's own."""
    return tuple(entry for entry in look.companions if entry.path != playbook.NAME)


def _pointers(look: Snapshot, save: FoundSave) -> tuple[Pointer, ...]:
    """The place's own "the newest is…", as they have to be for this save."""
    chosen = Chosen(root_key=save.root_key, step=save.step, epoch=save.epoch, files=())
    found = []
    for pointer in look.pointers:
        if pointer.names == save.root_key:
            found.append(pointer)
        elif (there := turned(pointer, chosen)) is not None:
            found.append(there)
    return tuple(found)
