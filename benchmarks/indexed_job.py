"""The built-in alternative of `recovery.py`: an indexed Job with the same image, script and grace.

The same script with a small wrapper that loads its own newest checkpoint, as a user without this
operator would; it restarts only the pod that failed.
"""

from __future__ import annotations

import uuid

from kit import manifests
from kit.kube import Kube, wait_for

from benchmarks.recovery_steps import first_step_after, remove, steps

OWN_NEWEST = """
import glob, os, subprocess, sys
saves = sorted(glob.glob("/checkpoints/step_*.pt"))
more = ["--resume", saves[-1]] if saves else []
child = subprocess.Popen([sys.executable, "-S", *sys.argv[1:], *more])
open("/tmp/pid", "w").write(str(child.pid))
code = child.wait()
sys.exit(code if code >= 0 else 128 - code)
"""


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


def builtin(space: Kube, *, fault: str) -> dict[str, float]:
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
