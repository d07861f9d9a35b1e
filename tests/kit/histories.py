"""Histories of a run as plain data, for tests of rules that only read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rtj_sidecar.runs import keys
from rtj_sidecar.runs.history import History
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.runs.records import (
    FenceRecord,
    FileRecord,
    ManifestRecord,
    MarkKind,
    MarkRecord,
    Parent,
)


def a_fence(number: int, parent: Parent | None) -> FenceRecord:
    return FenceRecord(
        fence=number,
        cluster_uid="c",
        job_uid="j",
        attempt=number,
        world_size=1,
        nonce=str(number),
        claimed_at=0,
        parent=parent,
    )


def a_save(
    fence: int, n: int, step: int | None, *, status: str = "Verified", at: float = 0, **more: Any
) -> ManifestRecord:
    name = keys.save_name(SaveId(fence, n), step)
    file = FileRecord(
        path="a.pt",
        key=keys.data_key(name, "a.pt"),
        size=1,
        sha256="0" * 64,
        crc64nvme="AAAAAAAAAAA=",
    )
    fields: dict[str, Any] = {"full_state": True, "layout": "torch", "files": [file], **more}
    return ManifestRecord(
        run_id="ns/gpt",
        name=name,
        fence=fence,
        n=n,
        root_key="a.pt",
        step=step,
        status=status,
        world_size=1,
        attempt=fence,
        job_uid="j",
        cluster_uid="c",
        committed_by_fence=fence,
        committed_at=at,
        ranks=[0],
        **fields,
    )


def a_history(
    saves: Sequence[ManifestRecord],
    *,
    fences: Sequence[FenceRecord] | None = None,
    marks: Mapping[SaveId, Sequence[MarkKind | MarkRecord]] | None = None,
) -> History:
    manifests = {SaveId(save.fence, save.n): save for save in saves}
    told = {
        save: tuple(
            each
            if isinstance(each, MarkRecord)
            else MarkRecord(kind=each, reason="x", message="", marked_at=0)
            for each in kinds
        )
        for save, kinds in (marks or {}).items()
    }
    found = [a_fence(1, Parent(scratch=True))] if fences is None else list(fences)
    return History(
        fences=tuple(found), manifests=manifests, marks=told, named=frozenset([*manifests, *told])
    )


def without(history: History, gone: Sequence[SaveId]) -> History:
    """As it is when retention has taken these away."""
    left = {save: record for save, record in history.manifests.items() if save not in gone}
    deleted = MarkRecord(kind=MarkKind.DELETED, reason="x", message="", marked_at=0)
    marks = {**history.marks, **{s: (*history.marks.get(s, ()), deleted) for s in gone}}
    return History(fences=history.fences, manifests=left, marks=marks, named=history.named)
