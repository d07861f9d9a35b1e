"""Which permission is missing, by the API server's own words: said in the log and as a metric.

A request that was forbidden is tried again by whoever made it, and what can be done without it is
done; but nobody would know what to grant. Must never take an admission webhook's or a quota's
refusal, which are 403 too, for a missing permission.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client import Gauge

log = logging.getLogger(__name__)

REPEAT_SECONDS = 300.0
REMEDY = (
    "Give the operator's ServiceAccount the roles of the chart: docs/install.md, What it may do."
)
_FORBIDDEN = re.compile(
    r'cannot (?P<verb>\S+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]+)"| at the cluster scope)'
)


@dataclass(frozen=True, slots=True)
class Permission:
    """`namespace` None: in all of them, or of what belongs to none."""

    verb: str
    resource: str  # with its subresource: resumabletrainingjobs/status
    group: str  # "" is the core group
    namespace: str | None

    def __str__(self) -> str:
        where = f"in namespace {self.namespace}" if self.namespace else "in the whole cluster"
        return f"{self.verb} {self.resource}{'.' if self.group else ''}{self.group} {where}"


def missing(message: str) -> Permission | None:
    """What RBAC refused; None: it was something else that refused."""
    found = _FORBIDDEN.search(message)
    return None if found is None else Permission(**found.groupdict())


@dataclass(slots=True)
class Rights:
    """`refused`: Unix time of the last refusal, by verb, group and resource."""

    refused: Gauge
    clock: Callable[[], float] = time.time
    _said: dict[Permission, float] = field(default_factory=dict)

    def __call__(self, message: str) -> None:
        """The API server forbade a request with these words."""
        permission = missing(message)
        if permission is None:
            return
        now = self.clock()
        self.refused.labels(permission.verb, permission.group, permission.resource).set(now)
        if now - self._said.get(permission, float("-inf")) < REPEAT_SECONDS:
            return
        self._said[permission] = now
        log.error("a permission is missing", extra={"may_not": str(permission), "remedy": REMEDY})
