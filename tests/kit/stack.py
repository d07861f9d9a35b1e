"""The whole product on a real cluster: cluster, S3, images, the operator by Helm.

What the e2e tests, the benchmarks and `make demo` stand on. A cluster of the given name is reused
when it is up (so that a tier starts in seconds), and is taken down only by whoever made it. Set
RTJ_TEST_KUBECONFIG to use a cluster of your own (kind and the like); then images must be loaded
there already and node faults are skipped loudly.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from devcluster import Cluster
from kit import images, manifests, tools
from kit.kube import Kube, kube_of, wait_for
from kit.s3 import S3Server

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "resumable-training-operator"
OPERATOR_NAMESPACE = "rtj-system"
RELEASE = "rtj"
SECRET = "s3-credentials"
RESTRICTED = {
    f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")
}
Say = Callable[[str], None]


@dataclass(frozen=True)
class Stack:
    """One cluster with the operator running and an S3 server that its pods can reach."""

    cluster: Cluster
    kube: Kube  # default namespace
    s3: S3Server
    host_address: str

    @property
    def operator(self) -> Kube:
        return self.kube.within(OPERATOR_NAMESPACE)

    def namespace(self, name: str, *, restricted: bool = True) -> Kube:
        """A new namespace with the store's credentials in a Secret, and what trainers read.

        Kubernetes itself refuses any pod there that is not what Pod Security calls restricted,
        unless `restricted` is false.
        """
        there = self.kube.make_namespace(name, labels=RESTRICTED if restricted else {})
        claims = manifests.claims(name) if restricted else []
        there.apply(credentials_secret(self.s3), *claims)
        if claims:
            # Else the scheduler refuses the first pods, and looks again seconds later.
            wait_for(
                lambda: all(
                    claim["status"]["phase"] == "Bound"
                    for claim in there.list("persistentvolumeclaims")
                ),
                within=120,
                what=f"the claims of namespace {name}",
            )
        return there

    def drop_namespace(self, name: str) -> None:
        self.kube.drop_namespace(name)
        volumes = f"{manifests.LABEL_NAMESPACE}={name}"
        self.kube.run("delete", "persistentvolumes", "-l", volumes, "--wait=false")

    def operator_pod(self) -> str:
        """Name of the operator pod that works, as its Lease says, once it is ready."""

        def look() -> str | None:
            lease = self.operator.get("lease", f"{RELEASE}-{CHART.name}").get("spec") or {}
            leader = (lease.get("holderIdentity") or "").rpartition("_")[0]
            for pod in self.operator.list("pods", selector="app.kubernetes.io/component=operator"):
                ready = {c["type"]: c["status"] for c in pod["status"].get("conditions", [])}
                stays = "deletionTimestamp" not in pod["metadata"]
                if pod["metadata"]["name"] == leader and ready.get("Ready") == "True" and stays:
                    return leader
            return None

        return wait_for(look, within=120, what="a ready operator pod")

    def operator_node(self) -> str:
        """The node under the operator: when it dies, Kubernetes must make the operator anew."""
        return str(self.operator.get("pod", self.operator_pod())["spec"]["nodeName"])


def credentials_secret(s3: S3Server, *, name: str = SECRET) -> dict:
    encode = lambda text: base64.b64encode(text.encode()).decode()  # noqa: E731
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "data": {
            "AWS_ACCESS_KEY_ID": encode(s3.access_key),
            "AWS_SECRET_ACCESS_KEY": encode(s3.secret_key),
        },
    }


def say_plainly(text: str) -> None:
    print(f"==> {text}", file=sys.stderr, flush=True)


@contextmanager
def stack(
    *,
    name: str,
    nodes: int = 3,
    gpus: int = 2,
    keep: bool = False,
    say: Say = say_plainly,
    buckets: tuple[str, ...] = ("checkpoints",),
    helm_values: tuple[str, ...] = (),
    cluster_options: dict | None = None,
) -> Iterator[Stack]:
    """Bring everything up; on leaving, take down what was made unless `keep`."""
    cluster = Cluster(name)
    say(f"cluster {name}: {nodes} nodes, {gpus} fake GPUs each")
    cluster.up(nodes=nodes, gpus=gpus, **(cluster_options or {}))
    try:
        facts = cluster.status()
        kube = kube_of(kubectl=facts["kubectl"], kubeconfig=facts["kubeconfig"])
        say("images into the nodes")
        operator, sidecar = images.build("operator"), images.build("sidecar")
        for image in (images.base_archive(), operator.archive, sidecar.archive):
            cluster.load(image)
        with S3Server(address=facts["hostAddress"], buckets=buckets) as s3:
            say(f"S3 server at {s3.endpoint}")
            say("operator by Helm")
            install(
                kubectl=facts["kubectl"],
                kubeconfig=facts["kubeconfig"],
                operator_image=operator.reference,
                sidecar_image=sidecar.reference,
                values=helm_values,
            )
            made = Stack(cluster=cluster, kube=kube, s3=s3, host_address=facts["hostAddress"])
            made.operator_pod()
            yield made
    finally:
        if not keep:
            say(f"taking cluster {name} down")
            cluster.down()


def install(
    *,
    kubectl: str,
    kubeconfig: str,
    operator_image: str,
    sidecar_image: str,
    values: tuple[str, ...] = (),
) -> None:
    """`helm upgrade --install`, as a user does it; raises with what helm said."""
    repository, _, tag = operator_image.rpartition(":")
    sidecar_repository, _, sidecar_tag = sidecar_image.rpartition(":")
    settings = (
        f"image.repository={repository}",
        f"image.tag={tag}",
        f"sidecar.image.repository={sidecar_repository}",
        f"sidecar.image.tag={sidecar_tag}",
        *values,
    )
    command = [str(tools.helm()), "upgrade", "--install", RELEASE, str(CHART)]
    command += ["--namespace", OPERATOR_NAMESPACE, "--create-namespace", "--wait"]
    command += ["--timeout", "180s"]
    for setting in settings:
        command += ["--set", setting]
    environment = {**os.environ, "KUBECONFIG": kubeconfig}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        there = Kube(kubectl=kubectl, kubeconfig=kubeconfig, namespace=OPERATOR_NAMESPACE)
        log = there.run("logs", f"-lapp.kubernetes.io/instance={RELEASE}", check=False)
        raise RuntimeError(f"helm could not install the operator: {done.stderr.strip()}\n{log}")


def with_namespace(made: Stack, namespace: str) -> Stack:
    """The same stack with another default namespace."""
    return replace(made, kube=made.kube.within(namespace))
