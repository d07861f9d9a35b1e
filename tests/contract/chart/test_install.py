"""The chart on a real cluster: the operator comes up with exactly the rights that it needs.

Installed by the real Helm, its images built from this tree; whether a right is enough is asked of
the real API server, in the name of the operator's ServiceAccount.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit import images, tools
from kit.audit import Audit, covers
from kit.chart import CHART, render
from kit.kube import Kube, kube_of, wait_for
from kit.lanes import own
from kit.played import a_job
from kit.prometheus import Prometheus
from kit.rights import granted
from kit.scrapes import OPERATOR_JOB, operator_scrape

from devcluster import Cluster

NAMESPACE = "rtj-system"
RELEASE = "rtj"
FULL_NAME = "rtj-resumable-training-operator"
CRD = "resumabletrainingjobs.resumable-training.dev"

pytestmark = pytest.mark.contract


@dataclass(frozen=True, kw_only=True)
class Installed:
    """A cluster of one node with both images, and Helm to install with."""

    kube: Kube
    values: Mapping[str, Any]
    audit: Audit

    def helm(
        self, *arguments: str, program: Path | None = None, **values: Any
    ) -> subprocess.CompletedProcess[str]:
        settings = [f"--set-json={k}={json.dumps(v)}" for k, v in (self.values | values).items()]
        return subprocess.run(
            [
                program or tools.helm(),
                *arguments,
                f"--namespace={NAMESPACE}",
                *(settings if values else []),
            ],
            env=os.environ | {"KUBECONFIG": self.kube.kubeconfig},
            text=True,
            capture_output=True,
            check=False,
        )

    def install(self, *, chart: Path = CHART, program: Path | None = None, **values: Any) -> None:
        done = self.helm(
            "upgrade", "--install", RELEASE, str(chart),
            "--create-namespace", "--wait", "--timeout=180s",
            program=program,
            **({"logLevel": "info"} | values),
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stderr}\n{self.operator_log()}"

    def operator_log(self) -> str:
        operators = f"-lapp.kubernetes.io/instance={RELEASE}"
        return self.kube.run("logs", operators, "--tail=30", check=False)

    def may(self, verb: str, resource: str, *, namespace: str = "default", name: str = "") -> bool:
        resource, _, subresource = resource.partition("/")
        command = ["auth", "can-i", verb, f"{resource}/{name}" if name else resource]
        command += [f"--subresource={subresource}"] if subresource else []
        command += [f"--as=system:serviceaccount:{NAMESPACE}:{FULL_NAME}"]
        answer = self.kube.within(namespace).run(*command, check=False).strip()
        assert answer.split()[-1] in {"yes", "no"} or "no" in answer.split(), answer
        return answer.startswith("yes")


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    if os.getuid() != 0:
        missing = "a cluster of our own needs root"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    cluster = Cluster(own("rtj-chart"))
    user = f"system:serviceaccount:{NAMESPACE}:{FULL_NAME}"
    audit = Audit(directory=tmp_path_factory.mktemp("audit"), user=user)
    cluster.up(nodes=1, gpus=0, apiserver_args=audit.arguments())
    try:
        operator, sidecar = images.build("operator"), images.build("sidecar")
        cluster.load(operator.archive, sidecar.archive)
        facts = cluster.status()
        values = {
            "image.repository": operator.repository,
            "image.tag": operator.tag,
            "sidecar.image.repository": sidecar.repository,
            "sidecar.image.tag": sidecar.tag,
        }
        kube = kube_of(kubectl=facts["kubectl"], kubeconfig=facts["kubeconfig"])
        yield Installed(kube=kube.within(NAMESPACE), values=values, audit=audit)
    finally:
        cluster.down()


@pytest.fixture(scope="module")
def installed(there: Installed) -> Installed:
    # The API server itself then refuses a pod that does not keep to the restricted standard.
    enforced = {"pod-security.kubernetes.io/enforce": "restricted"}
    there.kube.apply(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": NAMESPACE, "labels": enforced},
        }
    )
    there.install()
    return there


def test_it_comes_up_by_itself(installed: Installed) -> None:
    pods = installed.kube.list("pods", selector=f"app.kubernetes.io/name={CHART.name}")
    assert len(pods) == 2
    for pod in pods:
        [status] = pod["status"]["containerStatuses"]
        assert status["ready"]
        assert status["restartCount"] == 0
    holder = installed.kube.get("lease", FULL_NAME)["spec"]["holderIdentity"]
    assert holder.rpartition("_")[0] in {pod["metadata"]["name"] for pod in pods}
    served = installed.kube.get("crd", CRD)
    assert served["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    log = installed.operator_log()
    assert "forbidden" not in log.lower(), log


JOBS = "resumabletrainingjobs.resumable-training.dev"
NEEDED = [
    # delete: ttlSecondsAfterFinished
    *((verb, JOBS) for verb in ("get", "list", "watch", "delete")),
    ("update", f"{JOBS}/status"),
    ("update", f"{JOBS}/finalizers"),
    *((verb, "pods") for verb in ("get", "list", "watch", "create", "patch", "delete")),
    *((verb, "events.events.k8s.io") for verb in ("create", "patch")),
    ("list", "events"),
]
CLUSTER_WIDE = [("get", "nodes"), ("list", "nodes"), ("watch", "nodes")]
REFUSED = [
    *((verb, JOBS) for verb in ("create", "update", "patch")),
    *((verb, "secrets") for verb in ("get", "list", "create")),
    ("create", "pods/exec"),
    ("get", "pods/log"),
    ("get", "configmaps"),
    ("create", "deployments.apps"),
    ("patch", "nodes"),
    ("delete", "nodes"),
    ("list", "namespaces"),
    ("create", "serviceaccounts/token"),
    ("get", "leases.coordination.k8s.io"),
    ("create", "clusterrolebindings.rbac.authorization.k8s.io"),
]


def test_it_may_do_what_it_needs_and_no_more(installed: Installed) -> None:
    for verb, resource in [*NEEDED, *CLUSTER_WIDE]:
        assert installed.may(verb, resource), f"{verb} {resource} is refused"
    assert installed.may("list", "leases.coordination.k8s.io", namespace="kube-node-lease")
    assert installed.may("get", "namespaces", name="kube-system")
    for verb, resource in REFUSED:
        assert not installed.may(verb, resource), f"{verb} {resource} is allowed"
    assert not installed.may("get", "namespaces", name="default")
    ledger = f"{FULL_NAME}-nodes"
    for verb in ("get", "update"):
        assert installed.may(verb, "configmaps", namespace=NAMESPACE, name=ledger)
        assert not installed.may(verb, "configmaps", namespace=NAMESPACE, name="another")
        leases = "leases.coordination.k8s.io"
        assert installed.may(verb, leases, namespace=NAMESPACE, name=FULL_NAME)
        assert not installed.may(verb, leases, namespace=NAMESPACE, name="another")


# What a job that is killed once and ends well on one node does not need, and what does.
NOT_USED = {
    ("delete", JOBS.partition(".")[0]): "spec.ttlSecondsAfterFinished",
    ("update", f"{JOBS.partition('.')[0]}/finalizers"): "asked only on behalf of a new pod's owner",
    ("get", "pods"): "a pod that was there already when it was to be made",
    ("delete", "pods"): "a pod that is replaced; those of a job that ends go with it",
    ("patch", "events"): "an event that comes again",
    ("list", "events"): "a pod that stays pending",
    ("create", "podgroups"): "scheduling.gang",
    ("patch", "podgroups"): "scheduling.gang",
    ("get", "workloads"): "scheduling.gang: kueue",
    ("update", "configmaps"): "a fault that points at a node",
}


def test_a_run_uses_what_is_granted_and_nothing_else(installed: Installed) -> None:
    """By the API server's audit log, after `helm test` has had a job killed and resumed."""
    done = installed.helm("test", RELEASE, "--timeout=240s")
    assert done.returncode == 0, installed.kube.run("logs", f"{FULL_NAME}-test", check=False)
    rules = set(granted(render(release=RELEASE), names={}))
    asked = dict(installed.audit.used())
    assert asked, "the audit log is empty: this proves nothing"
    beyond = {right for right in asked if not any(covers(rule, right) for rule in rules)}
    assert not beyond, f"asked for, and not granted: {sorted(map(str, beyond))}"
    refused = {right for right, code in installed.audit.used() if code == 403}
    assert not refused, sorted(map(str, refused))
    idle = {rule for rule in rules if not any(covers(rule, right) for right in asked)}
    unknown = {rule for rule in idle if (rule.verb, rule.resource) not in NOT_USED}
    assert not unknown, f"granted, and neither used nor explained: {sorted(map(str, unknown))}"


