"""The devcluster keeps its word: real faults, nothing left behind, clusters apart.

Clusters of their own names are used, so that one that someone works with is not touched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from kit import images

from devcluster import Cluster, ClusterError, baseimage, cgroups, network
from devcluster.layout import STATE_ROOT
from devcluster.nodeconfig import SYSCTLS
from devcluster.processes import PATH
from devcluster.status import described

# Every other test here stands on a devcluster, and cuts and kills its nodes.
pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
# Kubernetes' default grace is 50 s; the kubelet's lease is left at its default.
QUICK_LOSS = ("--node-monitor-grace-period=20s",)
GPUS = 3
# Seconds for what takes a few alone: another cluster works on the same two cores.
PATIENCE = 180
PROBE = """
import socket, ssl, sys, time, urllib.request
context = ssl._create_unverified_context()
deadline = time.monotonic() + 60
for url in sys.argv[1:]:
    while True:
        try:
            assert urllib.request.urlopen(url, timeout=10, context=context).status == 200, url
            break
        except OSError as error:
            # kube-proxy refuses for a moment after the first endpoint is ready.
            assert time.monotonic() < deadline, (url, error)
            time.sleep(0.1)
try:
    socket.gethostbyname("example.com")
except socket.gaierror:
    print("probed")
"""


def until(condition: Callable[[], Any], *, what: str, timeout: float = PATIENCE) -> Any:
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {timeout} s for {what}"
        time.sleep(0.2)
    return value


def kubectl(cluster: Cluster, *arguments: str, stdin: str | None = None) -> str:
    result = subprocess.run(
        [str(cluster.kubectl), "--kubeconfig", str(cluster.kubeconfig), *arguments],
        capture_output=True,
        text=True,
        input=stdin,
        timeout=PATIENCE + 20,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "devcluster", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
    )


def ready(cluster: Cluster, node: str) -> str:
    path = '{.status.conditions[?(@.type=="Ready")].status}'
    return kubectl(cluster, "get", "node", node, "-o", f"jsonpath={path}")


def recorded(cluster: Cluster) -> dict[str, int]:
    records = (cluster.directory / "processes").glob("*.json")
    return {path.stem: int(path.read_text().split('"pid": ')[1].split(",")[0]) for path in records}


def traces(name: str) -> list[str]:
    """Everything on the machine that bears the cluster's name."""
    found = [
        f"cgroup {d}" for h in cgroups.hierarchies() for d in h.mount.glob(f"devcluster-{name}")
    ]
    found += [f"netns {each}" for each in network.namespaces(f"devcluster.{name}.")]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            # A zombie has ended; reaping it is the init's business.
            if (
                f"/devcluster-{name}/" in (process / "cgroup").read_text()
                and (process / "exe").exists()
            ):
                found.append(f"process {process.name}")
        except OSError:
            continue
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    found += [line for line in mounts if f"devcluster/{name}/" in line or f".{name}." in line]
    found += [str(STATE_ROOT / name)] if (STATE_ROOT / name).exists() else []
    return found


def surroundings() -> dict[str, str]:
    """What a cluster must leave as it was, and no other work on the machine changes."""
    sysctls = {name: Path("/proc/sys", name).read_text() for name in SYSCTLS}
    forward = Path("/proc/sys/net/ipv4/ip_forward").read_text()
    rules = subprocess.run(["iptables-save"], capture_output=True, text=True, env={"PATH": PATH})
    kept = [line for line in rules.stdout.splitlines() if not line.startswith(("#", ":"))]
    return {**sysctls, "forward": forward, "rules": "\n".join(kept)}


@pytest.fixture(scope="module")
def base_image() -> Path:
    """What `devcluster base-image` makes; `make setup` has made it once."""
    return images.base_archive()


@pytest.fixture(scope="module")
def cluster(base_image: Path) -> Iterator[Cluster]:
    made = Cluster("test-dc-a")
    made.down()
    made.up(nodes=2, gpus=GPUS, audit=True, kcm_args=QUICK_LOSS)
    made.load(base_image)
    yield made
    made.down()
    assert traces(made.name) == []


def gang(name: str, *, replicas: int) -> str:
    """A StatefulSet of Python web servers that each want a whole node's GPUs."""
    return f"""
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec: {{selector: {{app: {name}}}, ports: [{{port: 80, targetPort: 8080}}]}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: {name}}}
spec:
  serviceName: {name}
  podManagementPolicy: Parallel
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      terminationGracePeriodSeconds: 1
      tolerations: [{{operator: Exists}}]
      containers:
      - name: main
        image: {baseimage.DEFAULT_NAME}
        imagePullPolicy: Never
        command: [python3, -u, -m, http.server, "8080"]
        readinessProbe: {{httpGet: {{port: 8080}}, periodSeconds: 1}}
        resources: {{limits: {{nvidia.com/gpu: {GPUS}}}}}
"""


