"""What a holder knows of the gang's saves by the records alone: after a crash, in a new pod.

Pure. Must never know less than the holder before did of what may be begun from: which shares belong
to a save decides that, and a holder may die between any two words.
"""

from __future__ import annotations

from collections.abc import Collection

from rtj_api.reasons import Reason

from rtj_sidecar.latecomers import KEPT, Known
from rtj_sidecar.runs.history import History
from rtj_sidecar.runs.keys import SaveId, parse_name
from rtj_sidecar.runs.lineage import lineage
from rtj_sidecar.runs.records import ManifestRecord, SaveFacts, ShipRecord
from rtj_sidecar.unions import Shape, next_shape


def recorded_shape(history: History) -> Shape | None:
    """What the ranks wrote of the last save of this line that several wrote, see `next_shape`."""
    newer: list[Shape] = []
    for save in lineage(history).saves:
        record = _record(history, save)
        if record is None or not record.shape or history.condemned(save) is not None:
            continue
        newer.append(Shape(record.world_size, record.shape))
        if len(record.shape) > 1:
            break
    known: Shape | None = None
    for shape in reversed(newer):
        known = next_shape(known, shape)
    return known


def recorded_names(history: History, *, job_uid: str) -> list[Known]:
    """The newest saves that this job's trainers made, oldest first, with who has a share of each:
    another's share of one of them is late."""
    found: list[Known] = []
    gone = (save for save in history.named if history.deleted(save))
    first = min([*history.manifests, *gone], default=None)
    for save in lineage(history).saves[:KEPT]:
        record, fence = _record(history, save), history.fence(save.fence)
        if record is None or record.made_in is None or fence is None or fence.job_uid != job_uid:
            continue
        parts = history.parts.get(save, {})
        ranks = (
            record.ranks
            if isinstance(record, ManifestRecord)
            else [*record.expected, *(r for r, part in parts.items() if part.files)]
        )
        found.append(
            Known(
                name=record.name,
                attempt=record.made_in,
                facts=SaveFacts(root_key=record.root_key, layout=record.layout, step=record.step),
                ranks=frozenset(ranks),
                was_guess=first is None or save <= first,
            )
        )
    return found[::-1]


def said_as_torn(history: History, names: Collection[str]) -> list[str]:
    """Those of which a mark says that they lack a share."""
    return [
        name
        for name in names
        if (save := parse_name(name)) is not None
        and any(mark.reason == Reason.CHECKPOINT_TORN for mark in history.marks.get(save, ()))
    ]


def _record(history: History, save: SaveId) -> ManifestRecord | ShipRecord | None:
    return history.manifests.get(save) or history.ships.get(save)