def test_prometheus_finds_it_as_the_monitor_says(installed: Installed) -> None:
    scrape = operator_scrape(installed.kube, namespace=NAMESPACE)
    with Prometheus(scrapes=[scrape], rules=(CHART / "files/rules.yaml").read_text()) as prometheus:
        up = f'sum(up{{job="{OPERATOR_JOB}"}})'
        prometheus.wait("both replicas are scraped", lambda: prometheus.value(up) == 2)
        prometheus.wait(
            "one of the two leads",
            lambda: (
                prometheus.value("count(resumable_training_operator_build_info)") == 2
                and prometheus.value("sum(resumable_training_operator_leader)") == 1
            ),
        )


def test_monitors_that_cannot_be_installed_are_refused_by_name(installed: Installed) -> None:
    done = installed.helm(
        "upgrade", RELEASE, str(CHART), **{"monitoring.renderMode": "failIfMissing"}
    )
    assert done.returncode != 0
    assert "monitoring.coreos.com/v1/" in done.stderr
    assert "set monitoring.renderMode=skipIfMissing" in done.stderr


def test_in_some_namespaces_only(installed: Installed) -> None:
    installed.kube.make_namespace("team-a")
    installed.install(**{"watch.namespaces": ["team-a"]})
    for verb, resource in NEEDED:
        assert installed.may(verb, resource, namespace="team-a"), f"{verb} {resource} is refused"
        assert not installed.may(verb, resource), f"{verb} {resource} is allowed in default"
    for verb, resource in CLUSTER_WIDE:
        assert installed.may(verb, resource), f"{verb} {resource} is refused"
    assert "forbidden" not in installed.operator_log().lower()
    # And without anything outside of them.
    uid = installed.kube.get("namespace", "kube-system")["metadata"]["uid"]
    few = {"watch.namespaces": ["team-a"], "rbac.nodes": False, "clusterUID": uid}
    installed.install(**few)
    for verb, resource in [*CLUSTER_WIDE, *NEEDED]:
        assert not installed.may(verb, resource), f"{verb} {resource} is allowed"
    log = installed.operator_log()
    assert "NodeLossDetection=Limited" in log
    assert "forbidden" not in log.lower()
    installed.install(**{"watch.namespaces": [], "rbac.nodes": True, "clusterUID": ""})


