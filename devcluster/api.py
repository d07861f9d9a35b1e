"""The few API calls that devcluster itself makes, with the standard library alone."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from typing import Any

from devcluster.processes import wait_until

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"


class ApiError(RuntimeError):
    """The API server refused; `status` is the HTTP code."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Api:
    """One client-certificate identity against one API server."""

    def __init__(self, *, host: str, port: int, certificates: Path, stem: str = "admin") -> None:
        self._host, self._port = host, port
        self._context = ssl.create_default_context(cafile=str(certificates / "ca.crt"))
        self._context.load_cert_chain(certificates / f"{stem}.crt", certificates / f"{stem}.key")

    def request(
        self, method: str, path: str, body: object = None, *, content_type: str = "application/json"
    ) -> Any:
        """Parsed JSON (or text); ApiError on 4xx/5xx, OSError where nobody answers."""
        connection = http.client.HTTPSConnection(
            self._host, self._port, context=self._context, timeout=10
        )
        try:
            payload = None if body is None else json.dumps(body)
            connection.request(method, path, payload, {"Content-Type": content_type})
            response = connection.getresponse()
            data = response.read().decode()
        except http.client.HTTPException as error:
            raise OSError(f"{method} {path}: {error!r}") from error
        finally:
            connection.close()
        if response.status >= 400:
            raise ApiError(response.status, f"{method} {path}: {response.status} {data[:500]}")
        is_json = "json" in (response.getheader("Content-Type") or "")
        return json.loads(data) if is_json else data

    def ready(self) -> bool:
        try:
            return bool(self.request("GET", "/readyz") == "ok")
        except (OSError, ApiError):
            return False

    def create(self, path: str, body: dict[str, Any]) -> None:
        """Create; an object that exists already is left as it is."""
        # Looked for first: a Service that exists is refused for its address, not as a conflict.
        if self._get(f"{path}/{body['metadata']['name']}") is None:
            self.request("POST", path, body)

    def _get(self, path: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self.request("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return found

    def node(self, name: str) -> dict[str, Any] | None:
        return self._get(f"/api/v1/nodes/{name}")

    def wait_default_account(self) -> None:
        """Until pods can be made in `default`: the controller-manager has made its account."""
        path = "/api/v1/namespaces/default/serviceaccounts/default"

        def made() -> bool:
            try:
                return self._get(path) is not None
            except (OSError, ApiError):
                return False

        wait_until(made, timeout=60, what="the default service account")
