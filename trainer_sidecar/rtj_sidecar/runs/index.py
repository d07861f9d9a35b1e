"""`manifest.json`: the run's saves for people and other tools, in the playbook's form.

A cache, rebuilt whole from manifests and marks after each commit; nothing of ours ever decides by
it. Replaced by If-Match, so a zombie's older view never overwrites a newer one unseen.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from rtj_sidecar.runs import keys
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.history import History
from rtj_sidecar.runs.lineage import lineage
from rtj_sidecar.stores.base import IfAbsent, IfMatch, Written

_TRIES = 5


def index_of(history: History, *, base_url: str) -> dict[str, Any]:
    """The document: committed saves oldest first, branches marked, the newest valid one named."""
    chain = lineage(history)
    reached = [save for save in reversed(chain.saves) if save in history.manifests]
    entries: list[dict[str, Any]] = []
    latest: str | None = None
    for save in [*chain.branches, *reached]:
        manifest = history.manifests[save]
        condemned = history.condemned(save)
        path = f"{base_url}/{keys.data_key(manifest.name, manifest.root_key)}"
        entries.append(
            {
                "path": path,
                "epoch": manifest.epoch,
                "step": manifest.step,
                "validation_loss": manifest.loss,
                "timestamp": datetime.fromtimestamp(manifest.committed_at, UTC).isoformat(),
                "is_valid": condemned is None,
                "name": manifest.name,
                "layout": manifest.layout,
                "status": manifest.status,
                "bytes": manifest.bytes,
                "branch": save in chain.branches,
                "pinned": history.pinned(save),
                "archived": history.archived(save),
                "why_invalid": condemned.message if condemned else None,
                "manifest": f"{base_url}/{keys.manifest_key(save)}",
            }
        )
        if condemned is None and save not in chain.branches:
            latest = path
    return {"checkpoints": entries, "latest_valid_checkpoint": latest, "fence": history.highest}


def newest_told(context: Context) -> str | None:
    """The name of the newest valid save as the index has it: a hint, one small read.

    Raises StoreProblem.
    """
    found = context.store.get(context.full(keys.INDEX))
    try:
        told = json.loads(found.data) if found is not None else {}
        latest = told.get("latest_valid_checkpoint")
        entry = next((e for e in told.get("checkpoints", ()) if e["path"] == latest), None)
        is_at_hand = entry is not None and not entry.get("archived")
        return str(entry["name"]) if entry is not None and is_at_hand else None
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def write_index(context: Context, history: History) -> bool:
    """Replace the index unless it already tells of a newer fence. False: others were faster."""
    document = index_of(history, base_url=f"{context.store.url}/{context.run_id}")
    data = json.dumps(document, indent=1, ensure_ascii=False).encode()
    key = context.full(keys.INDEX)
    for _ in range(_TRIES):
        there = context.store.get(key)
        if there is not None and _fence_of(there.data) > history.highest:
            return False
        if there is not None and there.data == data:
            return True
        condition = IfAbsent() if there is None else IfMatch(there.etag)
        if isinstance(context.put(keys.INDEX, data, condition=condition), Written):
            return True
    return False


def _fence_of(data: bytes) -> int:
    """0 for a document that is not ours or broken: then it is replaced."""
    try:
        found = json.loads(data)
        return int(found.get("fence", 0)) if isinstance(found, dict) else 0
    except (ValueError, TypeError):
        return 0
