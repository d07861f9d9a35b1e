"""One pod's containers as processes of this machine: the real sidecar, supervisor and trainer.

What a container would give them is played: directories of their own in place of mounts, a loopback
address in place of a network, and for the trainer a PID namespace, so that killing its first
process ends all that it started. Must never change a word of what the operator wrote into the
pod, but for the paths of those mounts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from rtj_api import contract, wire
from rtj_operator.shell.pod_views import trainer_name

from kit import daemon

Raw = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
# What a container's image would settle: where programs and compiled modules are.
HANDED_DOWN = ("PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
REFERENCE = re.compile(r"\$\$\(|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


@dataclass
class Container:
    """One container of the pod, over all its restarts."""

    name: str
    process: asyncio.subprocess.Process | None = None
    restarts: int = 0
    started_at: float = 0.0
    killed_by: int | None = None  # the signal with which a test ended it
    last_end: Raw | None = None  # as in status: {"terminated": …}

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def ended(self, *, message: str) -> None:
        """Its process is gone. What ends a PID namespace's first process ends `unshare` with 1."""
        assert self.process is not None
        assert self.process.returncode is not None
        code = self.process.returncode if self.killed_by is None else 128 + self.killed_by
        self.killed_by = None
        exit_code = 128 - code if code < 0 else code
        self.last_end = {
            "terminated": {
                "exitCode": exit_code,
                "reason": "Completed" if exit_code == 0 else "Error",
                "message": message,
                "startedAt": stamp(self.started_at),
                "finishedAt": stamp(time.time()),
            }
        }

    def status(self) -> Raw:
        if self.running:
            state: Raw = {"running": {"startedAt": stamp(self.started_at)}}
        elif self.last_end is not None:
            state = self.last_end
        else:
            state = {"waiting": {"reason": "PodInitializing"}}
        told: Raw = {
            "name": self.name,
            "state": state,
            "ready": self.running,
            "started": self.running,
            "restartCount": self.restarts,
            "image": "host",
            "imageID": "host",
        }
        if self.running and self.last_end is not None:
            told["lastState"] = self.last_end
        return told


