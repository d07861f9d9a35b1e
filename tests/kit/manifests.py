"""ResumableTrainingJobs for tests, benchmarks and the demo, as a person would write them.

Built as plain data, so that a test changes one field without a template language. The trainers
are this tree's own files, mounted read-only from the nodes' file system together with the real
PyTorch that `scripts/setup` installed: the devcluster's nodes see the machine's disk. Pods are
what the Pod Security level "restricted" allows: no root, no hostPath (the files come by claims
that `claims` makes); with `root=True` they are what people write who never heard of it. Must never
contain anything that a trainer would need to know of this project.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from rtj_api import contract

from kit import tools

Manifest = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "localhost/rtj-base:bookworm"
SECRET = "s3-credentials"
CODE = "/code"  # this tree's examples and kit, in the pod
PACKAGES = "/packages"  # the real PyTorch, in the pod
DDP = f"{CODE}/examples/pytorch-ddp/train.py"
HF = f"{CODE}/examples/hf-trainer/train.py"
COUNTER = f"{CODE}/kit/trainers/counter.py"
HABITS = f"{CODE}/kit/trainers/habits"
RESUME = ("--resume", f"$({contract.ENV_RESUME_CHECKPOINT})")
LABEL_NAMESPACE = "rtj-test/namespace"  # on volumes that belong to one namespace
USER = 1000  # no such user is in the image, as on a cluster that hands out numbers
NO_ROOT = {
    "runAsNonRoot": True,
    "runAsUser": USER,
    "runAsGroup": USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}
NO_PRIVILEGE = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def site_packages() -> Path:
    """Where the real PyTorch lies on this machine: $RTJ_TRAINER_VENV, else the cache's."""
    venv = Path(os.environ.get("RTJ_TRAINER_VENV") or tools.cache() / "trainer-venv")
    found = sorted(venv.glob("lib/python3.*/site-packages"))
    if not found:
        raise tools.ToolMissing(f"no trainer packages in {venv}: run `make setup`")
    return found[0]


def sources() -> dict[str, Path]:
    """What every trainer here reads, by volume name: directories of this machine."""
    return {
        "packages": site_packages(),
        "examples": ROOT / "examples",
        "kit": ROOT / "tests" / "kit",
    }


def claims(namespace: str, *, more: Mapping[str, Path] | None = None) -> list[Manifest]:
    """Claims of the names of `sources` (and `more`), bound to those directories, read-only.

    The volumes are the cluster's, labelled with the namespace, to be removed after it.
    """
    made: list[Manifest] = []
    for name, path in {**sources(), **(more or {})}.items():
        volume = f"{namespace}-{name}"
        claim = {"namespace": namespace, "name": name}
        common = {
            "accessModes": ["ReadOnlyMany"],
            "storageClassName": "",
        }
        made += [
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": volume, "labels": {LABEL_NAMESPACE: namespace}},
                "spec": {
                    **common,
                    "capacity": {"storage": "1Gi"},
                    "claimRef": claim,
                    "persistentVolumeReclaimPolicy": "Retain",
                    "hostPath": {"path": str(path), "type": "Directory"},
                },
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": claim,
                "spec": {
                    **common,
                    "volumeName": volume,
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            },
        ]
    return made


def store(
    *,
    endpoint: str,
    bucket: str = "checkpoints",
    prefix: str = "",
    secret: str = SECRET,
) -> Manifest:
    """`checkpoint.store` of an S3-compatible server."""
    url = f"s3://{bucket}/{prefix}".rstrip("/")
    return {"url": url, "endpoint": endpoint, "credentialsSecret": secret}


def apart(job: str) -> Manifest:
    """A pod's spec in which no two pods of `job` share a node: left alone, the scheduler puts them
    where the least runs, which may be one node."""
    term = {
        "labelSelector": {"matchLabels": {contract.LABEL_JOB: job}},
        "topologyKey": "kubernetes.io/hostname",
    }
    return {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    }