def test_uninstalling_leaves_the_jobs(installed: Installed) -> None:
    done = installed.helm("uninstall", RELEASE, "--wait")
    assert done.returncode == 0, done.stderr
    assert installed.kube.find("crd", CRD) is not None
    gone = f"clusterrole/{FULL_NAME}"
    wait_for(
        lambda: not installed.kube.run("get", gone, "--ignore-not-found").strip(),
        within=120,
        what=f"{gone} gone",
    )
    installed.install()


def release_before(path: Path) -> Path:
    """The chart as of an older release: its CRD lacks a field, its operator is replaced whole."""
    chart = path / CHART.name
    shutil.copytree(CHART, chart)
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    (chart / "Chart.yaml").write_text(yaml.safe_dump(about | {"version": "0.0.9"}))
    crd = yaml.safe_load((chart / "files/crd.yaml").read_text())
    fields_of(crd)["status"]["properties"].pop("spares")
    (chart / "files/crd.yaml").write_text(yaml.safe_dump(crd))
    deployment = chart / "templates/deployment.yaml"
    text = deployment.read_text()
    begin, end = text.index("    type: RollingUpdate"), text.index("  selector:")
    deployment.write_text(f"{text[:begin]}    type: Recreate\n{text[end:]}")
    (chart / "templates/poddisruptionbudget.yaml").unlink()
    return chart


def fields_of(crd: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    return fields


@pytest.mark.parametrize("helm", [pytest.param("helm3", marks=pytest.mark.long), "helm"])
def test_upgraded_rolled_back_and_removed_with_a_job_there(
    installed: Installed, tmp_path: Path, helm: str
) -> None:
    kube, program = installed.kube, tools.TOOLS[helm]()
    assert installed.helm("uninstall", RELEASE, "--wait", program=program).returncode == 0
    kube.run("delete", "crd", CRD, "--ignore-not-found")
    installed.install(chart=release_before(tmp_path), program=program, replicas=1)
    kube.apply(a_job(namespace=NAMESPACE, name="kept", suspend=True))
    uid = kube.get("rtj", "kept")["metadata"]["uid"]

    def state() -> tuple[bool, str, int]:
        """(the CRD knows the new field, how pods are replaced, how many there are)"""
        assert kube.get("rtj", "kept")["metadata"]["uid"] == uid, "the job has come to no harm"
        deployment = kube.get("deployment", FULL_NAME)["spec"]
        fields = fields_of(kube.get("crd", CRD))["status"]["properties"]
        return "spares" in fields, deployment["strategy"]["type"], deployment["replicas"]

    before, after = (False, "Recreate", 1), (True, "RollingUpdate", 2)
    assert state() == before
    holder = kube.get("lease", FULL_NAME)["spec"]["holderIdentity"]
    assert holder
    installed.install(program=program)
    assert state() == after
    assert kube.get("lease", FULL_NAME)["spec"]["holderIdentity"], "the upgrade left the Lease"
    done = installed.helm("rollback", RELEASE, "1", "--wait", "--timeout=180s", program=program)
    assert done.returncode == 0, done.stderr
    assert state() == before
    installed.install(program=program)
    assert state() == after
    assert installed.helm("uninstall", RELEASE, "--wait", program=program).returncode == 0
    assert kube.get("rtj", "kept")["metadata"]["uid"] == uid
    kube.run("delete", "rtj", "kept")
    installed.install()
