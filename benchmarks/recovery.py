"""How long from a fault to new ground: this operator and the built-in indexed Job, side by side.

One cluster, one trainer program, one clock. Prints JSON with medians, what each recovery wrote to
the API server beside its budget, and the machine's load; with `--table FILE` also the table of the
docs. Asserts no absolute time, for machines differ.

    python benchmarks/recovery.py --runs 10 [--faults crash,hang,torn,node] [--cluster rtj-bench]

| fault | what happens to rank 1 |
|---|---|
| crash | SIGKILL of the trainer process |
| deaf | the same, where every rank ignores SIGTERM |
| delete, evict | its pod, by the API; time counts from just before the call |
| hang | SIGSTOP of the trainer process; the ranks step in lockstep, a step takes a second |
| torn | half of a newer save appears beside the good ones, and SIGKILL of the trainer (of rank 0) |
| node | power cut of its node; the ranks step in lockstep, as with a collective |
| spare | the same, with a spare on another node |

`decision` is the recordedAt of the attempt in status, `process` the last trainer's start as its
supervisor saw it, `step` the first step of the rank that was last to print one ("training again"),
`ground` the first step beyond the furthest one before the fault, of the rank that was last there;
`lost` how many steps lay between; `control` the part of it that the operator and its directives
took: to decide, to choose, and from the last restore to the last start. `overlap` is how
long any rank of the old attempt stepped on after one of the new had begun (seen where logs remain).
Writes are the operator's own, by its metrics, from the fault until it has shown the first step.
The indexed Job is not asked about `hang`, `torn`, `node` and `spare`: it waits for ever, fails in
each start, waits more than 350 s.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import sys
import time
import urllib.request
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kit import manifests, scrapes
from kit.kube import Kube, wait_for
from kit.loads import PREFIX, WRITES
from kit.rtj import Job
from kit.stack import OPERATOR_NAMESPACE, Stack, stack
from prometheus_client.parser import text_string_to_metric_families
from rtj_api.status import parse_time

from benchmarks.indexed_job import builtin
from benchmarks.recovery_steps import first_step_after, remove, steps

FAULTS = ("crash", "deaf", "delete", "evict", "hang", "torn", "node", "spare")
BUILTIN = ("crash", "deaf", "delete", "evict")
ON_NODES = ("node", "spare")
SIGNAL = "import json,os;os.kill(json.load(open('/rtj/run/supervisor.json'))['trainer']['pid'],{})"
TEAR = """
import glob
last = sorted(glob.glob("/checkpoints/step_*.pt"))[-1]
whole = open(last, "rb").read()
later = int(last[-10:-3]) + 1
open(f"/checkpoints/step_{later:07d}.pt", "wb").write(whole[: len(whole) // 2])
"""
EXTRA = {
    "deaf": ("--deaf",),
    "node": ("--lockstep",),
    "spare": ("--lockstep",),
    "hang": ("--lockstep",),
}
HEADS = {
    "decision": "decision",
    "step": "training again",
    "ground": "new ground",
    "control": "of it control plane",
    "lost": "steps lost",
    "writes": "API writes",
    "budget": "budget",
}


@dataclass(frozen=True)
class Scene:
    """One cluster and namespace for all runs."""

    made: Stack
    space: Kube

    def writes(self) -> dict[str, Counter[str]]:
        """What each replica of the operator has asked the API server to write since it began, by
        resource. One on a node without power does not answer, and writes nothing."""
        groups = scrapes.operator_scrape(self.made.kube, namespace=OPERATOR_NAMESPACE).groups()
        seen: dict[str, Counter[str]] = {}
        for target in (each for group in groups for each in group["targets"]):
            with contextlib.suppress(OSError):
                seen[target] = _written(target)
        return seen


def _written(target: str) -> Counter[str]:
    seen: Counter[str] = Counter()
    with urllib.request.urlopen(f"http://{target}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    for sample in (s for f in families for s in f.samples):
        if sample.name != f"{PREFIX}_api_requests_total":
            continue
        if sample.labels["verb"] in WRITES:
            seen[sample.labels["resource"]] += int(sample.value)
    return seen


def _since(before: dict[str, Counter[str]], now: dict[str, Counter[str]]) -> Counter[str]:
    """By resource; of the replicas that answered both times, and of those that are new."""
    return sum((now[t] - before.get(t, Counter()) for t in now), Counter())


def our_job(scene: Scene, *, name: str, fault: str) -> Job:
    """Training, with a save that both ranks have; and a ready spare that has it, if one is asked
    for."""
    space = scene.space
    store = manifests.store(endpoint=scene.made.s3.endpoint, prefix=space.namespace)
    more: dict[str, Any] = {"pod": manifests.apart(name)} if fault in ON_NODES else {}
    if fault == "spare":
        more["recovery"] = {"spares": 1}
    job = manifests.counter(
        name,
        store=store,
        save_every=5 if fault == "hang" else 25,
        step_seconds=1.0 if fault == "hang" else 0.2,
        extra=EXTRA.get(fault, ()),
        **more,
    )
    space.apply(job)
    ours = Job(kube=space, name=name)
    ours.wait_durable(10, within=180)
    wait_for(
        lambda: set(ours.report(0)["pinned"]) & set(ours.report(1)["pinned"]),
        within=60,
        what="a save on both ranks",
    )
    if fault == "spare":
        wait_for(lambda: spare_has_a_save(ours), within=150, what="a spare with a save")
    return ours


def spare_has_a_save(job: Job) -> bool:
    told = [job.report_of(pod).get("standby") or {} for pod in job.spares()]
    return (job.status().get("spares") or {}).get("ready") == 1 and any(t.get("name") for t in told)


def culprit_of(scene: Scene, job: Job, *, fault: str) -> int:
    """The rank that is hurt; never the one that shares the operator's node where a node goes."""
    if fault in ON_NODES:
        return job.rank_off(scene.made.operator_node())
    return 0 if fault == "torn" else 1


def begin(scene: Scene, job: Job, *, fault: str, rank: int) -> float:
    """Do it; Unix seconds of the moment before."""
    if fault in ("crash", "deaf", "hang", "torn"):
        number = signal.SIGSTOP if fault == "hang" else signal.SIGKILL
        script = f"import time;print(time.time());{SIGNAL.format(int(number))}"
        script = TEAR + script if fault == "torn" else script
        return float(scene.space.exec(job.pod_name(rank), "python3", "-c", script))
    if fault in ON_NODES:
        lost = job.node(rank)
        began = time.time()
        scene.made.cluster.node_kill(lost)
        return began
    return remove(scene.space, job.pod_name(rank), evict=fault == "evict")


def ours(scene: Scene, *, fault: str) -> dict[str, float]:
    """Seconds from the fault to each mark, and what it cost, of one fresh job."""
    job = our_job(scene, name=f"j{uuid.uuid4().hex[:6]}", fault=fault)
    attempt, rank = job.status()["attempt"], culprit_of(scene, job, fault=fault)
    lost = job.node(rank)
    before = {r: steps(job.log(r)) for r in (0, 1)}
    wrote = scene.writes()
    began = begin(scene, job, fault=fault, rank=rank)
    try:
        marks = observe(scene, job, began=began, attempt=attempt, before=before, wrote=wrote)
    finally:
        job.delete()
        if fault in ON_NODES:
            scene.made.cluster.node_heal(lost)
    wait_for(lambda: not job.pods() and not job.spares(), within=120, what="pods gone")
    print(f"{fault}: {marks}, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    return marks


def observe(
    scene: Scene,
    job: Job,
    *,
    began: float,
    attempt: int,
    before: dict[int, list[Any]],
    wrote: dict[str, Counter[str]],
) -> dict[str, float]:
    """The marks, once all ranks of a later attempt are beyond what was reached before."""
    job.wait_training(attempt + 1, within=240)
    status = job.wait_status(
        "its first step",
        lambda s: s["attempt"] > attempt and s["current"].get("firstStepAt"),
        within=90,
    )
    cost = _since(wrote, scene.writes())
    assert status["restarts"] == 1, "one restart, without hands"
    starts = [job.report(rank)["trainer"]["startedAt"] for rank in (0, 1)]
    firsts = [
        first_step_after(lambda r=rank: job.log(r), when=starts[rank], within=60) for rank in (0, 1)
    ]
    old = [s for r in (0, 1) for s in [*before[r], *steps(job.log(r))] if s.at < starts[r]]
    furthest = max(s.number for s in old if s.at <= began)
    ground = [new_ground(job, rank, beyond=furthest, since=starts[rank]) for rank in (0, 1)]
    moments = {k: parse_time(v) for k, v in status["current"].items() if k.endswith("At")}
    fast = bool(status["resume"].get("fast"))
    writes = cost["pods"] + cost["resumabletrainingjobs"]
    return {
        "decision": round(moments["recordedAt"] - began, 3),
        "process": round(max(starts) - began, 3),
        "step": round(max(firsts) - began, 3),
        "ground": round(max(ground) - began, 3),
        "control": round(control(status, moments, starts=starts), 3),
        "lost": furthest - (status["resume"].get("step") or 0),
        "overlap": round(max(0.0, max((s.at for s in old), default=0.0) - min(starts)), 3),
        "fast": float(fast),
        "writes": writes,
        "budget": 2 + 2 if fast else 3 * 2 + 4,
        "eventWrites": cost["events"],
    }


def new_ground(job: Job, rank: int, *, beyond: int, since: float) -> float:
    """When the rank first printed a step above `beyond`."""

    def once() -> float | None:
        later = (s.at for s in steps(job.log(rank)) if s.at > since and s.number > beyond)
        return next(later, None)

    return wait_for(once, within=120, what=f"rank {rank} beyond step {beyond}", every=0.25)


def control(status: dict[str, Any], moments: dict[str, float], *, starts: list[float]) -> float:
    """Seconds that pods, nodes, bytes and the trainer have no part in: to decide, to choose once
    all had prepared, and from the last restore to the last trainer's start."""
    decide = max(0.0, moments["recordedAt"] - moments["detectedAt"])
    chosen = parse_time(status["resume"]["at"])
    choose = max(0.0, chosen - moments["preparedAt"]) if "preparedAt" in moments else 0.0
    go = max(0.0, max(starts) - moments.get("restoredAt", max(starts)))
    return decide + choose + go


def medians(rows: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    names = rows[0]
    return {
        name: {
            "median": round(statistics.median(row[name] for row in rows), 3),
            "min": round(min(row[name] for row in rows), 3),
            "max": round(max(row[name] for row in rows), 3),
        }
        for name in names
    }


def table(result: dict[str, dict]) -> str:
    """Markdown: one line a fault, medians with smallest and largest, seconds from the fault."""
    lines = ["| fault | runs | " + " | ".join(HEADS.values()) + " |", "|---" * 9 + "|"]
    for fault, found in result.items():
        cells = []
        for name in HEADS:
            value = found["ours"][name]
            spread = f" ({value['min']:g} to {value['max']:g})" if found["runs"] > 1 else ""
            cells.append(f"{value['median']:g}{spread}")
        lines.append(f"| {fault} | {found['runs']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--node-runs", type=int, help="of node and spare; default: as many")
    parser.add_argument("--builtin-runs", type=int, help="of the indexed Job; default: as many")
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--cluster", default="rtj-bench")
    parser.add_argument("--table", type=Path, help="also write the table of the docs there")
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    faults = options.faults.split(",")
    if unknown := set(faults) - set(FAULTS):
        parser.error(f"--faults: {', '.join(sorted(unknown))}: none of {', '.join(FAULTS)}")
    result: dict[str, dict] = {}
    with stack(name=options.cluster, keep=options.keep) as made:
        space = made.namespace(f"bench-{uuid.uuid4().hex[:5]}")
        scene = Scene(made=made, space=space)
        for fault in faults:
            on_nodes = fault in ON_NODES and options.node_runs is not None
            runs = options.node_runs if on_nodes else options.runs
            before, at = os.getloadavg()[0], time.monotonic()
            mine = [ours(scene, fault=fault) for _ in range(runs)]
            result[fault] = {"runs": runs, "ours": medians(mine)}
            several = runs if options.builtin_runs is None else options.builtin_runs
            if fault in BUILTIN and several:
                theirs = [builtin(space, fault=fault) for _ in range(several)]
                result[fault]["indexedJob"] = {"runs": several, **medians(theirs)}
                result[fault]["indexedJobOverOurs"] = round(
                    result[fault]["indexedJob"]["step"]["median"]
                    / result[fault]["ours"]["step"]["median"],
                    2,
                )
            result[fault]["load"] = [round(before, 1), round(os.getloadavg()[0], 1)]
            result[fault]["took"] = round(time.monotonic() - at, 1)
            print(json.dumps({fault: result[fault]}), file=sys.stderr, flush=True)
        made.drop_namespace(space.namespace)
    if options.table is not None:
        options.table.write_text(table(result), encoding="utf-8")
    print(json.dumps(result, indent=2))
    print(table(result), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
