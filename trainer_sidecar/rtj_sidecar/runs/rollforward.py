"""What an attempt's end left half done is completed before anything is chosen.

The same commit under the old name, by the new holder. What cannot be completed yet is left: a
survivor may still hold its files. Every part that is expected must be there; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from rtj_sidecar.runs.commit import Committed, Dropped, UnionGate, commit
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.fence import FenceLost
from rtj_sidecar.runs.history import History
from rtj_sidecar.runs.lineage import lineage
from rtj_sidecar.runs.ships import Ignored


@dataclass(frozen=True, slots=True)
class RolledForward:
    """`history` holds what was committed; read it again to see the marks of what was dropped."""

    committed: tuple[str, ...]
    dropped: tuple[tuple[str, str], ...]
    history: History
    lost_to: int | None = None


def roll_forward(
    context: Context,
    history: History,
    *,
    fence: int,
    union_gate: UnionGate,
    gone: Collection[int] = (),
    told: Mapping[str, Collection[int]],
) -> RolledForward:
    """Commit every ship of the lineage that is ready; drop those that never can be.

    `gone`: ranks whose files are lost, `told`: by a save's name, ranks that told of a share of it;
    both as far as the caller knows.
    """
    committed: list[str] = []
    dropped: list[tuple[str, str]] = []
    manifests = dict(history.manifests)
    ships = dict(history.ships)
    for save in lineage(history).saves:
        ship, own = history.ships.get(save), history.fence(save.fence)
        if save in manifests or ship is None or own is None:
            continue
        outcome = commit(
            context,
            ship,
            history.parts.get(save, {}),
            fence=fence,
            own_fence=own,
            union_gate=union_gate,
            gone=gone,
            told=told.get(ship.name, ()),
        )
        match outcome:
            case Committed(manifest):
                committed.append(ship.name)
                manifests[save] = manifest
                del ships[save]
            case Dropped(_, message) | Ignored(message):
                dropped.append((ship.name, message))
                del ships[save]
            case FenceLost(by):
                return RolledForward(
                    tuple(committed),
                    tuple(dropped),
                    replace(history, manifests=manifests, ships=ships),
                    by,
                )
    return RolledForward(
        tuple(committed),
        tuple(dropped),
        replace(history, manifests=manifests, ships=ships),
    )
