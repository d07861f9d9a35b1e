"""What the commands of `rtj checkpoints` say of a run's saves, and do to them. No arguments here.

Reading goes by the run's records; writing adds marks, which anybody may, and data is removed only
where no job holds the run. Must never give up the last valid save, whoever asks.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rtj_api.reasons import Reason
from rtj_sidecar.checkpoints import required
from rtj_sidecar.checkpoints.paths import UnsafePathError, safe_relative
from rtj_sidecar.runs import keys
from rtj_sidecar.runs.fetch import FetchFailed
from rtj_sidecar.runs.history import History
from rtj_sidecar.runs.keeping import Keep, kept
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.runs.lineage import candidate, lineage
from rtj_sidecar.runs.records import FileRecord, ManifestRecord, MarkKind
from rtj_sidecar.runs.retain import Retained
from rtj_sidecar.runs.verify import Finding
from rtj_sidecar.stores.base import Progress, Reclasses
from rtj_sidecar.stores.local import hash_file

from rtj_cli.targets import Place
from rtj_cli.telling import Code, say

LATEST = "latest"


class Refused(Exception):
    """It is not done; with the exit code."""

    def __init__(self, message: str, code: Code = Code.REFUSED) -> None:
        super().__init__(message)
        self.code = code


def listed(history: History) -> list[dict[str, Any]]:
    """Every save of the run, as the records tell it: the line newest first, then the branches."""
    chain = lineage(history)
    current = current_of(history)
    rows = [
        _row(history, save, branch=save in chain.branches, current=save == current)
        for save in (*chain.saves, *reversed(chain.branches))
    ]
    gone = [save for save in history.manifests if history.deleted(save)]
    return rows + [_row(history, save, branch=False, current=False) for save in sorted(gone)]


def current_of(history: History) -> SaveId | None:
    """What a job of the run would resume from, if it is whole."""
    for save in lineage(history).saves:
        manifest = history.manifests.get(save)
        if manifest and manifest.full_state is not False and not history.condemned(save):
            return save
    return None


def _row(history: History, save: SaveId, *, branch: bool, current: bool) -> dict[str, Any]:
    manifest, seen = history.manifests.get(save), candidate(history, save)
    condemned = history.condemned(save)
    state = "uploading" if manifest is None else "valid"
    if condemned is not None:
        state = condemned.kind.value
    elif seen.invalid is not None:
        state = "unreadable"
    if history.deleted(save):
        state = "going"
    return {
        "name": seen.name,
        "step": seen.step,
        "epoch": seen.epoch,
        "loss": seen.loss,
        "bytes": seen.bytes,
        "files": len(manifest.files) if manifest is not None else None,
        "layout": manifest.layout if manifest is not None else None,
        "status": manifest.status if manifest is not None else None,
        "fullState": seen.full_state,
        "committedAt": manifest.committed_at if manifest is not None else None,
        "state": state,
        "current": current,
        "branch": branch,
        "pinned": history.pinned(save),
        "archived": history.archived(save),
        "why": condemned.message if condemned is not None else None,
    }


def one(place: Place, history: History, name: str) -> tuple[SaveId, ManifestRecord]:
    """The save of that name; `latest`: what a job would resume from. Raises Refused."""
    save = current_of(history) if name == LATEST else keys.parse_name(name)
    manifest = history.manifests.get(save) if save is not None else None
    if save is None or manifest is None or (name != LATEST and not _is_called(name, manifest)):
        known = [each["name"] for each in listed(history) if each["files"] is not None]
        some = ", ".join(known[:10]) + (", …" if len(known) > 10 else "")
        what = "no valid save" if name == LATEST else f"no committed save {name}"
        raise Refused(f"run {place.url} holds {what}; it has: {some or 'none'}", Code.NOT_FOUND)
    return save, manifest


def _is_called(name: str, manifest: ManifestRecord) -> bool:
    """The step in a name may be left out, and must be right where it is given."""
    return keys.step_in(name) is None or name == manifest.name


def described(history: History, save: SaveId, manifest: ManifestRecord) -> dict[str, Any]:
    """All that the records hold of one save."""
    chain = lineage(history)
    row = _row(history, save, branch=save in chain.branches, current=save == current_of(history))
    return {
        **row,
        "rootKey": manifest.root_key,
        "worldSize": manifest.world_size,
        "attempt": manifest.attempt,
        "jobUID": manifest.job_uid,
        "imported": manifest.imported.dump() if manifest.imported is not None else None,
        "gates": manifest.gates,
        "facts": manifest.facts,
        "marks": [mark.dump() for mark in history.marks.get(save, ())],
        "objects": [file.dump() for file in manifest.files],
    }


@dataclass(frozen=True, slots=True)
class Checked:
    """What a look at one save found. `bad`: file -> what is wrong."""

    name: str
    step: int | None
    files: int
    bytes: int
    how: str
    bad: tuple[tuple[str, str], ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "step": self.step,
            "files": self.files,
            "bytes": self.bytes,
            "how": self.how,
            "valid": not self.bad,
            "bad": [{"file": file, "why": why} for file, why in self.bad],
        }


def checked_in_store(place: Place, manifest: ManifestRecord, *, deep: bool) -> Checked:
    """Sizes and the store's own checksums; `deep`: every byte is read and hashed."""
    findings: list[Finding] = place.run.judging.examine(manifest.name, deep=deep)
    bad = tuple((finding.path, finding.message) for finding in findings)
    how = "every byte read" if deep else "sizes and checksums of the store"
    return Checked(manifest.name, manifest.step, len(manifest.files), manifest.bytes, how, bad)


