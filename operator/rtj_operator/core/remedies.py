"""Which field of this job, and which object it names, a user can change to end a problem.

A sidecar says what went wrong; it does not know the object that the spec names. Pure. Must never
change what a problem says, only add to it.
"""

from __future__ import annotations

from rtj_api.reasons import Reason
from rtj_api.wire import Problem

from rtj_operator.core.observed import JobSpec

_STORE = "spec.checkpoint.store"


def worded(problem: Problem, spec: JobSpec | None) -> str:
    """The problem's message with the field and the object to change."""
    place = _place(problem.reason, spec) if spec is not None else None
    if place is None:
        return problem.message
    return f"{problem.message.rstrip('.')} (see {place})"


def _place(reason: str, spec: JobSpec) -> str | None:
    match reason:
        case Reason.CREDENTIALS_REFUSED | Reason.CREDENTIALS_MISSING:
            if spec.credentials_secret:
                return f'{_STORE}.credentialsSecret "{spec.credentials_secret}"'
            return f"{_STORE}.credentialsSecret, which is not set, and spec.sidecar.envFrom"
        case Reason.BUCKET_MISSING:
            return f'{_STORE}.url "{spec.store_url}"'
        case Reason.STORE_UNREACHABLE if spec.store_endpoint:
            return f'{_STORE}.endpoint "{spec.store_endpoint}"'
        case Reason.STORE_UNREACHABLE | Reason.STORE_SCHEME_UNKNOWN if spec.store_url:
            return f'{_STORE}.url "{spec.store_url}"'
    return None
