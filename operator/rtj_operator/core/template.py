"""Read a user's pod template: which container trains, and what cannot work.

Everything that would make a pod that can never do its work is refused here, before any pod is
made, with the field and the remedy. Must never drop a field it does not know, and must never do
I/O.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from posixpath import normpath
from typing import Any, NoReturn

from rtj_api import contract
from rtj_api.reasons import Reason

Manifest = dict[str, Any]

MAX_LABEL = 63  # a label's value, and a hostname (RFC 1123)
ATTEMPT_DIGITS = 5  # room kept in a pod's name, so that a job cannot outgrow it in its life
OWN_VOLUMES = (
    contract.VOLUME_RUN,
    contract.VOLUME_PODINFO,
    contract.VOLUME_CHECKPOINTS,
    contract.VOLUME_CREDENTIALS,
    contract.VOLUME_CA,
)
INNER_RESTARTS = re.compile(r"--max[-_]restarts[= ](\d+)")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no pod can be made of this spec. The message names the field and the remedy."""

    reason: Reason
    message: str


class SpecRefused(Exception):
    """Raised by everything here that finds a spec it cannot work with."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(f"{refusal.reason}: {refusal.message}")
        self.refusal = refusal


def refuse(reason: Reason, message: str) -> NoReturn:
    raise SpecRefused(Refusal(reason=reason, message=message))


def misshapen(error: Exception) -> Refusal:
    """Of what was raised while a pod was made for trial of what the API let through."""
    found = f"field {error} is missing" if isinstance(error, KeyError) else str(error)
    words = " ".join(f"{type(error).__name__}: {found}".split())[:400]
    return Refusal(
        Reason.INVALID_SPEC,
        f"no pod can be made of spec.template: a field in it is not of the kind that Kubernetes "
        f"asks for ({words}). Correct it; `kubectl create --dry-run=server` of a Pod with that "
        f"template's spec names the field.",
    )


def name_limit(*, replicas: int, spares: int = 0, made_in: int = 0) -> int:
    """Longest job name whose pods' names still fit a label and a hostname, in characters."""
    rank_digits = len(str(max(replicas - 1, 0)))
    if spares:
        rank_digits = max(rank_digits, len(f"s{spares - 1}"))
    attempt_digits = max(ATTEMPT_DIGITS, len(str(made_in)))
    return MAX_LABEL - (1 + rank_digits) - (1 + attempt_digits) - (1 + 4)


def check_name(name: str, *, replicas: int, spares: int = 0, made_in: int = 0) -> None:
    limit = name_limit(replicas=replicas, spares=spares, made_in=made_in)
    if len(name) > limit:
        refuse(
            Reason.NAME_TOO_LONG,
            f"metadata.name has {len(name)} characters; with spec.replicas={replicas} a name may "
            f"have {limit}, so that <name>-<rank>-<attempt>-<id> fits the 63 of a pod's hostname "
            f"and labels. Make the job again under a shorter name; set spec.checkpoint.runID to "
            f"go on with the same run.",
        )


