"""One ResumableTrainingJob on a real cluster, seen and hurt as a person would.

Faults here are real: a process killed with SIGKILL, a pod deleted by kubectl, an eviction by the
API. Must never reach into the operator or the sidecar by any way that a user has not.
"""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass
from typing import Any

from rtj_api import contract

from kit import host
from kit.kube import Kube, KubectlError, wait_for

KIND = f"{contract.PLURAL}.{contract.GROUP}"
LOOK = 0.5  # seconds between two looks: each is a kubectl, a twentieth of a second of a core
KILL_TRAINER = """
import json, os, signal, sys
state = json.load(open("/rtj/run/supervisor.json"))
pid = state["trainer"]["pid"]
os.kill(pid, getattr(signal, sys.argv[1]))
print(pid)
"""


def sidecar_port(pod: dict[str, Any]) -> int:
    """As the pod's own manifest has it: on the host's network each pod has another."""
    for container in pod["spec"]["initContainers"]:
        if container["name"] == contract.CONTAINER_SIDECAR:
            told = {entry["name"]: entry.get("value") for entry in container["env"]}
            return int(json.loads(told[contract.ENV_CONFIG])["statusPort"])
    raise KeyError(f"{pod['metadata']['name']} has no sidecar")


@dataclass(frozen=True)
class Job:
    """The handle of one applied job."""

    kube: Kube
    name: str

    def get(self) -> dict[str, Any]:
        return self.kube.get(KIND, self.name)

    def status(self) -> dict[str, Any]:
        return self.get().get("status") or {}

    def _living(self) -> list[dict[str, Any]]:
        found = self.kube.list("pods", selector=f"{contract.LABEL_JOB}={self.name}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def pods(self) -> list[dict[str, Any]]:
        """The pods of its ranks that are not being deleted, by rank."""
        found = [p for p in self._living() if contract.LABEL_RANK in p["metadata"]["labels"]]
        return sorted(found, key=lambda pod: int(pod["metadata"]["labels"][contract.LABEL_RANK]))

    def spares(self) -> list[dict[str, Any]]:
        """Its pods that wait for a rank, by name."""
        role = contract.ROLE_SPARE
        found = [p for p in self._living() if p["metadata"]["labels"][contract.LABEL_ROLE] == role]
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def pod(self, rank: int) -> dict[str, Any]:
        for pod in self.pods():
            if pod["metadata"]["labels"][contract.LABEL_RANK] == str(rank):
                return pod
        raise KeyError(f"no pod of rank {rank}")

    def pod_name(self, rank: int) -> str:
        return str(self.pod(rank)["metadata"]["name"])

    def node(self, rank: int) -> str:
        return str(self.pod(rank)["spec"]["nodeName"])

    def rank_off(self, node: str) -> int:
        """A rank whose pod does not run on that node."""
        ranks = range(self.get()["spec"]["replicas"])
        return next(rank for rank in ranks if self.node(rank) != node)

    def condition(self, type_: str) -> dict[str, Any]:
        return next(c for c in self.status().get("conditions", []) if c["type"] == type_)

    def events(self) -> list[dict[str, Any]]:
        selector = f"involvedObject.name={self.name},involvedObject.kind={contract.KIND}"
        out = self.kube.run("get", "events", "-o", "json", "--field-selector", selector)
        return json.loads(out)["items"]

    def log(self, rank: int, *, container: str = "trainer") -> str:
        return self.kube.run("logs", self.pod_name(rank), "-c", container)

    def report(self, rank: int) -> dict[str, Any]:
        """The sidecar's report, from the host: it can reach the pods' addresses."""
        return self.report_of(self.pod(rank))

    def report_of(self, pod: dict[str, Any]) -> dict[str, Any]:
        url = f"http://{pod['status']['podIP']}:{sidecar_port(pod)}{contract.PATH_STATUS}"
        [owner] = pod["metadata"]["ownerReferences"]
        request = urllib.request.Request(url, headers={contract.HEADER_JOB: owner["uid"]})
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.load(answer)

    def wait_status(self, what: str, look, *, within: float = 120) -> dict[str, Any]:
        """The status once `look(status)` holds."""

        def once() -> dict[str, Any] | None:
            status = self.status()
            return status if look(status) else None

        try:
            return wait_for(once, within=within, every=LOOK, what=f"{self.name}: {what}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from None

    def wait_phase(self, *phases: str, within: float = 120) -> dict[str, Any]:
        return self.wait_status(
            f"phase {phases}", lambda s: s.get("phase") in phases, within=within
        )

    def wait_step(self, step: int, *, within: float = 120) -> None:
        """Until some rank has printed that step or a later one in its running trainer."""

        def look() -> bool:
            found = self.report(0).get("progress", {}).get("step")
            return found is not None and found >= step

        try:
            wait_for(look, within=within, every=LOOK, what=f"{self.name} at step {step}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from None

    def wait_durable(self, step: int, *, within: float = 120) -> dict[str, Any]:
        return self.wait_status(
            f"durable step {step}",
            lambda s: ((s.get("checkpoint") or {}).get("lastDurableStep") or -1) >= step,
            within=within,
        )

    def wait_training(self, attempt: int, *, within: float = 180) -> None:
        """Until every rank's sidecar says that it trains in that attempt or a later one."""

        def look() -> bool:
            reports = [self.report_of(pod) for pod in self.pods()]
            trains = [r["attempt"] >= attempt and r["phase"] == "Training" for r in reports]
            return len(trains) == self.get()["spec"]["replicas"] and all(trains)

        try:
            what = f"{self.name} training in attempt {attempt}"
            wait_for(look, within=within, every=LOOK, what=what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from None

    def kill_trainer(self, rank: int, *, signal: str = "SIGKILL") -> None:
        # A trainer's container asks for no CPU: beside busy ones, Python takes long to start there.
        self.kube.exec(self.pod_name(rank), "python3", "-c", KILL_TRAINER, signal, timeout=180)

    def kill_sidecar(self, rank: int) -> None:
        """kill -9 of the sidecar, from the machine that the nodes share."""
        host.kill_container(self.pod(rank), contract.CONTAINER_SIDECAR)

    def evict(self, rank: int) -> None:
        name = self.pod_name(rank)
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": self.kube.namespace},
        }
        path = f"/api/v1/namespaces/{self.kube.namespace}/pods/{name}/eviction"
        self.kube.run("create", "--raw", path, "-f", "-", stdin=json.dumps(body))

    def request(self, *, id: str, action: str, save: str | None = None) -> None:
        wish = {"id": id, "action": action} | ({"save": save} if save else {})
        value = f"{contract.ANNOTATION_REQUEST}={json.dumps(wish)}"
        self.kube.run("annotate", KIND, self.name, "--overwrite", value)

    def delete(self) -> None:
        self.kube.run("delete", KIND, self.name, "--ignore-not-found")

    def describe(self) -> str:
        """Everything a person would look at, for a failed test's message."""
        parts = []
        for arguments in (
            ("get", KIND, self.name, "-o", "jsonpath={.status}"),
            ("get", "pods", "-o", "wide"),
            ("get", "events", "--sort-by=.lastTimestamp"),
        ):
            try:
                parts.append(self.kube.run(*arguments)[-6000:])
            except KubectlError as error:
                parts.append(str(error))
        for rank in (0, 1):
            for container in ("trainer", "rtj-sidecar"):
                try:
                    name = self.pod_name(rank)
                    tail = self.kube.run("logs", name, "-c", container, "--tail=25")
                    parts.append(f"--- {name} {container}\n{tail}")
                except (KubectlError, KeyError) as error:
                    parts.append(f"--- rank {rank} {container}: {error}")
        return "\n".join(parts)
