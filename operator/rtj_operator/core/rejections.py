"""Why the API server refused a pod, and what a person can do about it.

The API server answers with text only; what is recognised here gets a remedy, and everything else
is passed on as it was said. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rtj_api.reasons import Reason

# "pods \"x\" is forbidden: …" : the pod's name says nothing here.
_PREFIX = re.compile(r'^.*?pods "[^"]*" is forbidden: |^pods "[^"]*" is invalid: ')


@dataclass(frozen=True, slots=True)
class _Known:
    """`remedy` may use groups of the pattern."""

    pattern: re.Pattern[str]
    remedy: str


_SIDECAR_USER = (
    "The pod's user is not known, so the sidecar asks for root to hand files to it: state "
    "spec.template.spec.securityContext.runAsUser (the number of the image's user), and the "
    "sidecar runs as that user, without any capability"
)
_KNOWN = (
    _Known(
        re.compile(r"exceeded quota: (?P<name>[^,]+)"),
        "Raise ResourceQuota {name}, end something that counts against it, or ask for less in "
        "spec.template and spec.sidecar.resources",
    ),
    _Known(
        re.compile(r"failed quota: (?P<name>[^:]+): must specify (?P<what>.+)"),
        "ResourceQuota {name} wants every container to state that: add it to the containers of "
        "spec.template, and for rtj-sidecar to spec.sidecar.resources; or let a LimitRange give a "
        "default",
    ),
    _Known(
        re.compile(
            r"(?:maximum|minimum) .+ usage per (?:Container|Pod) is|max limit to request ratio"
        ),
        "A LimitRange of the namespace says so: change the resources of spec.template, or "
        "spec.sidecar.resources where the sidecar is meant, or the LimitRange",
    ),
    _Known(
        re.compile(r'violates PodSecurity "[^"]+".*runAsUser=0.*rtj-sidecar', re.S),
        _SIDECAR_USER,
    ),
    _Known(
        re.compile(r'violates PodSecurity "[^"]+".*container "rtj-sidecar" must not set', re.S),
        _SIDECAR_USER,
    ),
    _Known(
        re.compile(r'violates PodSecurity "(?P<level>[^":]+)[^"]*"'),
        "The namespace's label pod-security.kubernetes.io/enforce={level} says so: change what it "
        "names in spec.template, or the label",
    ),
    _Known(
        re.compile(r"error looking up service account [^/]+/(?P<name>[^:]+)"),
        "Make the ServiceAccount {name}, or correct spec.template.spec.serviceAccountName",
    ),
    _Known(
        re.compile(r"no PriorityClass with name (?P<name>\S+) was found"),
        "Make the PriorityClass {name}, or correct spec.template.spec.priorityClassName",
    ),
    _Known(
        re.compile(r"is being terminated"),
        "The namespace is being deleted: nothing starts there any more",
    ),
    _Known(
        re.compile(r'failed calling webhook "(?P<name>[^"]+)"'),
        "Nothing answers for admission webhook {name}: start what it belongs to, or remove its "
        "webhook configuration",
    ),
    _Known(re.compile(r"no PodGroup can be made: "), ""),
    _Known(
        re.compile(r'admission webhook "(?P<name>[^"]+)" denied'),
        "The policy behind admission webhook {name} says so: change what it names in spec.template",
    ),
)


def reason_of(message: str) -> Reason:
    """What kind of refusal it is."""
    if message.startswith("no PodGroup can be made"):
        return Reason.GANG_UNAVAILABLE
    is_quota = "exceeded quota: " in message or "failed quota: " in message
    return Reason.QUOTA_EXCEEDED if is_quota else Reason.POD_REJECTED


def worded(message: str) -> str:
    """The API server's answer with the remedy, ending without a full stop."""
    said = _PREFIX.sub("", message).strip().rstrip(".")
    for known in _KNOWN:
        found = known.pattern.search(said)
        if found is not None:
            return f"{said}. {known.remedy.format(**found.groupdict())}".removesuffix(". ")
    return f"{said}. Correct what it names in spec.template or spec.sidecar"
