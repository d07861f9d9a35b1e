"""Probes and the postStart hook of a trainer that comes and goes within its container.

Between attempts the trainer's container waits in the supervisor; a probe of the user's would fail
then and the kubelet would kill the container. So each is asked through `supervise probe`, which
holds while no trainer runs, counts a liveness probe's failures for each trainer anew, and has the
supervisor end the trainer alone. postStart is run by the supervisor after each start of a
trainer. Must never change what a probe asks or how often. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rtj_api.contract import SUPERVISE

from rtj_operator.core.template import Manifest

HANDLERS = ("exec", "httpGet", "tcpSocket")
KINDS = {"startupProbe": "startup", "livenessProbe": "liveness", "readinessProbe": "readiness"}
# Kubernetes' defaults.
PERIOD_SECONDS, THRESHOLD, TIMEOUT_SECONDS = 10, 3, 1
# Room for the probe's own process beside what it waits for, and how often that may fail before
# the kubelet ends the container: failures of the trainer are counted by the supervisor.
SLACK_SECONDS, SLACK_TIMES = 20, 10


def quiet_probes(container: Manifest) -> None:
    """Rewrite the container's probes and postStart in place."""
    startup = container.get("startupProbe")
    for name, kind in KINDS.items():
        if container.get(name):
            after = startup if kind != "startup" else None
            container[name] = _quiet(container[name], kind=kind, after=after, container=container)
    hook = (container.get("lifecycle") or {}).get("postStart")
    if hook and post_start(container):
        # Only where the image has no Python, and so no supervisor, to run it.
        words = ["--kind", "unsupervised", *_handler(hook, container=container)]
        container["lifecycle"]["postStart"] = {"exec": {"command": [SUPERVISE, "probe", *words]}}


def post_start(container: Mapping[str, Any]) -> list[str]:
    """The trainer's postStart hook as words for `supervise probe`; empty where there is none, or
    only a sleep, which needs no trainer."""
    hook = (container.get("lifecycle") or {}).get("postStart") or {}
    return _handler(hook, container=container) if any(h in hook for h in HANDLERS) else []


def _quiet(
    probe: Mapping[str, Any],
    *,
    kind: str,
    after: Mapping[str, Any] | None,
    container: Mapping[str, Any],
) -> Manifest:
    kept = {key: value for key, value in probe.items() if key not in HANDLERS}
    words = ["--kind", kind]
    wait = _number(probe, "timeoutSeconds", TIMEOUT_SECONDS)
    if probe.get("initialDelaySeconds") and kind != "startup":
        # Counted from each trainer's own start; the container's says nothing of it.
        words += ["--delay", str(kept.pop("initialDelaySeconds"))]
    if kind == "liveness":
        words += ["--threshold", str(_number(probe, "failureThreshold", THRESHOLD))]
        if probe.get("terminationGracePeriodSeconds") is not None:
            words += ["--grace", str(probe["terminationGracePeriodSeconds"])]
    if after:
        wait += _number(after, "timeoutSeconds", TIMEOUT_SECONDS)
        words += ["--startup", json.dumps(_startup(after, container=container))]
    words += _probed(probe, container=container)
    kept["timeoutSeconds"] = wait + SLACK_SECONDS
    if kind != "readiness":
        kept["failureThreshold"] = _number(probe, "failureThreshold", THRESHOLD) + SLACK_TIMES
    return {"exec": {"command": [SUPERVISE, "probe", *words]}, **kept}


def _startup(probe: Mapping[str, Any], *, container: Mapping[str, Any]) -> Manifest:
    delay = _number(probe, "initialDelaySeconds", 0)
    period = _number(probe, "periodSeconds", PERIOD_SECONDS)
    limit = delay + period * _number(probe, "failureThreshold", THRESHOLD)
    return {"words": _probed(probe, container=container), "delay": delay, "limit": limit}


def _probed(probe: Mapping[str, Any], *, container: Mapping[str, Any]) -> list[str]:
    timeout = str(_number(probe, "timeoutSeconds", TIMEOUT_SECONDS))
    return ["--timeout", timeout, *_handler(probe, container=container)]


def _handler(handler: Mapping[str, Any], *, container: Mapping[str, Any]) -> list[str]:
    """What is asked, as words for `supervise probe`."""
    if "exec" in handler:
        return ["--", *(str(word) for word in handler["exec"].get("command") or [])]
    if "httpGet" in handler:
        get = handler["httpGet"]
        headers = [
            word
            for header in get.get("httpHeaders") or []
            for word in ("--header", f"{header['name']}: {header['value']}")
        ]
        return ["--http", _url(get, container=container), *headers]
    port = _port(handler["tcpSocket"].get("port"), container=container)
    host = handler["tcpSocket"].get("host") or "127.0.0.1"
    return ["--tcp", f"{host}:{port}"]


def _number(probe: Mapping[str, Any], field: str, default: int) -> int:
    value = probe.get(field)
    return default if value is None else int(value)


def _url(get: Mapping[str, Any], *, container: Mapping[str, Any]) -> str:
    scheme = str(get.get("scheme") or "HTTP").lower()
    path = str(get.get("path") or "/")
    host = get.get("host") or "127.0.0.1"
    port = _port(get.get("port"), container=container)
    return f"{scheme}://{host}:{port}{path if path.startswith('/') else '/' + path}"


def _port(port: Any, *, container: Mapping[str, Any]) -> Any:
    """A port by number, looked up by name in the container where it is a name."""
    for entry in container.get("ports") or []:
        if entry.get("name") == port:
            return entry["containerPort"]
    return port
