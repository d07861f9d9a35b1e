"""`make demo`: a PyTorch job on a real cluster, killed four ways, and what it cost.

Everything is real: Kubernetes, Helm, the S3 server, PyTorch, the faults. The timeline is read from
what the operator recorded in the object, as a user would read it. Must never print a number that
it did not see.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from kit import manifests
from kit.kube import wait_for
from kit.reference import final_weights, uninterrupted_ddp
from kit.rtj import Job
from kit.s3_objects import list_keys
from kit.stack import Stack, stack

CLUSTER = "rtj-demo"
NAMESPACE = "demo"
STEPS = 260
SAVE_EVERY = 5


@dataclass
class Timeline:
    """Prints lines with the seconds since the start."""

    began: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began:6.1f} s] {text}", flush=True)


def since(later: str | None, earlier: str | None) -> str:
    """Seconds between two times of the API, or a dash."""
    if not later or not earlier:
        return "-"
    return (
        f"{(datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds():.2f} s"
    )


def fault(line: Timeline, job: Job, *, title: str, hurt: Callable[[], None]) -> None:
    """Wait for new durable work, hurt, wait for training, and tell what the object says."""
    status = job.status()
    attempt = status["attempt"] + 1
    job.wait_durable((status["checkpoint"].get("lastDurableStep") or 0) + SAVE_EVERY)
    step = job.report(0)["progress"].get("step")
    line.say(f"--- {title} (at step {step})")
    hurt()
    job.wait_training(attempt, within=300)
    status = job.wait_status(
        "the first new step",
        lambda s: s["attempt"] >= attempt and s["current"].get("firstStepAt"),
        within=120,
    )
    current, resume = status["current"], status["resume"]
    culprit = current.get("culprit") or {}
    line.say(
        f"    decided: {current['cause']}, rank {culprit.get('rank', '-')} -> {current['kind']}; "
        f"resume from step {resume.get('step')} ({resume.get('name')})"
    )
    line.say(
        f"    fault heard -> recorded {since(current['recordedAt'], current.get('detectedAt'))}, "
        f"-> all ranks training {since(current.get('trainingAt'), current.get('detectedAt'))}, "
        f"-> first new step {since(current.get('firstStepAt'), current.get('detectedAt'))}"
    )


def run(made: Stack, line: Timeline) -> bool:
    """The demo on a stack that is up; True when the interrupted run ended bitwise equal."""
    made.kube.drop_namespace(NAMESPACE, wait=True)
    # As most people write their first job: no word about users or privileges.
    space = made.namespace(NAMESPACE, restricted=False)
    store = manifests.store(endpoint=made.s3.endpoint)
    line.say("kubectl apply: 2 pods, PyTorch DDP, torch.save every 5 steps")
    space.apply(
        manifests.ddp(
            "gpt",
            store=store,
            steps=STEPS,
            save_every=SAVE_EVERY,
            step_seconds=0.3,
            root=True,
            pod=manifests.apart("gpt"),
        )
    )
    job = Job(kube=space, name="gpt")
    job.wait_phase("Running", within=240)
    job.wait_durable(SAVE_EVERY)
    line.say(f"training; commit records in S3: {len(list_keys(made.s3, prefix='demo/'))} objects")

    fault(line, job, title="SIGKILL of rank 1's process", hurt=lambda: job.kill_trainer(1))
    fault(
        line,
        job,
        title="kubectl delete pod (rank 0)",
        hurt=lambda: space.run("delete", "pod", job.pod_name(0), "--wait=false"),
    )
    fault(line, job, title="eviction of rank 1", hurt=lambda: job.evict(1))
    lost = job.node(job.rank_off(made.operator_node()))
    fault(line, job, title=f"power cut of {lost}", hurt=lambda: made.cluster.node_kill(lost))
    log = space.run("logs", "-f", job.pod_name(0), "-c", "trainer", timeout=900)
    status = job.wait_phase("Succeeded", within=300)
    wait_for(lambda: not job.pods(), within=120, what="the pods gone, GPUs free")
    line.say(f"Succeeded: {status['starts']} starts, {status['restarts']} restarts")
    print(space.run("get", "rtj"), flush=True)
    line.say("the same script, never interrupted, for comparison …")
    expected, got = uninterrupted_ddp(steps=STEPS), final_weights(log)
    line.say(f"final weights, uninterrupted: {expected[:16]}…")
    line.say(
        f"final weights, killed 4 ways: {got[:16]}…  {'EQUAL' if got == expected else 'DIFFERENT'}"
    )
    return got == expected


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__.splitlines()[0])
    parser.add_argument("--cluster", default=CLUSTER, help="name of the devcluster")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up")
    options = parser.parse_args(arguments)
    line = Timeline()
    with stack(name=options.cluster, keep=options.keep, say=line.say) as made:
        return 0 if run(made, line) else 1


if __name__ == "__main__":
    sys.exit(main())