def checked_on_disk(manifest: ManifestRecord, directory: Path, *, rank: int) -> Checked:
    """A local copy against the record: every byte is hashed."""
    wanted = of_rank(manifest, rank)
    bad: list[tuple[str, str]] = []
    for file in wanted:
        try:
            size, sha256, _ = hash_file(directory / safe_relative(file.path))
        except (OSError, UnsafePathError) as error:
            bad.append((file.path, f"{file.path}: {getattr(error, 'strerror', None) or error}"))
            continue
        if (size, sha256) != (file.size, file.sha256):
            expected = f"{file.size} bytes with SHA-256 {file.sha256}"
            bad.append((file.path, f"{file.path}: expected {expected}, got {size}, {sha256}"))
    total = sum(file.size for file in wanted)
    how = f"hashed in {directory}"
    return Checked(manifest.name, manifest.step, len(wanted), total, how, tuple(bad))


def of_rank(manifest: ManifestRecord, rank: int) -> list[FileRecord]:
    return [file for file in manifest.files if file.ranks is None or rank in file.ranks]


def pull(
    place: Place,
    history: History,
    manifest: ManifestRecord,
    directory: Path,
    *,
    rank: int,
    progress: Progress | None,
) -> list[FileRecord]:
    """Its files, proved while they stream, what it brings back of older saves, and its pointers.

    What is there with the right hash is kept, so a broken pull goes on. Raises Refused."""
    wanted = [*of_rank(manifest, rank), *_carried(history, manifest, rank)]
    done = place.run.moving.fetch(manifest.name, directory, files=wanted, progress=progress)
    if isinstance(done, FetchFailed):
        bad = done.finding is not None
        raise Refused(f"{manifest.name}: {done.message}", Code.INVALID if bad else Code.REFUSED)
    _point(directory, manifest)
    return wanted


def _carried(history: History, manifest: ManifestRecord, rank: int) -> list[FileRecord]:
    own = {file.path for file in manifest.files}
    found = []
    for told in manifest.facts.get("carried") or ():
        older = history.manifests.get(SaveId(told["fence"], told["n"]))
        files = of_rank(older, rank) if older is not None else []
        found += [f for f in files if f.path == told["path"] and f.path not in own]
    return found


