"""`rtj debug-bundle`: all that explains a job, in one archive that may be sent to somebody.

Must never read a Secret, and never write a value that may be one.
"""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from rtj_cli import options
from rtj_cli.cluster import Cluster, ClusterProblem, Raw
from rtj_cli.commands.asking import asked, look, now
from rtj_cli.commands.versions import versions_of
from rtj_cli.gathering import Gathering
from rtj_cli.jobs import Seen
from rtj_cli.redacting import object_without, text_without
from rtj_cli.telling import Code, fail, say
from rtj_cli.views import describing, timeline, why

TAIL = 5000  # lines of each container


def bundle_command(
    job: options.Job,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="FILE", help="[default: JOB-debug.tar.gz]."),
    ] = None,
    no_logs: Annotated[bool, typer.Option("--no-logs", help="Not the logs of its pods.")] = False,
    operator_namespace: options.OperatorNamespace = None,
    namespace: options.Namespace = None,
    context: options.KubeContext = None,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """Collect a job, its pods, events, logs and the operator's log in an archive for a bug report.

    No Secret is read. Values of environment variables are taken out, and from all texts what looks
    like a key, a token or a password. Look through it before you send it: a trainer may print
    anything. `MISSING.txt` in it says what you may not read.
    """
    with asked(namespace, context, kubeconfig) as cluster:
        found = look(cluster, job)
        parts = _parts(cluster, found, no_logs=no_logs, operator_namespace=operator_namespace)
        target = Path(to or f"{found.name}-debug.tar.gz")
        try:
            _write(parts, target, folder=f"{found.name}-debug")
        except OSError as error:
            raise fail(f"{target}: {error.strerror}", Code.REFUSED) from None
        say(f"wrote {target}: {len(parts)} files; look through it before you send it")


def _parts(
    cluster: Cluster, job: Seen, *, no_logs: bool, operator_namespace: str | None
) -> dict[str, str]:
    """File name -> text, all without secrets."""
    gathering, at = Gathering(cluster, job), now()
    pods = gathering.pods()
    events = gathering.events(pods)
    told = {
        "job.yaml": _yaml(job.raw),
        "why.txt": "\n".join(why.explain(job, pods=pods, now=at).lines()),
        "describe.txt": "\n".join(describing.lines(job, pods=pods, now=at)),
        "timeline.json": json.dumps(object_without(timeline.rows(job, now=at)), indent=1),
        "events.json": json.dumps(object_without(events), indent=1),
        "versions.json": json.dumps(versions_of(cluster, gathering.missing), indent=1),
    }
    told |= {f"pods/{pod['metadata']['name']}.yaml": _yaml(pod) for pod in pods}
    if no_logs:
        gathering.missing.append("logs of its pods: --no-logs")
    else:
        for pod in pods:
            told |= _logs(gathering, pod)
    logs = gathering.operator_logs(operator_namespace)
    told |= {f"operator/{name}.log": text for name, text in logs.items()}
    told["MISSING.txt"] = "\n".join(gathering.missing) or "nothing"
    return {name: text_without(text) for name, text in told.items()}


def _yaml(raw: Raw | Any) -> str:
    return yaml.safe_dump(object_without(raw), sort_keys=False, allow_unicode=True)


def _logs(gathering: Gathering, pod: Raw) -> dict[str, str]:
    """Of each container, and of its run before where it was restarted."""
    name, status = str(pod["metadata"]["name"]), pod.get("status") or {}
    states = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    found: dict[str, str] = {}
    for state in states:
        asked_for: list[tuple[str, tuple[str, ...]]] = [("", ())]
        if state.get("restartCount"):
            asked_for.append((".previous", ("--previous",)))
        for suffix, more in asked_for:
            words = (
                "logs",
                name,
                "-c",
                str(state["name"]),
                "--timestamps",
                f"--tail={TAIL}",
                *more,
            )
            try:
                text = gathering.cluster.text(
                    *words, f"--tail={TAIL}", namespace=gathering.job.namespace
                )
            except ClusterProblem as problem:
                gathering.missing.append(f"log of {name}/{state['name']}{suffix}: {problem}")
                continue
            found[f"logs/{name}.{state['name']}{suffix}.log"] = text
    return found


def _write(parts: dict[str, str], target: Path, *, folder: str) -> None:
    with tarfile.open(target, "w:gz") as archive:
        for name, text in sorted(parts.items()):
            data = text.encode()
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mtime, entry.mode = len(data), int(now()), 0o600
            archive.addfile(entry, io.BytesIO(data))
    target.chmod(0o600)