@pytest.fixture(scope="module")
def pods(cluster: Cluster) -> dict[str, dict[str, str]]:
    """Two running pods, one a node: node name -> name and ip."""
    kubectl(cluster, "apply", "-f", "-", stdin=gang("web", replicas=2))
    rolled_out(cluster)
    path = "{range .items[*]}{.spec.nodeName} {.metadata.name} {.status.podIP}{'\\n'}{end}"
    text = kubectl(cluster, "get", "pods", "-l", "app=web", "-o", f"jsonpath={path}")
    rows = [line.split() for line in text.splitlines()]
    assert sorted(row[0] for row in rows) == ["node-1", "node-2"]
    return {node: {"name": name, "ip": ip} for node, name, ip in rows}


def rolled_out(cluster: Cluster) -> None:
    """Until both pods are Ready."""
    kubectl(cluster, "rollout", "status", "statefulset/web", f"--timeout={PATIENCE}s")


def restarts(cluster: Cluster, pod: str) -> int:
    path = "jsonpath={.status.containerStatuses[0].restartCount}"
    return int(kubectl(cluster, "get", "pod", pod, "-o", path) or 0)


def answers(ip: str) -> bool:
    probe = f"import urllib.request as u; u.urlopen('http://{ip}:8080/', timeout=2)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True)
    return done.returncode == 0


def test_up_twice_changes_nothing_and_another_size_is_refused(cluster: Cluster) -> None:
    before = recorded(cluster)
    assert len(before) == 5 + 2 * 5
    cluster.up()
    cluster.up(nodes=2, gpus=GPUS)
    assert recorded(cluster) == before
    with pytest.raises(ClusterError, match="exists with nodes 2, asked for nodes 3; `down"):
        cluster.up(nodes=3)
    status = cluster.status()
    assert status["ready"]
    assert [(n["ready"], n["gpus"]) for n in status["nodes"]] == [(True, GPUS)] * 2


def test_processes_belong_to_no_shell(cluster: Cluster) -> None:
    for pid in recorded(cluster).values():
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        parent, session = int(fields[1]), int(fields[3])
        assert session != os.getsid(0)
        assert parent != os.getpid()


def test_pods_reach_each_other_the_api_and_this_machine(cluster: Cluster, pods: dict) -> None:
    server = ThreadingHTTPServer((cluster.host_address, 0), SimpleHTTPRequestHandler)
    port = server.server_port
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        first, second = pods["node-1"], pods["node-2"]
        urls = (
            f"http://{second['ip']}:8080/",
            f"http://{second['name']}.web:8080/",
            "http://web/",
            "https://kubernetes.default.svc/healthz",
            f"http://{cluster.host_address}:{port}/",
            f"http://host.devcluster.internal:{port}/",
        )
        run = ("exec", "-i", first["name"], "--", "python3", "-", *urls)
        assert kubectl(cluster, *run, stdin=PROBE) == "probed\n"
    finally:
        server.shutdown()
        server.server_close()
    until(lambda: all(answers(pod["ip"]) for pod in pods.values()), what="answers from here")
    assert '"GET / HTTP/1.1" 200' in kubectl(cluster, "logs", second["name"])


def test_gpus_are_counted(cluster: Cluster, pods: dict) -> None:
    kubectl(cluster, "apply", "-f", "-", stdin=gang("late", replicas=1))
    path = "jsonpath={.items[*].status.conditions[0].message}"
    message = until(
        lambda: kubectl(cluster, "get", "pods", "-l", "app=late", "-o", path),
        what="the scheduler's verdict",
    )
    assert "2 Insufficient nvidia.com/gpu" in message
    kubectl(cluster, "delete", "statefulset,service", "late")


def test_an_archive_is_loaded_once(cluster: Cluster, base_image: Path, tmp_path: Path) -> None:
    said: list[str] = []
    Cluster(cluster.name, say=said.append).load(base_image)
    assert len(said) == 2
    assert all(line.endswith(f"{baseimage.DEFAULT_NAME} there already") for line in said)
    bad = tmp_path / "bad.tar"
    bad.write_text("no archive")
    done = cli("load", "--name", cluster.name, str(bad))
    assert done.returncode == 1
    assert "bad.tar: not a readable image archive" in done.stderr