def _point(directory: Path, manifest: ManifestRecord) -> None:
    """The framework's own "the newest is…", as the record has it."""
    for told in manifest.facts.get("pointers") or ():
        path = directory / safe_relative(told["path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".rtj-{path.name}")
        temporary.unlink(missing_ok=True)
        if told["kind"] == "link":
            temporary.symlink_to(told["value"])
        else:
            temporary.write_text(told["value"])
        os.replace(temporary, path)


def mark(place: Place, name: str, *, kind: MarkKind, why: str, who: str) -> dict[str, Any]:
    """One more word on a save, for everybody and for good."""
    done = place.run.judging.mark(
        name,
        kind=kind,
        reason=Reason.MARKED_BY_PERSON,
        message=f"{who}: {why}" if why else f"by {who}",
        evidence={"by": who, "said": why},
    )
    place.run.tending.reindex()
    return {"name": name, "mark": kind.value, "message": done.message if done else ""}


def ask_back(place: Place, manifest: ManifestRecord, *, days: int) -> tuple[int, int]:
    """(objects that were asked for, objects that can be read already). Raises Refused."""
    store = place.store
    if not hasattr(store, "ask_back"):
        raise Refused(f"{store.url} has no archive: everything in it can be read")
    asked = there = 0
    for key in dict.fromkeys(file.key for file in manifest.files):
        head = store.head(f"{place.run_id}/{key}")
        if head is None:
            raise Refused(f"{key} is not in the store", Code.INVALID)
        if head.is_archived:
            cast(Reclasses, store).ask_back(f"{place.run_id}/{key}", days=days)
            asked += 1
        else:
            there += 1
    return asked, there


def plan(history: History, keep: Keep) -> list[dict[str, Any]]:
    """What retention would do: each save of the line, newest first."""
    found = kept(history, keep=keep, in_use=())
    return [
        {
            "name": history.manifests[save].name,
            "step": history.manifests[save].step,
            "bytes": history.manifests[save].bytes,
            "goes": why is None,
            "why": why.value if why is not None else "no rule keeps it",
        }
        for save, why in found.items()
    ]


def prune(place: Place, history: History, keep: Keep) -> tuple[Collection[str], Collection[str]]:
    """(marked, deleted). Data goes an hour after its mark: by the job's own sidecar, or, where no
    job holds the run, by whoever prunes again. Raises Refused."""
    if keep.last is None:
        raise Refused("say what to keep: --keep-last N (the job has no retention.keepLast)")
    if place.required is None and (told := _lacking(history)) is not None:
        raise Refused(
            f"{told}; whether that counts, only the job tells "
            "(checkpoint.validation.requiredKeys), and the only save that can be used might go: "
            "name the job in place of the URL, or mark the save good or invalid first"
        )
    newest = history.fences[-1] if history.fences else None
    if newest is None:
        return (), ()
    done = place.run.tending.retain(
        fence=newest.fence, keep=keep, delete=newest.outcome is not None
    )
    if not isinstance(done, Retained):
        raise Refused(f"a newer attempt ({done.by}) took the run meanwhile: try again")
    if done.held is not None:
        say(done.held, style="yellow")
    return done.marked, done.deleted


def _lacking(history: History) -> str | None:
    """A valid save of the line that lacks a name which its job asked for, in words."""
    for save in lineage(history).saves:
        manifest = history.manifests.get(save)
        if manifest is None or history.condemned(save) is not None:
            continue
        told = manifest.facts.get(required.FACT)
        missing = told.get("missing") if isinstance(told, dict) else None
        lost = required.lacking(told, patterns=missing) if isinstance(missing, list) else None
        is_good = any(mark.kind == MarkKind.GOOD for mark in history.marks.get(save, ()))
        if lost is not None and not is_good:
            return f"{manifest.name} has no {lost[0]!r} in {lost[1]}"
    return None


def waiting(history: History) -> Sequence[str]:
    """Marked saves whose data is still there."""
    return [m.name for save, m in history.manifests.items() if history.deleted(save)]
