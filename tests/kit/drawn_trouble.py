"""What a job's reports, memory and spec say of trouble, as hypothesis draws it, sensible or not."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from rtj_api import wire
from rtj_api.reasons import Charge
from rtj_api.rules.divergence import Kind
from rtj_api.rules.hang import Standing
from rtj_api.rules.overrides import FailureAction, FailureRule
from rtj_api.rules.replay import Lost, ReplayState
from rtj_api.status import Bisection, Incident, IntervalAdvice, Suspicion, TimeBuckets, TimeLedger
from rtj_api.v1alpha1 import Interval
from rtj_operator.core.node_ledger import Advice

names = st.sampled_from(["f1-n1-s4", "f1-n2-s8", "f2-n1-s12"])
steps = st.none() | st.integers(0, 99)
seconds = st.sampled_from([0.0, 0.001, 3.0, 900.0, 1e6])
maybe_seconds = st.none() | seconds
kinds = st.sampled_from(["exit 1", "NotANumber", "TrainerHung", "Evicted for memory"])
factors = st.sampled_from([None, None, "Node", "Save"])


def health(times: st.SearchStrategy[float]) -> st.SearchStrategy[dict[str, Any]]:
    """Fields of a report."""
    paces = st.builds(wire.PaceView, usual=maybe_seconds, longest=seconds, survived=seconds)
    stalls = st.builds(
        wire.StallView,
        standing=st.sampled_from(list(Standing)),
        since=times,
        fell_at=st.none() | times,
        pace=paces,
        stacks=st.sampled_from([[], ["  thread 7 python: all_reduce"], ["x" * 200] * 80]),
    )
    replays = st.builds(
        wire.ReplayView,
        state=st.sampled_from(list(ReplayState)),
        step=steps,
        lost=st.none() | st.sampled_from(list(Lost)),
    )
    divergences = st.builds(
        wire.DivergenceView, kind=st.sampled_from(list(Kind)), step=steps, message=st.just("bad")
    )
    checks = st.builds(
        wire.LossCheck,
        state=st.sampled_from(list(wire.LossState)),
        expected=maybe_seconds,
        noise=maybe_seconds,
        seen=maybe_seconds,
    )
    return st.fixed_dictionaries(
        {
            "stall": st.none() | stalls,
            "replay": st.none() | replays,
            "divergence": st.none() | divergences,
            "loss_check": st.none() | checks,
        }
    )


costs = st.fixed_dictionaries(
    {
        "stall_seconds": seconds,
        "stalls": st.integers(0, 3),
        "interval_seconds": maybe_seconds,
        "save_bytes": st.sampled_from([None, 0, 10**12]),
        "writing_seconds": maybe_seconds,
        "upload_bytes": st.sampled_from([None, 0, 10**12]),
        "upload_seconds": maybe_seconds,
    }
)
"""Fields of a report's view of saves."""

words = st.sampled_from(
    [
        [],
        ["loss=nan"],
        ["CUDA out of memory"],
        ["NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus"],
        ["EOFError: Ran out of input"],
        ["my own words"],
    ]
)
"""A trainer's last lines."""


@st.composite
def memory(draw: st.DrawFn, *, now: float, attempt: int) -> dict[str, Any]:
    """Fields of a status: what it remembers of time, saves and faults."""
    buckets = TimeBuckets(productive=draw(seconds), checkpoint_stall=draw(seconds))
    spent = buckets.productive + buckets.checkpoint_stall
    until = now - draw(st.integers(0, 60))
    ledger = TimeLedger(
        since=until - spent,
        until=until,
        seconds=buckets,
        stalls=draw(st.integers(0, 3)),
        interruptions=draw(st.integers(0, 9)),
        step=draw(steps),
        reached=draw(steps),
        durable_step=draw(steps),
    )
    # By a dictionary: hypothesis would add the aliases of what is required.
    advice = st.fixed_dictionaries(
        {
            "mtti_seconds": st.sampled_from([1.0, 3600.0, 1e7]),
            "stall_seconds": maybe_seconds,
            "durable_latency_seconds": maybe_seconds,
            "actual_seconds": st.sampled_from([None, 0.001, 900.0, 1e6]),
            "recommended_seconds": st.sampled_from([30.0, 1e6]),
            "rule": st.just("Exact"),
            "local_loss_share": st.sampled_from([None, 0.01, 1.0]),
            "save_bytes": st.sampled_from([None, 0, 10**12]),
            "upload_bytes_per_second": maybe_seconds,
        }
    ).map(lambda fields: IntervalAdvice(**fields))
    incidents = st.builds(
        Incident,
        attempt=st.integers(1, max(1, attempt)),
        alike=kinds,
        charge=st.sampled_from(list(Charge)).map(str),
        started=st.booleans(),
        node=st.sampled_from([None, "node0", "node1"]),
        save=st.none() | names,
        from_step=steps,
        step=steps,
        ran_seconds=maybe_seconds,
        varied=factors,
        at=st.integers(0, 7200).map(lambda ago: now - ago),
    )
    suspicions = st.builds(
        Suspicion,
        name=names,
        is_proved=st.booleans(),
        past_step=steps,
        attempt=st.integers(1, max(1, attempt)),
        alike=kinds,
    )
    bad = draw(st.integers(0, 2))
    search = Bisection(
        id="1",
        saves=["f1-n1-s4", "f1-n2-s8", "f2-n1-s12"],
        steps=[4, 8, 12],
        good=draw(st.integers(-1, bad - 1)),
        bad=bad,
        run_steps=draw(st.integers(1, 30)),
    )
    return {
        "ledger": draw(st.none() | st.just(ledger)),
        "interval": draw(st.none() | advice),
        "suspicions": draw(st.lists(suspicions, max_size=4, unique_by=lambda s: s.name)),
        "bisection": draw(st.none() | st.just(search)),
        "incidents": draw(st.lists(incidents, max_size=4)),
    }


rules = st.builds(
    FailureRule,
    name=st.just("Mine"),
    action=st.sampled_from(list(FailureAction)),
    exit_codes=st.sampled_from([(), (1,), (137,)]),
    log_pattern=st.sampled_from([None, "my own"]),
)
wishes_of_recovery = st.fixed_dictionaries(
    {
        "on_hang": st.sampled_from(["Restart", "Restart", "Report"]),
        "hang_timeout_seconds": st.sampled_from([None, None, 2.0, 604_800.0]),
        "on_slow": st.sampled_from(["Report", "Replace"]),
        "on_divergence": st.sampled_from(["RollBack", "Hold", "Report"]),
        "failure_rules": st.lists(rules, max_size=2).map(tuple),
        "avoid_nodes": st.sampled_from(["Preferred", "Required", "Never"]),
        "interval": st.sampled_from(
            [Interval(), Interval(seconds=600), Interval(mtti_fraction=0.1, max_seconds=60)]
        ),
    }
)
"""Fields of the spec that decisions see."""

advices = st.lists(
    st.builds(
        Advice,
        node=st.sampled_from(["node0", "node1", "node7"]),
        score=st.just(2.0),
        why=st.just("2 × GpuLost"),
    ),
    max_size=2,
    unique_by=lambda a: a.node,
).map(tuple)
