"""Probes and the postStart hook of a trainer that is not running all the time.

Between attempts the trainer's container waits in the supervisor; a probe of the user's would fail
then and the kubelet would kill the container. So each is asked through `supervise probe`, which
is true while no trainer runs. Must never change what a probe asks or how often.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rtj_api.contract import SUPERVISE

from rtj_operator.core.template import Manifest

PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
HANDLERS = ("exec", "httpGet", "tcpSocket")


def quiet_probes(container: Manifest) -> None:
    """Rewrite the container's probes and postStart in place."""
    for name in PROBES:
        if container.get(name):
            container[name] = quiet_handler(container[name], container=container)
    post_start = (container.get("lifecycle") or {}).get("postStart")
    if post_start:
        container["lifecycle"]["postStart"] = quiet_handler(post_start, container=container)


def quiet_handler(handler: Mapping[str, Any], *, container: Mapping[str, Any]) -> Manifest:
    """The same handler as an exec of `supervise probe`; timing fields are kept."""
    kept = {key: value for key, value in handler.items() if key not in HANDLERS}
    timeout = str(handler.get("timeoutSeconds") or 1)
    if "exec" in handler:
        asked = ["--", *(handler["exec"].get("command") or [])]
    elif "httpGet" in handler:
        asked = ["--http", _url(handler["httpGet"], container=container), "--timeout", timeout]
        for header in handler["httpGet"].get("httpHeaders") or []:
            asked += ["--header", f"{header['name']}: {header['value']}"]
    elif "tcpSocket" in handler:
        port = _port(handler["tcpSocket"].get("port"), container=container)
        host = handler["tcpSocket"].get("host") or "127.0.0.1"
        asked = ["--tcp", f"{host}:{port}", "--timeout", timeout]
    else:
        return dict(handler)  # `sleep` in postStart needs no trainer
    return {"exec": {"command": [SUPERVISE, "probe", *asked]}, **kept}


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
