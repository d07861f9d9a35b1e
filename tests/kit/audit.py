"""What one account asked of the API server, by the server's own audit log.

The policy logs that account alone, its reads too, and no body. Must never be used to decide what a
test does next: the log is written a moment after the answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kit.rights import Right


@dataclass(frozen=True, slots=True)
class Audit:
    """`user`: system:serviceaccount:<namespace>:<name>; `directory`: where both files are kept."""

    directory: Path
    user: str

    @property
    def log(self) -> Path:
        return self.directory / "audit.log"

    def arguments(self) -> tuple[str, ...]:
        """Of the API server; writes the policy."""
        rule = {"level": "Metadata", "users": [self.user]}
        policy = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [rule, {"level": "None"}],
        }
        place = self.directory / "policy.json"
        place.write_text(json.dumps(policy))
        return (f"--audit-policy-file={place}", f"--audit-log-path={self.log}")

    def used(self) -> Iterator[tuple[Right, int]]:
        """(what was asked for, how it was answered), once for each request to a resource. `where`
        is the namespace, and `name` the one object where the request named one."""
        for line in self.log.read_text().splitlines():
            entry = json.loads(line)
            thing = entry.get("objectRef")
            if thing is None or "resource" not in thing:
                continue
            sub = thing.get("subresource")
            resource = f"{thing['resource']}/{sub}" if sub else thing["resource"]
            where, name = thing.get("namespace", "*"), thing.get("name", "")
            right = Right(entry["verb"], thing.get("apiGroup", ""), resource, where, name)
            yield right, entry["responseStatus"]["code"]


def covers(granted: Right, asked: Right) -> bool:
    """Whether what was granted is a right to what was asked for."""
    return (
        (granted.verb, granted.group, granted.resource) == (asked.verb, asked.group, asked.resource)
        and granted.where in ("*", asked.where)
        and granted.name in ("", asked.name)
    )
