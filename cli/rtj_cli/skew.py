"""How far the versions of `rtj` and of what runs in the cluster are from each other. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from rtj_api import contract

from rtj_cli.jobs import Raw

VERSION_LABEL = "app.kubernetes.io/version"
MOST = 1  # minor versions that may lie between
_VERSION = re.compile(r"^v?(\d+)\.(\d+)\.\d+(?:$|[-+.a-z])")


def parts(version: str) -> tuple[int, int] | None:
    """(major, minor); None for a name that is no version, such as `dev` or a digest."""
    found = _VERSION.match(version)
    return None if found is None else (int(found[1]), int(found[2]))


def warning(own: str, others: Mapping[str, str]) -> str | None:
    """What to say where one of the others is too far away; `others`: what -> its version."""
    mine = parts(own)
    for what, version in others.items():
        theirs = parts(version)
        if mine is None or theirs is None:
            continue
        if mine[0] != theirs[0] or abs(mine[1] - theirs[1]) > MOST:
            older = "rtj" if mine < theirs else what
            return (
                f"rtj is {own} and {what} is {version}: more than one minor version lies between, "
                f"so what is shown may be incomplete; update {older}"
            )
    return None


def of_labels(raw: Raw) -> str | None:
    told = (raw["metadata"].get("labels") or {}).get(VERSION_LABEL)
    return None if told is None else str(told)


def of_sidecars(pods: Iterable[Raw]) -> str | None:
    """The tag of the sidecar's image, where it is a version; of the newest pod."""
    newest: Raw = max(
        pods, key=lambda pod: pod["metadata"].get("creationTimestamp") or "", default={}
    )
    for container in (newest.get("spec") or {}).get("initContainers") or ():
        if container.get("name") == contract.CONTAINER_SIDECAR:
            tag = str(container.get("image", "")).partition("@")[0].rpartition("/")[2]
            version = tag.partition(":")[2]
            return version if parts(version) is not None else None
    return None
