"""The API server by the standard library: the few calls of the trial, one after the other.

It takes the pod's own ServiceAccount. Must never retry: the trial looks again.
"""

from __future__ import annotations

import json
import os
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from rtj_api import contract

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT_SECONDS = 10
Raw = dict[str, Any]


class Refused(Exception):
    """The API server said no; `code` is its HTTP status, the message its own."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Busy(OSError):
    """The API server could not, just now: the same request may succeed later."""


class Server:
    def __init__(self, *, account: Path = ACCOUNT) -> None:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        self._address = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self._token = account / "token"
        self._context = ssl.create_default_context(cafile=str(account / "ca.crt"))

    def create_job(self, job: Raw) -> Raw:
        return self._call("POST", jobs_path(job["metadata"]["namespace"]), body=job)

    def get_job(self, *, namespace: str, name: str) -> Raw:
        return self._call("GET", f"{jobs_path(namespace)}/{name}")

    def delete_job(self, *, namespace: str, name: str) -> None:
        """Its pods go first: when it is gone, nothing of it is left."""
        body = {"propagationPolicy": "Foreground"}
        self._call("DELETE", f"{jobs_path(namespace)}/{name}", body=body)

    def pods_of(self, *, namespace: str, job: str) -> list[Raw]:
        selector = f"labelSelector={contract.LABEL_JOB}%3D{job}"
        found: list[Raw] = self._call("GET", f"{pods_path(namespace)}?{selector}")["items"]
        return found

    def delete_pod(self, *, namespace: str, name: str) -> None:
        self._call("DELETE", f"{pods_path(namespace)}/{name}")

    def _call(self, method: str, path: str, *, body: Raw | None = None) -> Raw:
        """Raises Refused, OSError (Busy among them)."""
        request = urllib.request.Request(
            self._address + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self._token.read_text()}",
                "Content-Type": "application/json",
                "Accept": "application/json",
            },
        )
        try:
            with urllib.request.urlopen(
                request, timeout=TIMEOUT_SECONDS, context=self._context
            ) as answer:
                found: Raw = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            said = _message(error.read())
            if error.code == 429 or error.code >= 500:
                raise Busy(f"{error.code}: {said}") from error
            raise Refused(error.code, said) from error


def jobs_path(namespace: str) -> str:
    return f"/apis/{contract.GROUP}/{contract.VERSION}/namespaces/{namespace}/{contract.PLURAL}"


def pods_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def _message(data: bytes) -> str:
    try:
        return str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        return data[:500].decode(errors="replace")
