"""How long from a fault to the next step: this operator and the built-in indexed Job, side by side.

One cluster, one trainer program, one clock: the trainer prints `STEP n time` with the machine's
time, and every node of a devcluster shares that clock. Prints JSON with the medians, the ratio of
each pair and the machine's load; asserts no absolute time, for machines differ.

    python benchmarks/recovery.py --runs 10 [--faults crash,hang,torn,node] [--cluster rtj-bench]

| fault | what happens to rank 1 |
|---|---|
| crash | SIGKILL of the trainer process |
| deaf | the same, where every rank ignores SIGTERM |
| delete, evict | its pod, by the API; time counts from just before the call |
| hang | SIGSTOP of the trainer process; the ranks step in lockstep, a step takes a second |
| torn | half of a newer save appears beside the good ones, and SIGKILL of the trainer (of rank 0) |
| node | power cut of its node; the ranks step in lockstep, as with a collective |

`decision` is the recordedAt of the attempt in status, `process` the last trainer's start as its
supervisor saw it, `step` the first step of the rank that was last to print one, `overlap` how long
any rank of the old attempt stepped on after one of the new had begun (seen where logs remain). The
indexed Job runs the same script with a small wrapper that loads its own newest checkpoint, as a
user without this operator would; it restarts only the pod that failed. It is not asked about
`hang`, `torn` and `node`: it waits for ever, fails in each start, waits more than 350 s.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from kit import manifests
from kit.kube import Kube, wait_for
from kit.rtj import Job
from kit.stack import Stack, stack
from kubernetes import client, config
from rtj_api.status import parse_time

WHOLE = re.compile(r"STEP (\d+) (\d+\.\d{6})$")
FAULTS = ("crash", "deaf", "delete", "evict", "hang", "torn", "node")
BUILTIN = ("crash", "deaf", "delete", "evict")
SIGNAL = "import json,os;os.kill(json.load(open('/rtj/run/supervisor.json'))['trainer']['pid'],{})"
TEAR = """
import glob
last = sorted(glob.glob("/checkpoints/step_*.pt"))[-1]
whole = open(last, "rb").read()
later = int(last[-10:-3]) + 1
open(f"/checkpoints/step_{later:07d}.pt", "wb").write(whole[: len(whole) // 2])
"""
EXTRA = {"deaf": ("--deaf",), "node": ("--lockstep",), "hang": ("--lockstep",)}
OWN_NEWEST = """
import glob, os, subprocess, sys
saves = sorted(glob.glob("/checkpoints/step_*.pt"))
more = ["--resume", saves[-1]] if saves else []
child = subprocess.Popen([sys.executable, "-S", *sys.argv[1:], *more])
open("/tmp/pid", "w").write(str(child.pid))
code = child.wait()
sys.exit(code if code >= 0 else 128 - code)
"""


@dataclass(frozen=True)
class Step:
    number: int
    at: float


def steps(log: str) -> list[Step]:
    """`STEP n time` lines of a trainer's log; one that was cut off by a kill counts nothing."""
    found = (WHOLE.match(line) for line in log.splitlines())
    return [Step(number=int(line[1]), at=float(line[2])) for line in found if line]


def first_step_after(look: Callable[[], str], *, when: float, within: float) -> float:
    """Time of the first step printed after `when`."""

    def once() -> float | None:
        later = [step.at for step in steps(look()) if step.at > when]
        return later[0] if later else None

    return wait_for(once, within=within, what="a new step", every=0.25)


def our_job(space: Kube, made: Stack, *, name: str, fault: str) -> Job:
    """Training, with a save that both ranks have."""
    store = manifests.store(endpoint=made.s3.endpoint, prefix=space.namespace)
    seconds = 1.0 if fault == "hang" else 0.2
    extra = EXTRA.get(fault, ())
    job = manifests.counter(name, store=store, save_every=5, step_seconds=seconds, extra=extra)
    space.apply(job)
    ours = Job(kube=space, name=name)
    ours.wait_durable(10, within=180)
    wait_for(
        lambda: set(ours.report(0)["pinned"]) & set(ours.report(1)["pinned"]),
        within=60,
        what="a save on both ranks",
    )
    return ours


def remove(space: Kube, pod: str, *, evict: bool) -> float:
    """Delete or evict a pod through the API; the moment before the call."""
    api = client.CoreV1Api(config.new_client_from_config(space.kubeconfig))
    where = {"name": pod, "namespace": space.namespace}
    body = client.V1Eviction(metadata=client.V1ObjectMeta(**where))
    began = time.time()
    if evict:
        api.create_namespaced_pod_eviction(**where, body=body)
    else:
        api.delete_namespaced_pod(**where)
    return began


def begin(made: Stack, space: Kube, job: Job, *, fault: str) -> float:
    """Do it to rank 1; Unix seconds of the moment before."""
    if fault in ("crash", "deaf", "hang", "torn"):
        number = signal.SIGSTOP if fault == "hang" else signal.SIGKILL
        script = f"import time;print(time.time());{SIGNAL.format(int(number))}"
        script = TEAR + script if fault == "torn" else script
        return float(space.exec(job.pod_name(0 if fault == "torn" else 1), "python3", "-c", script))
    if fault == "node":
        lost = job.node(1)
        began = time.time()
        made.cluster.node_kill(lost)
        return began
    return remove(space, job.pod_name(1), evict=fault == "evict")


def ours(made: Stack, space: Kube, *, fault: str) -> dict[str, float]:
    """Seconds from the fault to each mark, of one fresh job."""
    job = our_job(space, made, name=f"j{uuid.uuid4().hex[:6]}", fault=fault)
    attempt, lost = job.status()["attempt"], job.node(1)
    began = begin(made, space, job, fault=fault)
    try:
        marks = observe(job, began=began, attempt=attempt)
    finally:
        job.delete()
        if fault == "node":
            made.cluster.node_heal(lost)
    wait_for(lambda: not job.pods(), within=120, what="pods gone")
    print(f"{fault}: {marks}, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    return marks


def observe(job: Job, *, began: float, attempt: int) -> dict[str, float]:
    """The marks, once all ranks of a later attempt train."""
    job.wait_training(attempt + 1, within=240)
    status = job.wait_status(
        "recorded", lambda s: s["attempt"] > attempt and s["current"].get("trainingAt"), within=60
    )
    starts = [job.report(rank)["trainer"]["startedAt"] for rank in (0, 1)]
    firsts = [
        first_step_after(lambda r=rank: job.log(r), when=starts[rank], within=60) for rank in (0, 1)
    ]
    assert status["restarts"] == 1, "one restart, without hands"
    old = [step.at for rank in (0, 1) for step in steps(job.log(rank)) if step.at < starts[rank]]
    return {
        "decision": round(parse_time(status["current"]["recordedAt"]) - began, 3),
        "process": round(max(starts) - began, 3),
        "step": round(max(firsts) - began, 3),
        "overlap": round(max(0.0, max(old, default=0.0) - min(starts)), 3),
    }


def indexed_job(name: str, *, extra: tuple[str, ...] = ()) -> dict:
    """The built-in alternative: same image, script and grace; restartPolicy OnFailure."""
    command = ["python3", "-c", OWN_NEWEST, manifests.COUNTER, "--out", "/checkpoints"]
    command += ["--save-every", "5", "--step-seconds", "0.2", "--save-ranks", "all", *extra]
    template = manifests.job("x", store={"url": "s3://x/y"}, command=command)["spec"]["template"]
    pod = template["spec"]
    pod["restartPolicy"] = "OnFailure"
    pod["volumes"].append({"name": "ck", "emptyDir": {}})
    trainer = pod["containers"][0]
    trainer["volumeMounts"].append({"name": "ck", "mountPath": "/checkpoints"})
    trainer["env"].append(
        {
            "name": "RANK",
            "valueFrom": {
                "fieldRef": {
                    "fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"
                }
            },
        }
    )
    template.setdefault("metadata", {})["labels"] = {"bench": name}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completions": 2,
            "parallelism": 2,
            "completionMode": "Indexed",
            "backoffLimit": 6,
            "template": template,
        },
    }


def builtin(made: Stack, space: Kube, *, fault: str) -> dict[str, float]:
    """The same fault on the indexed Job; the seconds until the lost rank steps again."""
    name = f"b{uuid.uuid4().hex[:6]}"
    space.apply(indexed_job(name, extra=("--deaf",) if fault == "deaf" else ()))

    def pod() -> dict:
        found = space.list(
            "pods", selector=f"bench={name},batch.kubernetes.io/job-completion-index=1"
        )
        return [p for p in found if "deletionTimestamp" not in p["metadata"]][0]  # noqa: RUF015

    def log() -> str:
        return space.run("logs", pod()["metadata"]["name"], "-c", "trainer")

    wait_for(lambda: len(steps(log())) >= 12, within=120, what="the indexed Job's steps")
    who = pod()["metadata"]["name"]
    if fault in ("crash", "deaf"):
        script = "import os,time;print(time.time());os.kill(int(open('/tmp/pid').read()),9)"
        began = float(space.exec(who, "python3", "-c", script))
    else:
        began = remove(space, who, evict=fault == "evict")
        wait_for(lambda: pod()["metadata"]["name"] != who, within=60, what="a new pod")
    step = first_step_after(log, when=began + 0.3, within=120) - began
    space.run("delete", "job", name, "--wait=true")
    return {"step": step}


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--node-runs", type=int, default=3, help="node losses take longer")
    parser.add_argument("--builtin-runs", type=int, help="of the indexed Job; default: as many")
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--cluster", default="rtj-bench")
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    faults = options.faults.split(",")
    if unknown := set(faults) - set(FAULTS):
        parser.error(f"--faults: {', '.join(sorted(unknown))}: none of {', '.join(FAULTS)}")
    result: dict[str, dict] = {}
    with stack(name=options.cluster, keep=options.keep) as made:
        space = made.namespace(f"bench-{uuid.uuid4().hex[:5]}")
        for fault in faults:
            runs = options.node_runs if fault == "node" else options.runs
            before = os.getloadavg()[0]
            mine = [ours(made, space, fault=fault) for _ in range(runs)]
            result[fault] = {"runs": runs, "ours": medians(mine)}
            if fault in BUILTIN:
                several = options.builtin_runs or runs
                theirs = [builtin(made, space, fault=fault) for _ in range(several)]
                result[fault]["indexedJob"] = {"runs": several, **medians(theirs)}
                result[fault]["indexedJobOverOurs"] = round(
                    result[fault]["indexedJob"]["step"]["median"]
                    / result[fault]["ours"]["step"]["median"],
                    2,
                )
            result[fault]["load"] = [round(before, 1), round(os.getloadavg()[0], 1)]
            print(json.dumps({fault: result[fault]}), file=sys.stderr, flush=True)
        made.drop_namespace(space.namespace)
    print(json.dumps(result, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
