"""What the loop needs of Kubernetes, as a Protocol; and the one error that it raises.

A test's in-memory cluster and the real client are used alike. Bodies are raw objects as the API
server sent them, so nothing is lost that this version does not know. Must never decide anything.
"""

from __future__ import annotations

from typing import Any, Protocol

from rtj_operator.core.observed import JobKey

Raw = dict[str, Any]


class ApiError(Exception):
    """The API server answered with an error, or could not be reached (status 0)."""

    def __init__(
        self, *, status: int, reason: str = "", message: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(f"{status} {reason}: {message}" if status else message)
        self.status = status
        self.reason = reason  # of the Status object: NotFound, AlreadyExists, Conflict, …
        self.message = message
        self.retry_after = retry_after  # seconds

    @property
    def is_not_found(self) -> bool:
        return self.status == 404

    @property
    def is_conflict(self) -> bool:
        return self.status == 409

    @property
    def is_transient(self) -> bool:
        """Nothing is wrong with the request: the same one may succeed later."""
        return self.status == 0 or self.status == 429 or self.status >= 500


class Cluster(Protocol):
    """Every call raises ApiError. Reads are never older than the call."""

    async def get_job(self, key: JobKey) -> Raw | None: ...

    async def list_jobs(self) -> list[Raw]: ...

    async def list_pods(self, key: JobKey) -> list[Raw]:
        """Pods that carry the job's label, whoever owns them."""
        ...

    async def get_pod(self, *, namespace: str, name: str) -> Raw | None: ...

    async def list_pod_warnings(self, *, namespace: str, uid: str) -> list[Raw]:
        """Events of type Warning about that pod."""
        ...

    async def get_node(self, name: str) -> Raw | None: ...

    async def list_leases(self) -> list[Raw]:
        """The nodes' heartbeats, of namespace kube-node-lease."""
        ...

    async def get_workload(self, *, namespace: str, name: str) -> Raw | None:
        """Kueue's object of that name."""
        ...

    async def create_pod(self, manifest: Raw) -> Raw: ...

    async def apply_group(self, manifest: Raw) -> Raw:
        """Make the PodGroup so, by server-side apply; 404 where no such kind is served."""
        ...

    async def set_pod_finalizers(
        self, *, namespace: str, name: str, resource_version: str, finalizers: list[str]
    ) -> None:
        """409 when the pod has another version."""
        ...

    async def delete_pod(
        self, *, namespace: str, name: str, uid: str, grace_seconds: int | None = None
    ) -> None:
        """Ask for the deletion of that very pod; 409 when the name has another UID."""
        ...

    async def annotate_pod(
        self,
        *,
        namespace: str,
        name: str,
        resource_version: str,
        annotations: dict[str, str],
        labels: dict[str, str],
    ) -> Raw:
        """Set annotations and labels; 409 when the pod has another version."""
        ...

    async def put_status(self, *, key: JobKey, uid: str, resource_version: str, status: Raw) -> Raw:
        """Replace `status`; 409 when the job has another version. Returns the stored job."""
        ...

    async def delete_job(self, *, key: JobKey, uid: str, resource_version: str) -> None:
        """Delete exactly that version of that job; its pods follow by garbage collection."""
        ...

    async def get_config_map(self, *, namespace: str, name: str) -> Raw | None: ...

    async def put_config_map(self, config_map: Raw) -> Raw:
        """Replace it; 409 when it has another version."""
        ...

    async def create_event(self, event: Raw) -> Raw: ...

    async def patch_event(self, *, namespace: str, name: str, patch: Raw) -> Raw: ...

    async def cluster_uid(self) -> str:
        """UID of the namespace kube-system: the identity of the cluster."""
        ...

    async def server_version(self) -> str: ...
