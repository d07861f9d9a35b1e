"""The one way from the command line to a cluster: kubectl, with this person's own rights.

kubectl and no client library: its plugins for signing in, its proxies and its contexts are the ones
that already work for whoever reads this, and nothing has to be imported before the first line is
printed. Must never ask for more than a command needs, and never print a credential.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rtj_api import contract

from rtj_cli.telling import Code

JOBS = f"{contract.PLURAL}.{contract.GROUP}"
_SECONDS = 60
Raw = dict[str, Any]


class ClusterProblem(Exception):
    """The cluster does not give what was asked of it; with the remedy and the exit code."""

    def __init__(self, message: str, code: Code, *, forbidden: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.is_forbidden = forbidden


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where kubectl goes. Every method raises ClusterProblem."""

    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None

    def get(self, kind: str, name: str, *, namespace: str | None = None) -> Raw:
        return self._json("get", kind, name, "-o", "json", namespace=namespace)

    def job(self, name: str) -> Raw:
        """`name` or `namespace/name`."""
        namespace, _, short = name.rpartition("/")
        return self.get(JOBS, short, namespace=namespace or None)

    def items(
        self,
        kind: str,
        *,
        namespace: str | None = None,
        selector: str | None = None,
        fields: str | None = None,
        everywhere: bool = False,
    ) -> list[Raw]:
        words = ["get", kind, "-o", "json"]
        words += ["--selector", selector] if selector else []
        words += ["--field-selector", fields] if fields else []
        words += ["--all-namespaces"] if everywhere else []
        where = None if everywhere else namespace
        return list(self._json(*words, namespace=where, everywhere=everywhere).get("items") or ())

    def pods(self, *, job: str, namespace: str) -> list[Raw]:
        return self.items("pods", namespace=namespace, selector=f"{contract.LABEL_JOB}={job}")

    def raw(self, path: str) -> Raw:
        """What the API server answers at a path of its own."""
        return self._json("get", "--raw", path)

    def patch(self, kind: str, name: str, *, namespace: str, patch: Mapping[str, Any]) -> None:
        """A merge patch."""
        words = ("patch", kind, name, "--type=merge", "--patch", json.dumps(patch), "-o", "name")
        self.text(*words, namespace=namespace)

    def text(self, *words: str, namespace: str | None = None) -> str:
        """What kubectl prints."""
        return self._run([*words, f"--request-timeout={_SECONDS}s"], words, namespace)

    @contextmanager
    def lines(self, *words: str, namespace: str | None = None) -> Iterator[Iterator[str]]:
        """What kubectl prints, line by line as it comes; it is ended at the end."""
        command = [*self._command(namespace), *words]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace"
        )
        try:
            assert process.stdout is not None
            yield iter(process.stdout)
        finally:
            process.terminate()
            process.wait()

    def _json(self, *words: str, namespace: str | None = None, everywhere: bool = False) -> Raw:
        asked = [*words, f"--request-timeout={_SECONDS}s"]
        found = json.loads(self._run(asked, words, namespace, everywhere=everywhere))
        return dict(found)

    def _run(
        self,
        asked: list[str],
        words: tuple[str, ...],
        namespace: str | None,
        *,
        everywhere: bool = False,
    ) -> str:
        command = [*self._command(namespace, everywhere=everywhere), *asked]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise _refused(done.stderr.strip().removeprefix("Error from server "), words)
        return done.stdout

    def _command(self, namespace: str | None, *, everywhere: bool = False) -> list[str]:
        binary = shutil.which(os.environ.get("KUBECTL", "kubectl"))
        if binary is None:
            raise ClusterProblem(
                "kubectl is not on PATH, and without it no job can be read: install it, or, for a "
                "run's saves, name the store by its URL and the run with --run-id",
                Code.USAGE,
            )
        where = None if everywhere else namespace or self.namespace
        command = [binary]
        command += ["--namespace", where] if where else []
        command += ["--context", self.context] if self.context else []
        command += ["--kubeconfig", self.kubeconfig] if self.kubeconfig else []
        return command


def _refused(text: str, words: tuple[str, ...]) -> ClusterProblem:
    if "NotFound" in text:
        return ClusterProblem(text, Code.NOT_FOUND)
    if "the server doesn't have a resource type" in text:
        return ClusterProblem(
            f"{text}. The CRD is not installed in this cluster, or this is another one: see "
            "`kubectl config current-context`",
            Code.NOT_FOUND,
        )
    if "Forbidden" in text or "forbidden" in text:
        verb, what = words[0], words[1].partition(".")[0]
        if verb == "logs":
            verb, what = "get", "pods --subresource=log"
        return ClusterProblem(
            f"{text}. `kubectl auth can-i {verb} {what}` says what you may",
            Code.UNREACHABLE,
            forbidden=True,
        )
    return ClusterProblem(text or "kubectl failed without a word", Code.UNREACHABLE)