def pod_spec(template: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = template.get("spec")
    if not isinstance(spec, Mapping) or not isinstance(spec.get("containers"), list):
        refuse(
            Reason.INVALID_SPEC,
            "spec.template.spec.containers is missing. State the container that trains.",
        )
    for kind in ("containers", "initContainers", "volumes"):
        entries = spec.get(kind) or []
        if not isinstance(entries, list) or not all(
            isinstance(entry, Mapping) and isinstance(entry.get("name"), str) for entry in entries
        ):
            refuse(
                Reason.INVALID_SPEC,
                f"spec.template.spec.{kind} must be a list of objects that each have a name.",
            )
    return spec


def trainer_index(spec: Mapping[str, Any]) -> int:
    """Index of the trainer in `containers`: the one named `trainer`, or the only one."""
    names = [container["name"] for container in spec["containers"]]
    if contract.CONTAINER_TRAINER in names:
        return names.index(contract.CONTAINER_TRAINER)
    if len(names) == 1:
        return 0
    refuse(
        Reason.TRAINER_CONTAINER_AMBIGUOUS,
        f"spec.template.spec.containers holds {', '.join(names) or 'none'}; none is named "
        f"`{contract.CONTAINER_TRAINER}`. Give the one that trains that name.",
    )


def check_template(spec: Mapping[str, Any]) -> None:
    """Refuse what cannot work whatever the checkpoint path is."""
    index = trainer_index(spec)
    trainer = spec["containers"][index]
    where = f"spec.template.spec.containers[{index}]"
    command = trainer.get("command")
    if not command:
        refuse(
            Reason.COMMAND_MISSING,
            f"{where}.command is missing. The operator starts the trainer itself and cannot read "
            f'the image\'s entrypoint: write it out, for example command: ["python", "train.py"].',
        )
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        refuse(Reason.INVALID_SPEC, f"{where}.command must be a list of strings.")
    if spec.get("hostPID"):
        refuse(
            Reason.INVALID_SPEC,
            "spec.template.spec.hostPID is true: the supervisor could not tell the trainer's "
            "processes from the node's. Remove it.",
        )
    _check_names(spec)
    for mount in trainer.get("volumeMounts") or []:
        for ours in (contract.MOUNT_RUN, contract.MOUNT_PODINFO):
            if is_within(str(mount.get("mountPath", "")), ours):
                refuse(
                    Reason.INVALID_SPEC,
                    f"{where}.volumeMounts: {mount.get('mountPath')} is taken; {ours} belongs to "
                    f"the operator. Mount it elsewhere.",
                )
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        if "grpc" in (trainer.get(probe) or {}):
            refuse(
                Reason.INVALID_SPEC,
                f"{where}.{probe}.grpc cannot be asked only while the trainer runs. "
                f"Use exec, httpGet or tcpSocket.",
            )


def _check_names(spec: Mapping[str, Any]) -> None:
    for kind in ("containers", "initContainers"):
        for number, container in enumerate(spec.get(kind) or []):
            if container["name"] == contract.CONTAINER_SIDECAR:
                refuse(
                    Reason.INVALID_SPEC,
                    f"spec.template.spec.{kind}[{number}].name {contract.CONTAINER_SIDECAR} is "
                    f"the operator's. Rename it.",
                )
    for number, volume in enumerate(spec.get("volumes") or []):
        if volume["name"] in OWN_VOLUMES:
            refuse(
                Reason.INVALID_SPEC,
                f"spec.template.spec.volumes[{number}].name {volume['name']} is the operator's. "
                f"Rename it.",
            )


def inner_restarts(container: Mapping[str, Any], *, where: str) -> Refusal | None:
    """A launcher told to restart its workers by itself: it would do so from a state that nobody
    checked, and rank by rank. torchrun reads PET_MAX_RESTARTS unless it is given the option."""
    words = [*(container.get("command") or []), *(container.get("args") or [])]
    text = " ".join(str(word) for word in words)  # a shell's -c script is one word
    given = INNER_RESTARTS.search(text)
    source = f"spec.template.spec.{where}.command has --max-restarts"
    if given is None:
        for entry in container.get("env") or []:
            if entry.get("name") == "PET_MAX_RESTARTS":
                given = re.match(r"(\d+)$", str(entry.get("value", "")))
                source = f"spec.template.spec.{where}.env has PET_MAX_RESTARTS"
    if given is None or int(given[1]) == 0:
        return None
    return Refusal(
        Reason.TRAINER_RESTARTS_ITSELF,
        f"{source}={given[1]}: the launcher would restart its workers by itself, from a state "
        f"that was not checked. Remove it; the operator restarts the gang.",
    )


def gpu_limit(container: Mapping[str, Any]) -> int:
    """GPUs that one pod's trainer gets: the sum over `<vendor>/gpu` limits, at least 1."""
    limits = (container.get("resources") or {}).get("limits") or {}
    count = 0
    for name, quantity in limits.items():
        if str(name).endswith("/gpu"):
            try:
                count += int(quantity)
            except ValueError:
                refuse(
                    Reason.INVALID_SPEC,
                    f"resources.limits.{name} of the trainer is {quantity!r}; it must be a whole "
                    f"number. Correct it, or state spec.procsPerReplica.",
                )
    return max(count, 1)


def is_within(path: str, directory: str) -> bool:
    inner, outer = normpath(path), normpath(directory)
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")
