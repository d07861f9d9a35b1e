"""Before a save is offered, it is proved whole; a bad one is marked, and the next older tried.

What every pod has pinned was proved where it lies. What has to come from the store is fetched right
away into the hidden directory that restore takes it from, so its bytes are read once. What lies
in an archive of the store is passed over without a verdict. Must never mark because the store could
not be asked: unknown is not bad.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from rtj_api.reasons import Reason
from rtj_api.wire import Candidate

from rtj_sidecar.runs import keys
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.fetch import FetchFailed, fetch
from rtj_sidecar.runs.marks import mark
from rtj_sidecar.runs.records import FileRecord, ManifestRecord, MarkKind
from rtj_sidecar.runs.verify import Finding, check_files, is_archive
from rtj_sidecar.stores.base import Progress, StoreProblem


def vet(
    context: Context,
    candidates: Sequence[Candidate],
    *,
    manifest_of: Callable[[str], ManifestRecord | None],
    pinned: Collection[str],
    incoming: Path | None,
    fence: int | None,
    most: int | None = None,
    progress: Progress | None = None,
    cancel: threading.Event | None = None,
) -> list[Candidate]:
    """The candidates in the same order, up to the first proved one judged, bad ones `invalid`.

    `most`: bytes that may be fetched; of a larger save only sizes and checksums are compared.
    A weights-only save that is proved does not end the search. Raises StoreProblem, Cancelled.
    """
    judged: list[Candidate] = []
    proved = False
    for candidate in candidates:
        is_out = candidate.invalid is not None or candidate.failed_probe is not None
        if proved or is_out or not candidate.durable:
            judged.append(candidate)
            continue
        manifest = manifest_of(candidate.name)
        save = keys.parse_name(candidate.name)
        if manifest is None or save is None:
            judged.append(candidate)
            continue
        mine = sum(file.size for file in wanted_by(manifest, context.rank))
        is_fetched = candidate.name not in pinned and (most is None or mine <= most)
        finding = _judge(
            context,
            manifest,
            deep_into=incoming if is_fetched else None,
            progress=progress,
            cancel=cancel,
        )
        if finding is None:
            judged.append(candidate)
            proved = candidate.full_state is not False
            continue
        if is_archive(finding):
            # No verdict on the save: it is passed over for as long as nobody can read it.
            judged.append(candidate.model_copy(update={"invalid": str(finding.reason)}))
            continue
        mark(
            context,
            save,
            kind=MarkKind.INVALID,
            reason=finding.reason,
            message=f"{candidate.name}: {finding.message}",
            evidence=finding.evidence,
            fence=fence,
        )
        judged.append(candidate.model_copy(update={"invalid": str(finding.reason)}))
    return judged


def wanted_by(manifest: ManifestRecord, rank: int) -> list[FileRecord]:
    """What that rank restores: everything but other ranks' own versions."""
    return [file for file in manifest.files if file.ranks is None or rank in file.ranks]


def _judge(
    context: Context,
    manifest: ManifestRecord,
    *,
    deep_into: Path | None,
    progress: Progress | None,
    cancel: threading.Event | None,
) -> Finding | None:
    findings = check_files(context, manifest.files, cancel=cancel)
    if findings or deep_into is None:
        return next((each for each in findings if not is_archive(each)), next(iter(findings), None))
    mine = wanted_by(manifest, context.rank)
    try:
        outcome = fetch(
            context,
            manifest.name,
            mine,
            deep_into / manifest.name,
            progress=progress,
            cancel=cancel,
        )
    except StoreProblem as problem:
        if problem.reason != Reason.CHECKPOINT_ARCHIVED:
            raise
        # It moved there since its header was read.
        data = keys.data_key(manifest.name, "")
        wanted = "objects that can be read"
        return Finding(problem.reason, manifest.root_key, data, wanted, problem.message)
    if isinstance(outcome, FetchFailed):
        if outcome.finding is not None:
            return outcome.finding
        # This pod's disk, not the save: say so instead of condemning it.
        raise StoreProblem(outcome.reason, outcome.message, transient=True)
    others = [file for file in manifest.files if file not in mine]
    findings = check_files(context, others, read_all=True, cancel=cancel)
    return findings[0] if findings else None
