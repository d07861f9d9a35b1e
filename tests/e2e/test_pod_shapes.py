"""Pods as people write them: each shape is started, hurt once, and goes on from its save."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kit import host, images, manifests
from kit.kube import Kube, wait_for
from kit.manifests import NO_PRIVILEGE, overlaid, trainer_of
from kit.rtj import Job
from kit.stack import Stack
from kit.tls import make_authority, tls_front
from rtj_api import contract

SERVED = f"{manifests.CODE}/kit/trainers/served.py"
PYTHON = "/usr/bin/python3.11"  # of the base image
OWN_USER = "localhost/rtj-own-user:1"


def counter(product: Stack, space: Kube, name: str, **more: Any) -> dict[str, Any]:
    store = manifests.store(endpoint=product.s3.endpoint, prefix=space.namespace)
    return manifests.counter(name, store=store, **{"replicas": 1, "gpus": 0} | more)


def in_memory(made: dict[str, Any]) -> dict[str, Any]:
    """Checkpoints in a directory of this pod's own on a memory-backed volume, and a root file
    system that nobody may write."""
    volume = {"name": "fast", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}
    made["spec"]["template"]["spec"]["volumes"].append(volume)
    trainer = trainer_of(made)
    trainer["securityContext"]["readOnlyRootFilesystem"] = True
    trainer["env"].append(
        {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    )
    trainer["volumeMounts"].append(
        {"name": "fast", "mountPath": "/checkpoints", "subPathExpr": "runs/$(WHO)"}
    )
    return of_default_size(made)


def of_default_size(made: dict[str, Any]) -> dict[str, Any]:
    """The sidecar asks for what the operator thinks that it needs; what a user states stands."""
    del made["spec"]["sidecar"]["resources"]
    return made


def local(**wish: object) -> dict[str, Any]:
    """`spec.checkpoint` with that wish for the directory that the operator adds."""
    return {"local": wish}


def with_probes(made: dict[str, Any]) -> dict[str, Any]:
    """A server that takes three seconds to come up, asked by every probe there is, in a pod whose
    containers share their processes and that has an init container and a sidecar of its own."""
    trainer = trainer_of(made)
    trainer["command"][trainer["command"].index(manifests.COUNTER)] = SERVED
    page = {
        "httpGet": {"path": "/", "port": "web"},
        "periodSeconds": 2,
        "timeoutSeconds": 5,
        "failureThreshold": 2,
    }
    trainer |= {
        "ports": [{"name": "web", "containerPort": 8000}],
        "startupProbe": page | {"failureThreshold": 60},
        "livenessProbe": page,
        "readinessProbe": page,
        "lifecycle": {"postStart": {"exec": {"command": ["sh", "-c", "echo hook >> /tmp/hooks"]}}},
    }
    plain = {"image": manifests.IMAGE, "securityContext": NO_PRIVILEGE}
    pod = made["spec"]["template"]["spec"]
    pod["shareProcessNamespace"] = True
    pod["initContainers"] = [
        {"name": "fetch", "command": ["true"], **plain},
        {"name": "proxy", "command": ["sleep", "inf"], "restartPolicy": "Always", **plain},
    ]
    pod["containers"].append({"name": "helper", "command": ["sleep", "inf"], **plain})
    return made


@contextmanager
def private_store(product: Stack, space: Kube, scratch: Path) -> Iterator[str]:
    """An https endpoint that only an authority of its own vouches for, in ConfigMap `our-ca`."""
    authority, server = make_authority(scratch, address=product.host_address)
    behind = (product.s3.address, product.s3.port)
    with tls_front(certificate=server, address=product.host_address, behind=behind) as port:
        space.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "our-ca"},
                "data": {"our.pem": authority.read_text()},
            }
        )
        yield f"https://{product.host_address}:{port}"


# A trainer in shell: counts, saves each fifth step, goes on from the file it is given. Kubernetes
# makes one dollar of two.
SHELL_TRAINER = """
echo $$$$ > /tmp/pid; set -- $(RTJ_RESUME_ARGS); n=0; [ $# -lt 2 ] || n=$(cat "$2")
echo "START $n"
while :; do
    n=$((n + 1)); sleep 0.2
    [ $((n % 5)) -ne 0 ] || { echo $n > /tmp/new; mv /tmp/new /checkpoints/step_$n.txt; }
done
"""


def without_python(product: Stack, space: Kube) -> dict[str, Any]:
    """The base image, its Python hidden by a file that nobody can execute."""
    store = manifests.store(endpoint=product.s3.endpoint, prefix=space.namespace)
    made = manifests.job(
        "shell",
        store=store,
        command=["sh", "-c", SHELL_TRAINER],
        replicas=1,
        gpus=0,
        framework="none",
        checkpoint={"layout": "generic", "include": ["step_*.txt"]},
    )
    hidden = {"name": "hidden", "configMap": {"name": "no-python"}}
    made["spec"]["template"]["spec"]["volumes"].append(hidden)
    trainer_of(made)["volumeMounts"].append(
        {"name": "hidden", "mountPath": PYTHON, "subPath": "python"}
    )
    return made


def on_one_nodes_network(made: dict[str, Any], node: str) -> dict[str, Any]:
    pod = {"hostNetwork": True, "nodeSelector": {"kubernetes.io/hostname": node}}
    return overlaid(made, {"spec": {"template": {"spec": pod}}})


def second_attempt(status: dict[str, Any]) -> dict[str, Any]:
    """What is recorded of the attempt after the one fault."""
    return next(row for row in status["attempts"] if row["attempt"] == 2)


def sidecar_restarts(job: Job) -> int:
    rows = job.pod(0)["status"]["initContainerStatuses"]
    return next(r["restartCount"] for r in rows if r["name"] == contract.CONTAINER_SIDECAR)


@pytest.mark.timeout(500)
def test_each_shape_goes_on_from_its_save(
    product: Stack, space: Kube, open_space: Kube, tmp_path: Path
) -> None:
    own_user = images.with_user(
        images.base_archive(), user="4242:4242", reference=OWN_USER, to=tmp_path / "own.tar"
    )
    product.cluster.load(own_user)
    node = product.operator_node()
    lockstep = {"replicas": 2, "extra": ("--lockstep",), "root": True}
    with private_store(product, space, tmp_path) as endpoint:
        ca = {
            "store": {"endpoint": endpoint, "caBundle": {"configMap": "our-ca", "key": "our.pem"}}
        }
        space.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "no-python"},
                "data": {"python": ""},
            },
            without_python(product, space),
            in_memory(counter(product, space, "memory")),
            counter(product, space, "local-memory", checkpoint=local(medium="Memory", size="64Mi")),
            of_default_size(counter(product, space, "local-disk", checkpoint=local(size="256Mi"))),
            with_probes(counter(product, space, "probes")),
            counter(product, space, "authority", checkpoint=ca),
        )
        of_an_image = counter(product, open_space, "own-user", root=True)
        trainer_of(of_an_image)["image"] = OWN_USER
        open_space.apply(
            counter(product, open_space, "plain", root=True),
            of_an_image,
            *(
                on_one_nodes_network(counter(product, open_space, name, **lockstep), node)
                for name in ("host-a", "host-b")
            ),
        )
        jobs = {
            name: Job(kube=kube, name=name)
            for kube, names in (
                (space, ("memory", "local-memory", "local-disk", "probes", "authority", "shell")),
                (open_space, ("plain", "own-user", "host-a", "host-b")),
            )
            for name in names
        }
        for job in jobs.values():
            job.wait_durable(5, within=180)
        pods = {name: job.pod(0)["metadata"]["uid"] for name, job in jobs.items()}
        for name, job in jobs.items():
            if name == "probes":
                space.exec(job.pod_name(0), "touch", "/tmp/sick")
            elif name == "shell":
                space.exec(job.pod_name(0), "sh", "-c", "kill -9 $(cat /tmp/pid)")
            else:
                job.kill_trainer(0)
        for name, job in jobs.items():
            job.wait_training(2)
            status = job.wait_status("a restart", lambda s: s["restarts"] >= 1)
            assert second_attempt(status)["kind"] == "InPlace", status
            assert status["resume"]["step"] >= 5, name
            job.wait_durable(status["resume"]["step"] + 5)
            assert job.pod(0)["metadata"]["uid"] == pods[name], name

        probed = jobs["probes"]
        unhealthy = second_attempt(probed.status())
        assert unhealthy["cause"] == "TrainerUnhealthy", unhealthy
        assert "HTTP status 500" in unhealthy["culprit"]["message"]

        def each_start_had_its_hook() -> bool:
            hooks = space.exec(probed.pod_name(0), "cat", "/tmp/hooks").split()
            return len(hooks) == probed.status()["starts"] >= 2

        # A start is counted before its trainer runs, and on a busy machine a probe may fail again.
        wait_for(each_start_had_its_hook, within=60, what="a hook at each start")
        assert sidecar_restarts(probed) == 0

        degraded = jobs["shell"].condition("Degraded")
        assert (degraded["status"], degraded["reason"]) == ("True", "SupervisorMissing")
        starts = [s for s in jobs["shell"].log(0).split() if s != "START"]
        assert starts[0] == "0"
        assert starts[-1] == str(jobs["shell"].status()["resume"]["step"])

        sidecar = jobs["memory"].pod(0)["spec"]["initContainers"][0]
        assert sidecar["resources"]["limits"]["memory"] == "1088Mi"
        assert sidecar["securityContext"]["runAsUser"] == manifests.USER
        written = space.exec(jobs["memory"].pod_name(0), "ls", "/checkpoints").split()
        assert any(name.startswith("step_") for name in written)

        shapes = {name: jobs[name].pod(0)["spec"] for name in ("local-memory", "local-disk")}
        volumes = {
            name: next(v for v in spec["volumes"] if v["name"] == contract.VOLUME_CHECKPOINTS)
            for name, spec in shapes.items()
        }
        assert volumes["local-memory"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "64Mi"}
        assert volumes["local-disk"]["emptyDir"] == {"sizeLimit": "256Mi"}
        asked = shapes["local-disk"]["initContainers"][0]["resources"]["requests"]
        assert asked["ephemeral-storage"] == "256Mi"
        mounted = space.exec(jobs["local-memory"].pod_name(0), "cat", "/proc/mounts").splitlines()
        of_path = [line.split()[2] for line in mounted if line.split()[1] == "/checkpoints"]
        assert of_path == ["tmpfs"]

        # Files that the root sidecar put back belong to the image's user, who can go on.
        pod = jobs["own-user"].pod_name(0)
        assert open_space.exec(pod, "id", "-u").strip() == "4242"

        ports = {
            (job.name, rank): job.report(rank)["rank"]
            for job in (jobs["host-a"], jobs["host-b"])
            for rank in (0, 1)
        }
        assert sorted(ports.values()) == [0, 0, 1, 1]
        assert {jobs[n].node(r) for n in ("host-a", "host-b") for r in (0, 1)} == {node}

        # A pod with root and no securityContext at all, made anew.
        job = jobs["plain"]
        open_space.run("delete", "pod", job.pod_name(0), "--wait=false")
        job.wait_training(3)
        assert job.status()["resume"]["step"] >= 10


def refused(job: Job, *words: str, reason: str = "PodRejected") -> dict[str, Any]:
    """The status once Running gives that reason with all of these words."""

    def look(status: dict[str, Any]) -> bool:
        running = next(c for c in status.get("conditions", []) if c["type"] == "Running")
        return running["reason"] == reason and all(w in running["message"] for w in words)

    return job.wait_status(f"refused with {words}", look, within=60)


@pytest.mark.timeout(300)
def test_a_refused_pod_names_the_remedy_and_heals(product: Stack, space: Kube) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "team"},
        "spec": {"hard": {"count/pods": "1"}},
    }
    space.apply(quota)
    nameless = counter(product, space, "nameless")
    user = {"runAsUser": None, "runAsGroup": None}
    over = {"spec": {"template": {"spec": {"securityContext": user}}}}
    nameless = overlaid(nameless, over)
    space.apply(counter(product, space, "two", replicas=2), nameless)
    two, other = Job(kube=space, name="two"), Job(kube=space, name="nameless")
    said = refused(two, "exceeded quota: team", "ResourceQuota team", reason="QuotaExceeded")
    assert said["starts"] == 0
    refused(other, "PodSecurity", "runAsUser")
    space.apply(overlaid(quota, {"spec": {"hard": {"count/pods": "5"}}}))
    two.wait_phase("Running", within=120)
    assert two.status()["starts"] == 1
    space.apply(counter(product, space, "nameless"))
    other.wait_phase("Running", within=120)


@pytest.mark.timeout(400)
def test_out_of_memory_in_both_shapes(product: Stack, space: Kube) -> None:
    """A child killed at the container's limit; and the whole container, as cgroup v2 does it.

    Where this machine has cgroup v1 the kernel kills one process, and then every other one of
    the container is killed with it from here, as memory.oom.group would.
    """
    made = counter(product, space, "hungry")
    trainer = trainer_of(made)
    trainer["resources"] = {"limits": {"memory": "160Mi"}}
    trainer["command"][trainer["command"].index(manifests.COUNTER)] = (
        f"{manifests.CODE}/kit/trainers/hungry.py"
    )
    space.apply(made)
    job = Job(kube=space, name="hungry")
    job.wait_training(2, within=240)
    pod = job.pod(0)["metadata"]["uid"]
    current = job.wait_status("one restart", lambda s: s["restarts"] == 1)["current"]
    assert (current["cause"], current["kind"]) == ("OutOfMemory", "InPlace"), current
    for words in ("160 MiB", "a process that the trainer had started"):
        assert words in current["message"] or "whole container" in current["message"], current
    step = job.status()["resume"]["step"]
    assert step >= 10
    job.wait_durable(step + 10)

    # The container saw an out-of-memory kill, so its runtime calls every end of it OOMKilled.
    attempt = job.status()["attempt"]
    host.kill_all_processes(job.pod(0), contract.CONTAINER_TRAINER)
    job.wait_training(attempt + 1, within=120)
    status = job.wait_status("resumed", lambda s: s["restarts"] >= 2)
    assert status["current"]["cause"] == "OutOfMemory", status["current"]
    assert status["resume"]["step"] >= step + 10
    assert status["current"]["kind"] == "InPlace", status["current"]
    assert job.pod(0)["metadata"]["uid"] == pod
    job.wait_durable(status["resume"]["step"] + 5)

    # Soon again: the kubelet holds the container back, and the pod is replaced instead.
    host.kill_all_processes(job.pod(0), contract.CONTAINER_TRAINER)
    wait_for(
        lambda: [p for p in job.pods() if p["metadata"]["uid"] != pod],
        within=90,
        what="a new pod in place of one that the kubelet holds back",
    )
    job.wait_status(
        "going on in a new pod",
        lambda s: s["phase"] == "Running" and s["resume"]["step"] >= status["resume"]["step"] + 5,
        within=120,
    )
    starts = [row for row in job.log(0).splitlines() if row.startswith("START ")]
    assert len(starts) == 1, "one trainer for one attempt"
