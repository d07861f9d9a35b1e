"""A soak: API server, kubelets, network and operator falter again and again, and nobody is lost.

A gang trains on a devcluster of real kubelets. At random, one at a time, with pauses between:

| hiccup | for |
|---|---|
| api | SIGSTOP of the API server: watches and writes hang, no Lease is renewed | 5 to 40 s |
| kubelet | SIGSTOP of a node's kubelet: its Lease comes late | 5 to 20 s |
| network | a node under a rank has no network: reports, collectives, store | 2 to 12 s |
| operator | its pod is deleted, another comes | until it is ready |

    python benchmarks/hiccups.py --minutes 20 [--seed 1] [--cluster rtj-bench]

Ends with 1 where an attempt was lost: every restart here is a false loss. Prints JSON: each hiccup,
how far the gang got, what status says of attempts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

from kit import manifests
from kit.kube import KubectlError, wait_for
from kit.rtj import Job
from kit.stack import Stack, stack

PAUSE_SECONDS = (5.0, 20.0)  # between two hiccups
SETTLE_SECONDS = 60.0  # after the last: what takes its time to notice has noticed


def api(made: Stack, job: Job, draw: random.Random) -> float:
    return held(made, "kube-apiserver", draw.uniform(5, 40))


def kubelet(made: Stack, job: Job, draw: random.Random) -> float:
    return held(made, f"{job.node(draw.randrange(2))}.kubelet", draw.uniform(5, 20))


def held(made: Stack, component: str, seconds: float) -> float:
    with made.cluster.paused(component):
        time.sleep(seconds)
    return seconds


def network(made: Stack, job: Job, draw: random.Random) -> float:
    """To plug it in again takes a moment too, and counts."""
    node, began = job.node(draw.randrange(2)), time.monotonic()
    made.cluster.node_cut(node)
    time.sleep(draw.uniform(2, 12))
    made.cluster.node_heal(node)
    return time.monotonic() - began


def operator(made: Stack, job: Job, draw: random.Random) -> float:
    began = time.monotonic()
    gone = made.operator_pod()
    made.operator.run("delete", "pod", gone, "--wait=false")
    wait_for(lambda: made.operator_pod() != gone, within=120, what="another operator")
    return time.monotonic() - began


HICCUPS: dict[str, Callable[[Stack, Job, random.Random], float]] = {
    "api": api,
    "kubelet": kubelet,
    "network": network,
    "operator": operator,
}


def soak(made: Stack, job: Job, *, minutes: float, draw: random.Random, kinds: list[str]) -> list:
    """What was done, in order: (kind, seconds that it lasted, status afterwards)."""
    done: list[dict[str, Any]] = []
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        kind = draw.choice(kinds)
        lasted = HICCUPS[kind](made, job, draw)
        time.sleep(draw.uniform(*PAUSE_SECONDS))
        told = standing(job)
        done.append({"kind": kind, "seconds": round(lasted, 1), **told})
        print(done[-1], file=sys.stderr, flush=True)
        if told["attempt"] != 1:
            break
    return done


def standing(job: Job) -> dict[str, Any]:
    status = wait_for(lambda: answered(job), within=120, what="an answer of the API server")
    current = status.get("current") or {}
    told = {"attempt": status["attempt"], "restarts": status["restarts"]}
    if status["attempt"] != 1:
        told["cause"] = f"{current.get('cause')}: {current.get('message')}"
    return told


def answered(job: Job) -> dict[str, Any] | None:
    try:
        return job.status()
    except KubectlError:
        return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--kinds", default=",".join(HICCUPS))
    parser.add_argument("--cluster", default="rtj-bench")
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    if unknown := set(kinds) - set(HICCUPS):
        parser.error(f"--kinds: {', '.join(sorted(unknown))}: none of {', '.join(HICCUPS)}")
    with stack(name=options.cluster, keep=options.keep) as made:
        space = made.namespace(f"hiccups-{uuid.uuid4().hex[:5]}")
        store = manifests.store(endpoint=made.s3.endpoint, prefix=space.namespace)
        space.apply(manifests.counter("soak", store=store, save_every=25, extra=("--lockstep",)))
        job = Job(kube=space, name="soak")
        job.wait_durable(25, within=180)
        first = job.report(0)["progress"]["step"]
        draw = random.Random(options.seed)
        done = soak(made, job, minutes=options.minutes, draw=draw, kinds=kinds)
        time.sleep(SETTLE_SECONDS)
        end = standing(job)
        result = {
            "benchmark": "hiccups",
            "seed": options.seed,
            "minutes": options.minutes,
            "hiccups": len(done),
            "seconds_of_them": round(sum(each["seconds"] for each in done), 1),
            "steps_made": job.report(0)["progress"]["step"] - first,
            "lost_attempts": end["attempt"] - 1,
            "load_average": os.getloadavg(),
            "done": done,
            "end": end,
        }
        job.delete()
        made.drop_namespace(space.namespace)
    print(json.dumps(result, indent=2))
    return 1 if result["lost_attempts"] else 0


if __name__ == "__main__":
    sys.exit(main())