def job(
    name: str,
    *,
    store: Mapping[str, Any],
    command: Sequence[str],
    replicas: int = 2,
    gpus: int = 1,
    framework: str = "pytorch",
    resume_args: Sequence[str] = RESUME,
    checkpoint: Mapping[str, Any] | None = None,
    recovery: Mapping[str, Any] | None = None,
    grace_seconds: int = 5,
    root: bool = False,
    pod: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> Manifest:
    """A job that runs `command` in the base image with this tree and PyTorch mounted.

    As a user of its own in a namespace that has the `claims`; with `root` as nobody in particular,
    with no securityContext at all, which a restricted namespace refuses.
    `checkpoint`, `recovery`, `pod` (the pod's spec) and `spec` (the job's) are laid over what is
    built here, field by field; a list replaces a list.
    """
    trainer = {
        "name": contract.CONTAINER_TRAINER,
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        "env": [
            {"name": "PYTHONPATH", "value": PACKAGES},
            {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
        ],
        "volumeMounts": [
            {"name": "packages", "mountPath": PACKAGES, "readOnly": True},
            {"name": "examples", "mountPath": f"{CODE}/examples", "readOnly": True},
            {"name": "kit", "mountPath": f"{CODE}/kit", "readOnly": True},
        ],
    }
    if gpus:
        trainer["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    if not root:
        trainer["securityContext"] = deepcopy(NO_PRIVILEGE)
    pod_spec: Manifest = {
        "terminationGracePeriodSeconds": grace_seconds,
        "containers": [trainer],
        "volumes": [
            _host(name, path) if root else _claim(name) for name, path in sources().items()
        ],
    }
    if not root:
        pod_spec["securityContext"] = deepcopy(NO_ROOT)
    made: Manifest = {
        "apiVersion": contract.API_VERSION,
        "kind": contract.KIND,
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "framework": framework,
            "checkpoint": {
                "path": "/checkpoints",
                "store": dict(store),
                "resumeArgs": list(resume_args),
            },
            # A cluster on one machine has no CPUs to set aside for each sidecar.
            "sidecar": {
                "resources": {
                    "requests": {"cpu": "50m", "memory": "64Mi"},
                    "limits": {"memory": "512Mi"},
                },
                "drainSeconds": 30,
            },
            "template": {"spec": pod_spec},
        },
    }
    over: Manifest = {"spec": deepcopy(dict(spec or {}))}
    for part, value in (("checkpoint", checkpoint), ("recovery", recovery)):
        if value:
            over["spec"][part] = overlaid(over["spec"].get(part) or {}, value)
    if pod:
        over = overlaid(over, {"spec": {"template": {"spec": pod}}})
    return overlaid(made, over)


def ddp(
    name: str,
    *,
    store: Mapping[str, Any],
    steps: int = 60,
    save_every: int = 5,
    step_seconds: float = 0.2,
    extra: Sequence[str] = (),
    **more: Any,
) -> Manifest:
    """The example `pytorch-ddp`: torch.save of the full state, resumed by `--resume PATH`."""
    command = ["python3", DDP, "--out", "/checkpoints", "--steps", str(steps)]
    command += ["--save-every", str(save_every), "--step-seconds", str(step_seconds), *extra]
    return job(name, store=store, command=command, **more)


def hf_trainer(
    name: str,
    *,
    store: Mapping[str, Any],
    steps: int = 60,
    save_every: int = 5,
    step_seconds: float = 0.2,
    extra: Sequence[str] = (),
    **more: Any,
) -> Manifest:
    """The example `hf-trainer`, one pod.

    `resume_args=("--resume_from_checkpoint", "True")` lets the Trainer find its own newest
    directory; the default gives it the path.
    """
    command = ["python3", HF, "--output_dir", "/checkpoints", "--max_steps", str(steps)]
    command += ["--save_steps", str(save_every), "--step_seconds", str(step_seconds), *extra]
    given = ("--resume_from_checkpoint", f"$({contract.ENV_RESUME_CHECKPOINT})")
    return job(name, store=store, command=command, **{"replicas": 1, "resume_args": given} | more)


def counter(
    name: str,
    *,
    store: Mapping[str, Any],
    steps: int = 1_000_000,
    save_every: int = 5,
    step_seconds: float = 0.2,
    extra: Sequence[str] = (),
    **more: Any,
) -> Manifest:
    """The trainer of the standard library only: counts, saves, starts in a tenth of a second."""
    command = ["python3", "-S", COUNTER, "--out", "/checkpoints", "--steps", str(steps)]
    command += ["--save-every", str(save_every), "--step-seconds", str(step_seconds), *extra]
    return job(name, store=store, command=command, **{"framework": "pytorch"} | more)


def habit(
    name: str,
    script: str,
    *,
    store: Mapping[str, Any],
    steps: int = 60,
    every: int = 5,
    stall_at: int | None = None,
    torch: bool = False,
    shell: str | None = None,
    **more: Any,
) -> Manifest:
    """A script of `kit/trainers/habits`. `shell`: the words of a bash -c script, with `TRAIN` where
    the trainer's own command goes."""
    words = ["python3", *([] if torch else ["-S"]), f"{HABITS}/{script}.py", "--out"]
    words += ["/checkpoints", "--steps", str(steps), "--every", str(every)]
    words += ["--stall-at", str(stall_at)] if stall_at is not None else []
    command = words if shell is None else ["bash", "-c", shell.replace("TRAIN", " ".join(words))]
    made = job(name, store=store, command=command, **{"replicas": 1, "gpus": 0} | more)
    path = f"{CODE}:{PACKAGES}" if torch else CODE
    trainer_of(made)["env"] = [
        {"name": "PYTHONPATH", "value": path},
        {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
    ]
    return made


def overlaid(base: Mapping[str, Any], over: Mapping[str, Any]) -> Manifest:
    """`over` laid over `base`: objects field by field, anything else replaced; None removes."""
    result = deepcopy(dict(base))
    for key, value in over.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = overlaid(result[key], value)
        else:
            result[key] = deepcopy(value)
    return result


def trainer_of(manifest: Mapping[str, Any]) -> Manifest:
    """The trainer's container within a manifest built here, to be changed in place."""
    return manifest["spec"]["template"]["spec"]["containers"][0]


def _host(name: str, path: Path) -> Manifest:
    return {"name": name, "hostPath": {"path": str(path), "type": "Directory"}}


def _claim(name: str) -> Manifest:
    return {"name": name, "persistentVolumeClaim": {"claimName": name, "readOnly": True}}