@dataclass
class HostPod:
    """The processes of one pod. `root` holds what its volumes would."""

    raw: Raw  # the newest version
    root: Path
    ip: str
    sidecar: Container = field(default_factory=lambda: Container(contract.CONTAINER_SIDECAR))
    trainer: Container = field(default_factory=lambda: Container("trainer"))

    def __post_init__(self) -> None:
        self.trainer.name = str(trainer_name(self.raw["spec"]))
        (self.root / "podinfo").mkdir(parents=True)
        (self.root / "checkpoints").mkdir()

    @property
    def name(self) -> str:
        return str(self.raw["metadata"]["name"])

    @property
    def uid(self) -> str:
        return str(self.raw["metadata"]["uid"])

    @property
    def job(self) -> str:
        return str(self.raw["metadata"]["labels"][contract.LABEL_JOB])

    @property
    def rank(self) -> int:
        return int(self.raw["metadata"]["labels"][contract.LABEL_RANK])

    @property
    def output(self) -> str:
        """All that its trainers ever printed."""
        place = self.root / "trainer.out"
        return place.read_text(errors="replace") if place.exists() else ""

    def log(self) -> str:
        place = self.root / "sidecar.log"
        return place.read_text(errors="replace") if place.exists() else ""

    def bring_directive(self) -> None:
        """The annotation, as the downward API's volume shows it."""
        notes = self.raw["metadata"].get("annotations") or {}
        text = notes.get(contract.ANNOTATION_DIRECTIVE, "")
        place = self.root / "podinfo" / "directive"
        if not place.exists() or place.read_text() != text:
            place.with_suffix(".new").write_text(text)
            place.with_suffix(".new").rename(place)

    async def start_sidecar(self) -> None:
        env = self._environment(self._container(contract.CONTAINER_SIDECAR))
        config = json.loads(env[contract.ENV_CONFIG])
        config["path"] = str(self.root / "checkpoints")
        with (self.root / "sidecar.log").open("ab") as log:
            self.sidecar.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "rtj_sidecar"),
                *("--run-dir", str(self.root / "rtj"), "--podinfo", str(self.root / "podinfo")),
                *("--bind", self.ip),
                env=env | {contract.ENV_CONFIG: json.dumps(config)},
                stdout=log,
                stderr=log,
                preexec_fn=daemon.die_with_parent(),
            )
        self.sidecar.started_at = time.time()

    @property
    def is_installed(self) -> bool:
        """The sidecar's postStart hook has ended."""
        return os.access(self.root / "rtj" / "bin" / "supervise", os.X_OK)

    async def start_trainer(self) -> None:
        container = self._container(self.trainer.name)
        supervise, *words = container["command"]
        assert supervise == contract.SUPERVISE
        (self.root / "termination-log").write_text("")
        with (self.root / "trainer.out").open("ab") as output:
            self.trainer.process = await asyncio.create_subprocess_exec(
                *("unshare", "--pid", "--kill-child", "--mount-proc"),
                str(self.root / "rtj" / "bin" / "supervise"),
                *words,
                *container.get("args", ()),
                env=self._environment(container)
                | {"RTJ_TERMINATION_LOG": str(self.root / "termination-log")},
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=daemon.die_with_parent(),
            )
        self.trainer.started_at = time.time()

    def supervisor_pid(self) -> int | None:
        """PID 1 of the trainer's container, as seen from here."""
        if not self.trainer.running:
            return None
        pid = self.trainer.process.pid  # type: ignore[union-attr]
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            return int(children[0]) if children else None
        return None

    def signal_supervisor(self, number: int) -> bool:
        """Whether there was one to hear it: it may end by itself at any moment."""
        pid = self.supervisor_pid()
        if pid is None:
            return False
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        if number == signal.SIGKILL:
            self.trainer.killed_by = number
        return True

    def kill_supervisor(self) -> None:
        assert self.signal_supervisor(signal.SIGKILL), f"{self.name} has no supervisor"

    def kill_sidecar(self, number: int = signal.SIGKILL) -> None:
        assert self.sidecar.running, f"{self.name} has no sidecar"
        self.sidecar.process.send_signal(number)  # type: ignore[union-attr]

    async def kill_all(self) -> None:
        self.signal_supervisor(signal.SIGKILL)
        for container in (self.trainer, self.sidecar):
            if container.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    container.process.kill()
                await container.process.wait()

    async def report(self) -> wire.Report | None:
        """What its sidecar says now; None where it does not answer."""
        url = contract.sidecar_url(self.ip, port=contract.PORT_STATUS) + contract.PATH_STATUS
        [owner] = self.raw["metadata"]["ownerReferences"]
        known = {contract.HEADER_JOB: owner["uid"]}
        with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
                async with session.get(url, headers=known, raise_for_status=True) as answer:
                    return wire.Report.model_validate_json(await answer.read())
        return None

    def status(self, *, phase: str | None = None) -> Raw:
        """As its kubelet tells it now; `phase` where that does not follow from its containers."""
        since = self.raw["metadata"]["creationTimestamp"]
        placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": since}
        return {
            "phase": phase or ("Running" if self.trainer.started_at > 0 else "Pending"),
            "podIP": self.ip,
            "podIPs": [{"ip": self.ip}],
            "startTime": stamp(time.time()),
            "conditions": [placed],
            "initContainerStatuses": [self.sidecar.status()],
            "containerStatuses": [self.trainer.status()],
        }

    def termination_message(self) -> str:
        return (self.root / "termination-log").read_text()

    def _container(self, name: str) -> Raw:
        spec = self.raw["spec"]
        return next(c for c in [*spec["initContainers"], *spec["containers"]] if c["name"] == name)

    def _environment(self, container: Raw) -> dict[str, str]:
        """As the kubelet makes it: fields of the pod, and `$(NAME)` of what stands before."""
        facts = {
            "metadata.uid": self.uid,
            "metadata.name": self.name,
            "status.podIP": self.ip,
            "spec.nodeName": self.raw["spec"].get("nodeName", ""),
        }
        env = {
            **{name: os.environ[name] for name in HANDED_DOWN if name in os.environ},
            "PYTHONPATH": os.pathsep.join(
                str(ROOT / part) for part in ("crds", "trainer_sidecar", "cli")
            ),
        }
        for entry in container.get("env") or []:
            source = entry.get("valueFrom")
            if source is None:
                env[entry["name"]] = expanded(entry.get("value", ""), env)
            else:
                env[entry["name"]] = facts[source["fieldRef"]["fieldPath"]]
        return env


def expanded(text: str, env: Mapping[str, str]) -> str:
    """`$(NAME)` by its value, `$$(` is a `$(` that stays."""

    def one(match: re.Match[str]) -> str:
        return "$(" if match[0] == "$$(" else env.get(match[1], match[0])

    return REFERENCE.sub(one, text)


def stamp(moment: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
