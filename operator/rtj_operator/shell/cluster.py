"""The real cluster: `kubernetes.aio` for configuration, credentials and transport, plain dicts
for bodies.

The typed models of that client refuse fields that they do not know before anything is sent, so a
user's pod template must never pass through them. The only module that imports `kubernetes`. Must
never retry: the queue does, with back-off and fresh reads.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote_plus as quote  # "/" too: some names come from reports
from urllib.parse import urlencode, urlsplit

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from rtj_api import contract

from rtj_operator.core.observed import JobKey
from rtj_operator.shell.api import ApiError, Raw
from rtj_operator.shell.endpoints import (
    JOBS,
    config_map_path,
    error_of,
    job_path,
    lease_path,
    pod_path,
)

MAX_REQUESTS = 32  # at once; the API server's own fairness does the rest
PAGE = 500
REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=5)
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"  # JSON is YAML
WORKLOAD_VERSIONS = ("kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1")

OnRequest = Callable[[str, str, int, float], None]
"""verb, resource, status code (0: not reached), seconds."""
OnWatch = Callable[[str, str | None], None]
"""resource: a list or watch of it was answered; what the API server says where it refused."""
OnRefused = Callable[[str], None]
"""What the API server says of a request that it has forbidden."""


async def load_configuration(*, kubeconfig: str | None = None) -> Configuration:
    """Inside a pod its service account, else the kubeconfig (argument, KUBECONFIG, ~/.kube)."""
    configuration = Configuration()
    configuration.connection_pool_maxsize = MAX_REQUESTS * 2
    if kubeconfig is None and "KUBECONFIG" not in os.environ and _in_cluster():
        config.load_incluster_config(client_configuration=configuration)
    else:
        await config.load_kube_config(
            config_file=kubeconfig or os.environ.get("KUBECONFIG"),
            client_configuration=configuration,
            persist_config=False,
        )
    return configuration


def _in_cluster() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ


class KubeCluster:
    """`shell.api.Cluster` over HTTP."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        user_agent: str,
        namespaces: tuple[str, ...] = (),
        on_request: OnRequest = lambda *_: None,
        on_refused: OnRefused = lambda _: None,
    ) -> None:
        """`namespaces`: where jobs are listed; empty means all."""
        self._configuration = configuration
        self._client = ApiClient(configuration)
        self._namespaces = namespaces
        self._headers = {"Accept": "application/json", "User-Agent": user_agent}
        self._on_request = on_request
        self._on_refused = on_refused
        self._slots = asyncio.Semaphore(MAX_REQUESTS)

    async def close(self) -> None:
        await self._client.close()

    # --- reads ---------------------------------------------------------------------------------

    async def get_job(self, key: JobKey) -> Raw | None:
        return await self._get_or_none(job_path(key), resource=contract.PLURAL)

    async def list_jobs(self) -> list[Raw]:
        paths = [f"{JOBS}/namespaces/{quote(n)}/{contract.PLURAL}" for n in self._namespaces]
        found: list[Raw] = []
        for path in paths or [f"{JOBS}/{contract.PLURAL}"]:
            found += await self._list(path, resource=contract.PLURAL)
        return found

    async def list_pods(self, key: JobKey) -> list[Raw]:
        query = {"labelSelector": f"{contract.LABEL_JOB}={key.name}"}
        path = f"/api/v1/namespaces/{quote(key.namespace)}/pods"
        return await self._list(path, resource="pods", query=query)

    async def get_pod(self, *, namespace: str, name: str) -> Raw | None:
        return await self._get_or_none(pod_path(namespace, name), resource="pods")

    async def list_pod_warnings(self, *, namespace: str, uid: str) -> list[Raw]:
        query = {"fieldSelector": f"involvedObject.uid={uid},type=Warning"}
        path = f"/api/v1/namespaces/{quote(namespace)}/events"
        return await self._list(path, resource="events", query=query)

    async def get_node(self, name: str) -> Raw | None:
        return await self._get_or_none(f"/api/v1/nodes/{quote(name)}", resource="nodes")

    async def get_workload(self, *, namespace: str, name: str) -> Raw | None:
        for version in WORKLOAD_VERSIONS:
            path = f"/apis/{version}/namespaces/{quote(namespace)}/workloads/{quote(name)}"
            found = await self._get_or_none(path, resource="workloads")
            if found is not None:
                return found
        return None

    async def list_leases(self) -> list[Raw]:
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        return await self._list(path, resource="leases")

    async def cluster_uid(self) -> str:
        path = "/api/v1/namespaces/kube-system"
        space = await self._request("GET", path, resource="namespaces")
        return str(space["metadata"]["uid"])

    async def server_version(self) -> str:
        answer = await self._request("GET", "/version", resource="version")
        return str(answer["gitVersion"])

    # --- writes --------------------------------------------------------------------------------

    async def create_pod(self, manifest: Raw) -> Raw:
        path = f"/api/v1/namespaces/{quote(manifest['metadata']['namespace'])}/pods"
        return await self._request("POST", path, resource="pods", body=manifest)

    async def delete_pod(
        self, *, namespace: str, name: str, uid: str, grace_seconds: int | None = None
    ) -> None:
        options: Raw = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
        }
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        path = pod_path(namespace, name)
        await self._request("DELETE", path, resource="pods", body=options)

    async def set_pod_finalizers(
        self, *, namespace: str, name: str, resource_version: str, finalizers: list[str]
    ) -> None:
        patch = {"metadata": {"resourceVersion": resource_version, "finalizers": finalizers}}
        path = pod_path(namespace, name)
        await self._request("PATCH", path, resource="pods", body=patch, content_type=MERGE_PATCH)

    async def apply_group(self, manifest: Raw) -> Raw:
        meta = manifest["metadata"]
        place = f"/apis/{manifest['apiVersion']}/namespaces/{quote(meta['namespace'])}/podgroups"
        query = urlencode({"fieldManager": contract.MANAGER, "force": "true"})
        path = f"{place}/{quote(meta['name'])}?{query}"
        return await self._request(
            "PATCH", path, resource="podgroups", body=manifest, content_type=APPLY_PATCH
        )

    async def annotate_pod(
        self,
        *,
        namespace: str,
        name: str,
        resource_version: str,
        annotations: dict[str, str],
        labels: dict[str, str],
    ) -> Raw:
        meta: Raw = {"resourceVersion": resource_version, "annotations": annotations}
        patch = {"metadata": {**meta, "labels": labels} if labels else meta}
        path = pod_path(namespace, name)
        return await self._request(
            "PATCH", path, resource="pods", body=patch, content_type=MERGE_PATCH
        )

    async def put_status(self, *, key: JobKey, uid: str, resource_version: str, status: Raw) -> Raw:
        body = {
            "apiVersion": contract.API_VERSION,
            "kind": contract.KIND,
            "metadata": {
                "namespace": key.namespace,
                "name": key.name,
                "uid": uid,
                "resourceVersion": resource_version,
            },
            "status": status,
        }
        path = f"{job_path(key)}/status"
        return await self._request("PUT", path, resource=contract.PLURAL, body=body)

    async def delete_job(self, *, key: JobKey, uid: str, resource_version: str) -> None:
        options: Raw = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid, "resourceVersion": resource_version},
            "propagationPolicy": "Background",
        }
        await self._request("DELETE", job_path(key), resource=contract.PLURAL, body=options)

    async def get_config_map(self, *, namespace: str, name: str) -> Raw | None:
        return await self._get_or_none(config_map_path(namespace, name), resource="configmaps")

    async def put_config_map(self, config_map: Raw) -> Raw:
        meta = config_map["metadata"]
        path = config_map_path(meta["namespace"], meta["name"])
        return await self._request("PUT", path, resource="configmaps", body=config_map)

    async def get_lease(self, *, namespace: str, name: str) -> Raw:
        return await self._request("GET", lease_path(namespace, name), resource="leases")

    async def put_lease(self, lease: Raw) -> Raw:
        meta = lease["metadata"]
        path = lease_path(meta["namespace"], meta["name"])
        return await self._request("PUT", path, resource="leases", body=lease)

    async def create_event(self, event: Raw) -> Raw:
        path = f"/apis/events.k8s.io/v1/namespaces/{quote(event['metadata']['namespace'])}/events"
        return await self._request("POST", path, resource="events", body=event)

    async def patch_event(self, *, namespace: str, name: str, patch: Raw) -> Raw:
        path = f"/apis/events.k8s.io/v1/namespaces/{quote(namespace)}/events/{quote(name)}"
        return await self._request(
            "PATCH", path, resource="events", body=patch, content_type=MERGE_PATCH
        )

    # --- transport -----------------------------------------------------------------------------

    async def _get_or_none(self, path: str, *, resource: str) -> Raw | None:
        try:
            return await self._request("GET", path, resource=resource)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    async def _list(
        self, path: str, *, resource: str, query: dict[str, str] | None = None
    ) -> list[Raw]:
        items: list[Raw] = []
        page = {**(query or {}), "limit": str(PAGE)}
        while True:
            answer = await self._request("GET", f"{path}?{urlencode(page)}", resource=resource)
            items += answer.get("items") or []
            following = (answer.get("metadata") or {}).get("continue")
            if not following:
                return items
            page["continue"] = following

    async def _request(
        self,
        method: str,
        path: str,
        *,
        resource: str,
        body: Raw | None = None,
        content_type: str = "application/json",
    ) -> Raw:
        headers = {**self._headers, "Content-Type": content_type}
        await self._authorize(headers)
        async with self._slots:
            began, status = time.monotonic(), 0
            try:
                response = await self._client.rest_client.request(
                    method,
                    self._configuration.host + path,
                    headers=headers,
                    body=body,
                    _request_timeout=REQUEST_TIMEOUT,
                )
                data, status = await response.read(), response.status
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise ApiError(
                    status=0, message=f"{method} {path}: {type(error).__name__}: {error}"
                ) from error
            finally:
                self._on_request(method, resource, status, time.monotonic() - began)
        if status >= 400:
            refusal = error_of(status, data, retry_after=response.headers.get("Retry-After"))
            if status == 403:
                self._on_refused(refusal.message)
            raise refusal
        answer: Raw = json.loads(data)
        return answer

    async def _authorize(self, headers: dict[str, str]) -> None:
        settings: dict[str, Any] = dict(await self._configuration.auth_settings())
        for setting in settings.values():
            headers[setting["key"]] = setting["value"]

    def watch_session(self, *, on_watch: OnWatch) -> tuple[str, aiohttp.ClientSession]:
        """Server and session for kopf's watches, with our credentials and a pulse.

        kopf reconnects an idle watch every 70 s, so an answered request is a sign of life even
        where no object changes.
        """

        async def middleware(
            request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
        ) -> aiohttp.ClientResponse:
            headers: dict[str, str] = {}
            await self._authorize(headers)
            request.headers.update(headers)
            response = await handler(request)
            resource = urlsplit(str(request.url)).path.rstrip("/").rsplit("/", 1)[-1]
            if response.status < 400:
                on_watch(resource, None)
            elif response.status == 403:
                said = error_of(403, await response.read(), retry_after=None).message
                self._on_refused(said)
                on_watch(resource, said)
            return response

        connector = aiohttp.TCPConnector(limit=0, ssl=self._client.rest_client.ssl_context)
        session = aiohttp.ClientSession(
            connector=connector,
            middlewares=(middleware,),
            headers={"User-Agent": self._headers["User-Agent"]},
        )
        return self._configuration.host, session
