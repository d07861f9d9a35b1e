"""A person at a terminal with `rtj`, a kubeconfig, and the rights that somebody gave them.

The command runs as a process, as it would for them. Must never lend it a right or a credential that
the person has not.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rtj_api import contract

from kit.kube import Kube
from kit.podlike import ENVIRONMENT

LOOKS = ["get", "list", "watch"]


@dataclass(frozen=True)
class Said:
    out: str
    words: str

    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Person:
    kubectl: str
    kubeconfig: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def rtj(self, *words: object, code: int = 0) -> Said:
        """`rtj WORDS`, which must end with `code`."""
        known = {name: text for name, text in ENVIRONMENT.items() if not name.startswith("AWS_")}
        known |= {"KUBECTL": self.kubectl, "KUBECONFIG": self.kubeconfig, **self.environment}
        done = subprocess.run(
            [sys.executable, "-m", "rtj_cli", *map(str, words)],
            env=known,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, f"rtj {words}: {done.stdout}\n{done.stderr}"
        return Said(done.stdout, done.stderr)


def owner(kube: Kube, **environment: str) -> Person:
    """Who may do what the kubeconfig of the tests allows."""
    return Person(kube.kubectl, kube.kubeconfig, environment)


def onlooker(space: Kube, directory: Path, **environment: str) -> Person:
    """Who may only look at jobs, pods, logs and events, in this one namespace."""
    name = "onlooker"
    meta = {"name": name, "namespace": space.namespace}
    rbac = "rbac.authorization.k8s.io"
    space.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "Role",
            "metadata": meta,
            "rules": [
                {"apiGroups": [contract.GROUP], "resources": [contract.PLURAL], "verbs": LOOKS},
                {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": LOOKS},
                {"apiGroups": ["events.k8s.io", ""], "resources": ["events"], "verbs": LOOKS},
            ],
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", **meta}],
        },
    )
    token = space.run("create", "token", name, "--duration=1h").strip()
    told = json.loads(space.run("config", "view", "--raw", "--flatten", "--minify", "-o", "json"))
    told["users"] = [{"name": name, "user": {"token": token}}]
    told["contexts"][0]["context"] |= {"user": name, "namespace": space.namespace}
    path = directory / "onlooker.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(json.dumps(told))
    return Person(space.kubectl, str(path), environment)


def looks_at_a_running_job(person: Person, *, namespace: str, name: str, directory: Path) -> None:
    """All that may be seen of a job that trains and has restarted: every command that looks, with
    no right but that. Needs S3 credentials in the environment for the report's losses."""
    job = f"{namespace}/{name}"
    (row,) = person.rtj("list", "-o", "json").json()
    assert (row["name"], row["phase"], row["restarts"] >= 1) == (name, "Running", True)
    assert row["durableStep"] > 0
    told = person.rtj("why", job).out
    assert f"{job} trains: attempt" in told
    assert "newest durable save" in told
    drawn = person.rtj("timeline", job).out
    assert "TrainerSignaled (rank 1 on " in drawn
    assert person.rtj("wait", job, "--for", f"Durable={row['durableStep']}", "--timeout", 60)
    reasons = {row["reason"] for row in person.rtj("events", job, "-o", "json").json()}
    assert {"Resumed", "Started"} & reasons
    lines = person.rtj("logs", job, "--tail", 5).out.splitlines()
    assert {line[:3] for line in lines} >= {"[0 ", "[1 "}
    limited = person.rtj("top", job)
    assert "pods/proxy" in limited.words or "auth can-i" in limited.words
    assert len(limited.out.splitlines()) >= 3
    page = directory / "page.html"
    said = person.rtj("report", job, "--to", page)
    text = page.read_text()
    assert "Steps over time" in text
    assert "Saves (" in text, said.words
    assert "the operator&#x27;s log, which holds each decision" in text
    person.rtj("debug-bundle", job, "--to", directory / "bundle.tar.gz")
    for words in (("suspend",), ("restart",), ("resume", "--from", row["durableStep"])):
        refused = person.rtj(words[0], job, *words[1:], code=5)
        assert "auth can-i patch resumabletrainingjobs" in refused.words