def servers(node: str, cluster: Cluster) -> set[int]:
    """The pods' own processes on that node, as this machine counts them."""
    found = set()
    for pid in cgroups.pids(f"devcluster-{cluster.name}/{node}"):
        with suppress(OSError):  # it has ended meanwhile
            if b"http.server" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.add(pid)
    return found


@pytest.fixture
def healed(cluster: Cluster) -> Iterator[None]:
    """Whatever becomes of the test, the next one finds both nodes in order."""
    yield
    print(described(cluster.status()))  # shown where the test failed
    for node in ("node-1", "node-2"):
        cluster.node_heal(node)


@pytest.mark.usefixtures("healed")
def test_a_cut_node_goes_on_unseen_and_a_killed_one_is_dead(cluster: Cluster, pods: dict) -> None:
    """Both at once: the API misses each only after its grace. Healed, one is back and the other
    has booted."""
    killed, cut = pods["node-1"], pods["node-2"]
    until(lambda: all(answers(pod["ip"]) for pod in pods.values()), what="answers of both pods")
    going_on = servers("node-2", cluster)
    assert going_on
    cluster.node_cut("node-2")
    cluster.node_kill("node-1")
    assert not cgroups.pids(f"devcluster-{cluster.name}/node-1")
    assert not any(answers(pod["ip"]) for pod in pods.values())
    with pytest.raises(ClusterError, match="node-1 has no power; `node heal node-1`"):
        cluster.node_cut("node-1")
    for node in ("node-1", "node-2"):
        until(lambda node=node: ready(cluster, node) == "Unknown", what=f"the API to miss {node}")
    assert going_on <= servers("node-2", cluster)
    assert [node["connected"] for node in cluster.status()["nodes"]] == [False, False]

    cluster.node_heal("node-2")
    assert ready(cluster, "node-2") == "True"
    until(lambda: answers(cut["ip"]), what="the pod to be reachable again")
    assert restarts(cluster, cut["name"]) == 0
    assert going_on <= servers("node-2", cluster)

    cluster.node_heal("node-1")
    assert ready(cluster, "node-1") == "True"
    assert cluster.status()["nodes"][0]["gpus"] == GPUS
    until(lambda: restarts(cluster, killed["name"]) == 1, what="its container to start again")
    rolled_out(cluster)


@pytest.mark.usefixtures("healed")
def test_a_node_rebooted_before_anyone_noticed_keeps_its_gpus(cluster: Cluster) -> None:
    cluster.node_kill("node-2")
    cluster.node_heal("node-2")
    assert cluster.status()["nodes"][1]["gpus"] == GPUS
    until(lambda: cluster.status()["ready"], what="all of the cluster to be ready")
    rolled_out(cluster)


def test_the_audit_log_holds_writes_only(cluster: Cluster, pods: dict) -> None:
    text = Path(cluster.status()["auditLog"]).read_text()
    assert '"resource":"statefulsets"' in text
    assert '"verb":"create"' in text
    assert not any(f'"verb":"{verb}"' in text for verb in ("get", "list", "watch"))


def test_clusters_are_apart_and_a_killed_one_is_put_right(cluster: Cluster) -> None:
    around, others = surroundings(), recorded(cluster)
    second = Cluster("test-dc-b")
    second.down()
    try:
        second.up(nodes=1, gpus=1)
        assert second.host_address != cluster.host_address
        kubectl(second, "create", "configmap", "kept", "--from-literal=a=b")

        # Killed: processes gone, namespaces and cgroups still there. `up` puts it right.
        cgroups.kill(f"devcluster-{second.name}")
        assert not second.status()["ready"]
        assert any(line.startswith("netns") for line in traces(second.name))
        second.up()
        assert second.status()["ready"]
        assert kubectl(second, "get", "configmap", "kept", "-o", "jsonpath={.data.a}") == "b"

        # One process killed.
        os.kill(recorded(second)["kube-scheduler"], 9)
        os.kill(recorded(second)["node-1.containerd"], 9)
        until(lambda: not second.status()["ready"], what="the death to show")
        assert cli("status", "--name", second.name).returncode == 1
        second.up()
        assert cli("status", "--name", second.name).returncode == 0

        # Killed, and its records lost too.
        cgroups.kill(f"devcluster-{second.name}")
        shutil.rmtree(second.directory)
        second.up(nodes=1, gpus=1)
        assert second.status()["ready"]
        cgroups.kill(f"devcluster-{second.name}")
        shutil.rmtree(second.directory)
    finally:
        second.down()
    assert traces(second.name) == []
    assert surroundings() == around
    assert recorded(cluster) == others
    assert cluster.status()["ready"]
