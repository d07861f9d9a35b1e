"""A kubectl that answers from files: what the commands ask, and how they read the answers.

Must never be taken for proof that a cluster accepts anything: that is the end-to-end tests' part.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rtj_api import contract
from rtj_api.status import Status

SCRIPT = """#!/bin/sh
here={directory}
printf '%s\\n' "$*" >> $here/asked
case "$*" in
*forbidden*) echo 'Error from server (Forbidden): x is forbidden: User "eve"' >&2; exit 1;;
*" patch "*|patch*) printf '%s\\n' "$*" >> $here/patched
  [ -f $here/after.json ] && cp $here/after.json $here/job.json; exit 0;;
*"get secret"*) echo "$*" >> $here/secrets; exit 1;;
*"get --raw"*) f=$here/raw-$(echo "$*" | sed 's|.*/pods/||; s|[:/].*||').json;
  if [ -f $f ]; then cat $f; else
  echo 'Error from server (Forbidden): pods is forbidden' >&2; exit 1; fi;;
*"app.kubernetes.io/name="*) echo '{"items": []}';;
*"get pods"*) if [ -f $here/pods.json ]; then cat $here/pods.json; else
  echo 'Error from server (Forbidden): pods is forbidden' >&2; exit 1; fi;;
*"get events"*) cat $here/events.json;;
*logs*) for w in "$@"; do f=$here/log-$w.txt; [ -f $f ] && cat $f && exit 0; done; exit 1;;
*"get {jobs} -o json"*) cat $here/jobs.json;;
*"get {jobs}"*) if [ -f $here/job.json ]; then cat $here/job.json; else
  echo 'Error from server (NotFound): no such job' >&2; exit 1; fi;;
*) echo "unknown: $*" >&2; exit 1;;
esac
"""


def job_of(status: Status | None, *, name: str = "gpt", **spec: Any) -> dict[str, Any]:
    """The object as the API server has it, with that status."""
    store = {"url": "s3://bucket/runs"}
    return {
        "apiVersion": contract.API_VERSION,
        "kind": contract.KIND,
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": "11111111-2222",
            "generation": 1,
            "creationTimestamp": "1970-01-01T00:16:38Z",
        },
        "spec": {"replicas": 2, "checkpoint": {"path": "/c", "store": store}, **spec},
    } | ({} if status is None else {"status": status.dump()})


@dataclass(frozen=True)
class StubKubectl:
    directory: Path

    def install(self) -> str:
        """Path of the binary."""
        path = self.directory / "kubectl"
        jobs = f"{contract.PLURAL}.{contract.GROUP}"
        path.write_text(SCRIPT.replace("{directory}", str(self.directory)).replace("{jobs}", jobs))
        path.chmod(0o755)
        self.events()
        return str(path)

    def job(self, raw: dict[str, Any], *, after: dict[str, Any] | None = None) -> None:
        """`after`: what is there once something was patched."""
        self._put("job.json", raw)
        self._put("jobs.json", {"items": [raw]})
        if after is not None:
            self._put("after.json", after)

    def pods(self, *raw: dict[str, Any]) -> None:
        self._put("pods.json", {"items": list(raw)})

    def events(self, *raw: dict[str, Any]) -> None:
        self._put("events.json", {"items": list(raw)})

    def log(self, pod: str, text: str) -> None:
        (self.directory / f"log-{pod}.txt").write_text(text)

    def report(self, pod: str, raw: dict[str, Any]) -> None:
        self._put(f"raw-{pod}.json", raw)

    def patched(self) -> list[str]:
        return self._lines("patched")

    def asked(self) -> list[str]:
        return self._lines("asked")

    def _lines(self, name: str) -> list[str]:
        path = self.directory / name
        return path.read_text().splitlines() if path.exists() else []

    def _put(self, name: str, data: Any) -> None:
        (self.directory / name).write_text(json.dumps(data))
