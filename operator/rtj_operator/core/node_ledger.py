"""Which nodes spoil trainings: what was counted against each, across jobs, and who is avoided.

Each fault that points at a node leaves a mark there. Marks fade, so that a node that was repaired
is trusted again without anybody's doing; two light ones within a week, or one heavy one, make new
pods keep off it. Only ever a share of the cluster is avoided, the worst first, so that a fault that
follows the jobs themselves cannot make every node look bad. Nothing is cordoned: the scheduler is
told where these jobs would rather not be. Pure.

Source: `failures-and-formulas` D4 (two on one GPU in seven days) and F12.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

HALF_LIFE_SECONDS = 7 * 86_400.0
AVOIDED_FROM = 1.5  # a mark of weight 1 and another within seven days of it
FORGOTTEN_SECONDS = 4 * HALF_LIFE_SECONDS  # then a mark is dropped
HEAVY, PLAIN, LIGHT = 2.0, 1.0, 0.5  # weights
SHARE_AVOIDED = 0.2  # of the cluster's nodes, but always one
MAX_AVOIDED = 32
MAX_MARKS = 8  # of one node, the newest
MAX_NODES = 400  # the worst; with MAX_MARKS below 1 MiB in one ConfigMap
MAX_TEXT = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One thing counted against a node. `id` tells it from all others, so it counts once."""

    id: str
    node: str
    at: float  # Unix seconds
    weight: float
    reason: str
    job: str = ""  # <namespace>/<name>; empty: seen at the node itself
    gpu: str | None = None  # its UUID or PCI address, where the fault named it


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLedger:
    """By node name: its marks, oldest first."""

    marks: Mapping[str, tuple[Mark, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What the node's own object says. `troubles` are reasons to avoid it now, in words;
    `leaving`: a taint that says it will go, or takes no more pods."""

    name: str
    created_at: float | None = None
    troubles: tuple[str, ...] = ()
    leaving: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A node that new pods had better keep off, and why."""

    node: str
    score: float
    why: str


def faded(mark: Mark, *, now: float) -> float:
    """What is left of a mark's weight: half of it a week."""
    age = max(0.0, now - mark.at)
    return float(mark.weight * 0.5 ** (age / HALF_LIFE_SECONDS))


def counted(marks: Iterable[Mark], facts: NodeFacts | None, *, now: float) -> tuple[Mark, ...]:
    """Those that still count: not forgotten, and not of an older machine of the same name."""
    born = facts.created_at if facts is not None and facts.created_at is not None else 0.0
    return tuple(m for m in marks if m.at >= born and now - m.at < FORGOTTEN_SECONDS)


def score_of(marks: Iterable[Mark], *, now: float) -> float:
    """The faded weights of a node, those of one GPU apart from those of another: two faults on two
    GPUs are no sign of either."""
    whole = 0.0
    by_gpu: dict[str, float] = {}
    for mark in marks:
        left = faded(mark, now=now)
        if mark.gpu is None or mark.weight >= HEAVY:
            whole += left
        else:
            by_gpu[mark.gpu] = by_gpu.get(mark.gpu, 0.0) + left
    return whole + max(by_gpu.values(), default=0.0)


def with_marks(ledger: NodeLedger, marks: Iterable[Mark], *, now: float) -> NodeLedger:
    """The ledger with these marks as well, each once, forgotten ones dropped, within its bounds."""
    found: dict[str, dict[str, Mark]] = {
        node: {m.id: m for m in old} for node, old in ledger.marks.items()
    }
    for mark in marks:
        found.setdefault(mark.node, {}).setdefault(mark.id, mark)
    kept: dict[str, tuple[Mark, ...]] = {}
    for node, by_id in found.items():
        living = counted(by_id.values(), None, now=now)
        if living:
            kept[node] = tuple(sorted(living, key=lambda m: (m.at, m.id))[-MAX_MARKS:])
    worst = sorted(kept, key=lambda n: (-score_of(kept[n], now=now), n))[:MAX_NODES]
    return NodeLedger(marks={node: kept[node] for node in sorted(worst)})


def is_known(ledger: NodeLedger, mark: Mark) -> bool:
    return any(m.id == mark.id for m in ledger.marks.get(mark.node, ()))


def most_avoided(nodes: int) -> int:
    """Of so many nodes, how many may be avoided at once. One always: else a cluster of four could
    not keep off its one bad node."""
    return min(MAX_AVOIDED, max(1, int(nodes * SHARE_AVOIDED)))


def advice(ledger: NodeLedger, facts: Mapping[str, NodeFacts], *, now: float) -> tuple[Advice, ...]:
    """The nodes to keep off, the worst first. Those that are leaving stand last and outside of the
    share: a cluster that is upgraded must not hide its bad nodes."""
    bad: list[Advice] = []
    leaving: list[Advice] = []
    for name in sorted({*ledger.marks, *facts}):
        known = facts.get(name)
        if facts and known is None:
            continue  # it is gone
        marks = counted(ledger.marks.get(name, ()), known, now=now)
        score = score_of(marks, now=now)
        troubles = known.troubles if known is not None else ()
        if troubles or score >= AVOIDED_FROM:
            why = "; ".join([*troubles, *([_told(marks)] if score >= AVOIDED_FROM else [])])
            weight = score + HEAVY * len(troubles)
            bad.append(Advice(node=name, score=weight, why=why))
        elif known is not None and known.leaving is not None:
            leaving.append(Advice(node=name, score=score, why=known.leaving))
    bad.sort(key=lambda a: (-a.score, a.node))
    capped = bad[: most_avoided(len(facts) or len(ledger.marks))]
    return tuple([*capped, *leaving][:MAX_AVOIDED])


def _told(marks: Collection[Mark]) -> str:
    reasons: dict[str, int] = {}
    for mark in marks:
        what = f"{mark.reason} on GPU {mark.gpu}" if mark.gpu else mark.reason
        reasons[what] = reasons.get(what, 0) + 1
    named = ", ".join(f"{n} × {r}" if n > 1 else r for r, n in sorted(reasons.items()))
    jobs = len({m.job for m in marks if m.job})
    of = f" in {jobs} jobs" if jobs > 1 else ""
    return f"{named}{of}"[:MAX_TEXT]
