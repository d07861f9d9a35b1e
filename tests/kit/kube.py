"""kubectl as a person would use it, for tests and the demo.

A thin skin over the real kubectl, so that what a test sees is what a user sees. Must never hide an
error: a failed command raises with what kubectl said.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class KubectlError(RuntimeError):
    """kubectl ended with an error; the message is what it said."""


class NotInTime(AssertionError):
    """A condition did not come true within its time; the message carries what was seen last."""


def wait_for(look: Callable[[], T | None], *, within: float, what: str, every: float = 0.2) -> T:
    """The first truthy value of `look`, which may raise while the thing is not there yet."""
    end, last, seen = time.monotonic() + within, None, None
    while time.monotonic() < end:
        try:
            seen = look()
            if seen:
                return seen
            last = None
        except (KubectlError, KeyError, IndexError, ValueError, OSError) as error:
            last = error
        time.sleep(every)
    raise NotInTime(f"not within {within:.0f} s: {what} (last seen: {last or seen!r})")


@dataclass(frozen=True)
class Kube:
    """One cluster, one default namespace."""

    kubectl: str
    kubeconfig: str
    namespace: str = "default"

    def run(
        self, *arguments: str, stdin: str | None = None, timeout: float = 60, check: bool = True
    ) -> str:
        """kubectl's standard output."""
        command = [self.kubectl, "--kubeconfig", self.kubeconfig, "-n", self.namespace, *arguments]
        try:
            done = subprocess.run(
                command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            words = " ".join(arguments)
            raise KubectlError(f"kubectl {words}: no answer in {timeout:.0f} s") from None
        if check and done.returncode:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def within(self, namespace: str) -> Kube:
        return Kube(kubectl=self.kubectl, kubeconfig=self.kubeconfig, namespace=namespace)

    def apply(self, *manifests: dict[str, Any]) -> None:
        bundle = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.run("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(bundle))

    def get(self, kind: str, name: str) -> dict[str, Any]:
        return json.loads(self.run("get", kind, name, "-o", "json"))

    def find(self, kind: str, name: str) -> dict[str, Any] | None:
        out = self.run("get", kind, name, "-o", "json", "--ignore-not-found")
        return json.loads(out) if out.strip() else None

    def list(self, kind: str, *, selector: str = "", everywhere: bool = False) -> list[dict]:
        extra = (["-l", selector] if selector else []) + (["-A"] if everywhere else [])
        return json.loads(self.run("get", kind, "-o", "json", *extra))["items"]

    def exec(self, pod: str, *command: str, container: str = "trainer", timeout: float = 30) -> str:
        return self.run("exec", pod, "-c", container, "--", *command, timeout=timeout)

    def make_namespace(self, name: str, *, labels: Mapping[str, str] | None = None) -> Kube:
        metadata = {"name": name, "labels": dict(labels or {})}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        there = self.within(name)
        wait_for(
            lambda: there.find("serviceaccount", "default"),
            within=120,
            what=f"default service account of namespace {name}",
        )
        return there

    def drop_namespace(self, name: str, *, wait: bool = False) -> None:
        self.run("delete", "namespace", name, "--ignore-not-found", f"--wait={str(wait).lower()}")


def kube_of(*, kubectl: Path | str, kubeconfig: Path | str) -> Kube:
    return Kube(kubectl=str(kubectl), kubeconfig=str(kubeconfig))
