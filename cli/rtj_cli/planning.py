"""How large a job's saves will be, how often to make them, and what bandwidth that needs.

For who plans a job and has measured nothing yet. Pure arithmetic over `rtj_api.rules.interval`;
must never look at a job or a store, whose own figures are better: `status.interval`.
"""

from __future__ import annotations

from typing import Any

from rtj_api.rules import interval

DAY = 86_400.0
FAILURES_PER_NODE_DAY = 6.5e-3  # Meta's measured rate of a node of 8 GPUs


def plan(
    *,
    parameters: float,
    nodes: float,
    stall: float | None,
    step: float | None,
    per_node_day: float = FAILURES_PER_NODE_DAY,
) -> dict[str, Any]:
    """Seconds, bytes and bytes per second; `stall` and `step` in seconds, None where not known.

    The mean time to interruption is that of nodes in series, a day at most: smaller jobs fail more
    often than their nodes do. `durableEverySeconds` is for the quarter of the faults that lose the
    copies in the pods.
    """
    mtti = min(60 * interval.series_mtti(nodes=nodes, per_node_day=per_node_day), DAY)
    size = interval.full_state_bytes(parameters)
    lost = interval.share_seen(losses=0, faults=0)
    if stall is None:
        every = interval.mtti_fraction(mtti=mtti)
        durable = interval.mtti_fraction(mtti=mtti / lost)
    else:
        found = interval.tiers(
            local_stall=stall, durable_stall=stall, mtti=mtti, local_loss_share=lost
        )
        every, durable = found.local, found.durable
    return {
        "stateBytes": size,
        "mttiSeconds": round(mtti, 1),
        "saveEverySeconds": round(every, 1),
        "saveEverySteps": None if step is None else interval.steps_of(every, step=step),
        "durableEverySeconds": round(durable, 1),
        "neededBytesPerSecond": round(interval.needed_bandwidth(size=size, seconds=durable)),
        "perNodeBytesPerSecond": round(
            interval.needed_bandwidth(size=size, seconds=durable) / nodes
        ),
        "lostShare": round(interval.overhead(interval=every, stall=stall or 0.0, mtti=mtti), 4),
    }
