"""An in-memory cluster with the API server's guards, and a job to put into it."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from rtj_api import contract
from rtj_operator.core.observed import JobKey, Observed
from rtj_operator.core.plan import Plan
from rtj_operator.core.pod_facts import PodSettings
from rtj_operator.shell.api import ApiError
from rtj_operator.shell.app import App
from rtj_operator.shell.health import Pulse
from rtj_operator.shell.metrics import OperatorMetrics
from rtj_operator.shell.queue import KeyQueue

Raw = dict[str, Any]


class FakeCluster:
    """`shell.api.Cluster` in memory: versions, UIDs and conflicts as the API server has them.

    `fail` is asked before each call with its name, `fail_after` after a write was done; both may
    raise.
    """

    def __init__(self) -> None:
        self.jobs: dict[tuple[str, str], Raw] = {}
        self.pods: dict[tuple[str, str], Raw] = {}
        self.nodes: dict[str, Raw] = {}
        self.leases: list[Raw] = []
        self.config_maps: dict[tuple[str, str], Raw] = {}
        self.workloads: dict[tuple[str, str], Raw] = {}
        self.groups: dict[tuple[str, str], Raw] = {}
        self.served_groups: set[str] = set()  # apiVersions that have podgroups
        self.warnings: dict[str, list[Raw]] = {}
        self.events: dict[str, Raw] = {}
        self.calls: list[str] = []
        self.fail: Callable[[str], None] = lambda _: None
        self.fail_after: Callable[[str], None] = lambda _: None
        self._numbers = itertools.count(1)

    def _called(self, name: str) -> None:
        self.calls.append(name)
        self.fail(name)

    def _version(self) -> str:
        return str(next(self._numbers))

    def add_job(self, job: Raw) -> Raw:
        meta = job["metadata"]
        meta.setdefault("uid", f"job-{next(self._numbers)}")
        meta.setdefault("generation", 1)
        meta.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        meta["resourceVersion"] = self._version()
        self.jobs[meta["namespace"], meta["name"]] = job
        return job

    async def get_job(self, key: JobKey) -> Raw | None:
        self._called("get_job")
        return copy.deepcopy(self.jobs.get((key.namespace, key.name)))

    async def list_jobs(self) -> list[Raw]:
        self._called("list_jobs")
        return copy.deepcopy(list(self.jobs.values()))

    async def list_pods(self, key: JobKey) -> list[Raw]:
        self._called("list_pods")
        return copy.deepcopy(
            [
                pod
                for (namespace, _), pod in self.pods.items()
                if namespace == key.namespace
                and pod["metadata"]["labels"].get(contract.LABEL_JOB) == key.name
            ]
        )

    async def get_pod(self, *, namespace: str, name: str) -> Raw | None:
        self._called("get_pod")
        return copy.deepcopy(self.pods.get((namespace, name)))

    async def list_pod_warnings(self, *, namespace: str, uid: str) -> list[Raw]:
        self._called("list_pod_warnings")
        return copy.deepcopy(self.warnings.get(uid, []))

    async def get_node(self, name: str) -> Raw | None:
        self._called("get_node")
        return copy.deepcopy(self.nodes.get(name))

    async def list_leases(self) -> list[Raw]:
        self._called("list_leases")
        return copy.deepcopy(self.leases)

    async def create_pod(self, manifest: Raw) -> Raw:
        self._called("create_pod")
        pod = copy.deepcopy(manifest)
        meta = pod["metadata"]
        if (meta["namespace"], meta["name"]) in self.pods:
            raise ApiError(status=409, reason="AlreadyExists", message=f"{meta['name']} exists")
        meta |= {
            "uid": f"pod-{next(self._numbers)}",
            "resourceVersion": self._version(),
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        pod["status"] = {"phase": "Pending"}
        self.pods[meta["namespace"], meta["name"]] = pod
        self.fail_after("create_pod")
        return copy.deepcopy(pod)

    async def delete_pod(
        self, *, namespace: str, name: str, uid: str, grace_seconds: int | None = None
    ) -> None:
        self._called("delete_pod")
        pod = self.pods.get((namespace, name))
        if pod is None:
            raise ApiError(status=404, reason="NotFound", message=name)
        if pod["metadata"]["uid"] != uid:
            raise ApiError(status=409, reason="Conflict", message="the UID differs")
        del self.pods[namespace, name]
        self.fail_after("delete_pod")

    async def get_workload(self, *, namespace: str, name: str) -> Raw | None:
        self._called("get_workload")
        return copy.deepcopy(self.workloads.get((namespace, name)))

    async def apply_group(self, manifest: Raw) -> Raw:
        self._called("apply_group")
        if manifest["apiVersion"] not in self.served_groups:
            raise ApiError(status=404, message="the server could not find the requested resource")
        meta = manifest["metadata"]
        self.groups[meta["namespace"], meta["name"]] = copy.deepcopy(manifest)
        self.fail_after("apply_group")
        return manifest

    async def set_pod_finalizers(
        self, *, namespace: str, name: str, resource_version: str, finalizers: list[str]
    ) -> None:
        self._called("set_pod_finalizers")
        pod = self.pods.get((namespace, name))
        if pod is None:
            raise ApiError(status=404, reason="NotFound", message=name)
        meta = pod["metadata"]
        if meta["resourceVersion"] != resource_version:
            raise ApiError(status=409, reason="Conflict", message="the version differs")
        meta["finalizers"] = finalizers
        meta["resourceVersion"] = self._version()
        if not finalizers and meta.get("deletionTimestamp"):
            del self.pods[namespace, name]
        self.fail_after("set_pod_finalizers")

    async def annotate_pod(
        self,
        *,
        namespace: str,
        name: str,
        resource_version: str,
        annotations: dict[str, str],
        labels: dict[str, str],
    ) -> Raw:
        self._called("annotate_pod")
        pod = self.pods.get((namespace, name))
        if pod is None:
            raise ApiError(status=404, reason="NotFound", message=name)
        if pod["metadata"]["resourceVersion"] != resource_version:
            raise ApiError(status=409, reason="Conflict", message="the version differs")
        pod["metadata"].setdefault("annotations", {}).update(annotations)
        pod["metadata"].setdefault("labels", {}).update(labels)
        pod["metadata"]["resourceVersion"] = self._version()
        self.fail_after("annotate_pod")
        return copy.deepcopy(pod)

    async def put_status(self, *, key: JobKey, uid: str, resource_version: str, status: Raw) -> Raw:
        self._called("put_status")
        job = self.jobs.get((key.namespace, key.name))
        if job is None:
            raise ApiError(status=404, reason="NotFound", message=str(key))
        if job["metadata"]["resourceVersion"] != resource_version or job["metadata"]["uid"] != uid:
            raise ApiError(status=409, reason="Conflict", message="the version differs")
        job["status"] = copy.deepcopy(status)
        job["metadata"]["resourceVersion"] = self._version()
        self.fail_after("put_status")
        return copy.deepcopy(job)

    async def delete_job(self, *, key: JobKey, uid: str, resource_version: str) -> None:
        self._called("delete_job")
        job = self.jobs.get((key.namespace, key.name))
        if job is None:
            raise ApiError(status=404, reason="NotFound", message=str(key))
        meta = job["metadata"]
        if (meta["uid"], meta["resourceVersion"]) != (uid, resource_version):
            raise ApiError(status=409, reason="Conflict", message="the version differs")
        del self.jobs[key.namespace, key.name]
        self.fail_after("delete_job")

    async def get_config_map(self, *, namespace: str, name: str) -> Raw | None:
        self._called("get_config_map")
        return copy.deepcopy(self.config_maps.get((namespace, name)))

    async def put_config_map(self, config_map: Raw) -> Raw:
        self._called("put_config_map")
        meta = config_map["metadata"]
        there = self.config_maps.get((meta["namespace"], meta["name"]))
        if there is None:
            raise ApiError(status=404, reason="NotFound", message=meta["name"])
        if there["metadata"]["resourceVersion"] != meta["resourceVersion"]:
            raise ApiError(status=409, reason="Conflict", message="the version differs")
        kept = copy.deepcopy(config_map)
        kept["metadata"]["resourceVersion"] = self._version()
        self.config_maps[meta["namespace"], meta["name"]] = kept
        return copy.deepcopy(kept)

    async def create_event(self, event: Raw) -> Raw:
        self._called("create_event")
        self.events[event["metadata"]["name"]] = copy.deepcopy(event)
        return event

    async def patch_event(self, *, namespace: str, name: str, patch: Raw) -> Raw:
        self._called("patch_event")
        if name not in self.events:
            raise ApiError(status=404, reason="NotFound", message=name)
        self.events[name].update(copy.deepcopy(patch))
        return self.events[name]

    async def cluster_uid(self) -> str:
        return "cluster-1"

    async def server_version(self) -> str:
        return "v1.34.0"


def a_raw_job(*, name: str = "gpt", replicas: int = 2, **spec: Any) -> Raw:
    return {
        "apiVersion": contract.API_VERSION,
        "kind": contract.KIND,
        "metadata": {"namespace": "team", "name": name},
        "spec": {
            "replicas": replicas,
            "checkpoint": {"path": "/checkpoints", "store": {"url": "s3://bucket/x"}},
            "template": {
                "spec": {"containers": [{"name": "trainer", "image": "i", "command": ["train"]}]}
            },
            **spec,
        },
    }


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def raw_job() -> Callable[..., Raw]:
    return a_raw_job


@pytest.fixture
async def make_app(cluster):  # type: ignore[no-untyped-def]
    apps = []

    def make(decide: Callable[[Observed], Plan], **options: Any) -> App:
        app = App(
            cluster,
            login=lambda: pytest.fail("no watch here"),
            pods=PodSettings(cluster_uid="cluster-1", sidecar_image="sidecar"),
            decide=decide,
            metrics=OperatorMetrics(),
            pulse=Pulse(resources=()),
            instance="test",
            queue=KeyQueue(),
            **options,
        )
        apps.append(app)
        return app

    yield make
    for app in apps:
        await app.reports.close()
