"""The pod template of another operator's job, as a rank's. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from rtj_api import contract

from rtj_cli.converting.taking import Notes

COMMAND = "replace-with-the-command-of-the-image"
DIRECTORY = "/replace-with-the-checkpoint-directory"
# Set by this operator for each attempt; a fixed value would defeat it.
RENDEZVOUS = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "WORLD_SIZE",
    "RANK",
    "LOCAL_RANK",
    "NODE_RANK",
    "PET_MASTER_ADDR",
    "PET_MASTER_PORT",
    "PET_NNODES",
    "PET_NODE_RANK",
    "PET_NPROC_PER_NODE",
    "PET_RDZV_ENDPOINT",
    "PET_RDZV_BACKEND",
    "PET_RDZV_ID",
    "JAX_COORDINATOR_ADDRESS",
)
_WORDS = r"(?:checkpoint|ckpt|output|save|results?|default_root|log)"
_FLAG = re.compile(rf"^--?[\w-]*{_WORDS}[\w-]*(?:dir|path|folder)?(?:=(?P<path>/\S+))?$", re.I)
_NAME = re.compile(rf"^\w*{_WORDS}\w*(?:DIR|PATH|FOLDER)$", re.I)


def template_of(raw: Mapping[str, Any], *, notes: Notes, path: str) -> dict[str, Any]:
    """A template that the CRD takes. `path`: of the original, for the notes."""
    found = {"metadata": _metadata(raw.get("metadata") or {}), "spec": _spec(raw, notes, path)}
    if not found["metadata"]:
        del found["metadata"]
    for key in set(raw) - {"metadata", "spec"}:
        notes.dropped.append(f"{path}.{key}: has no counterpart")
    return found


def _metadata(meta: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: meta[key] for key in ("labels", "annotations") if meta.get(key)}
    return {key: dict(value) for key, value in kept.items()}


def _spec(raw: Mapping[str, Any], notes: Notes, path: str) -> dict[str, Any]:
    spec = deepcopy(dict(raw.get("spec") or {}))
    if spec.pop("restartPolicy", None):
        notes.dropped.append(f"{path}.spec.restartPolicy: the operator sets it")
    for key, why in (
        ("hostname", "pods get their rank's"),
        ("subdomain", "ranks find each other by rank 0's address"),
    ):
        if spec.pop(key, None):
            notes.dropped.append(f"{path}.spec.{key}: {why}")
    containers = [dict(each) for each in spec.get("containers") or ()]
    if not containers:
        containers = [{"name": contract.CONTAINER_TRAINER, "image": "replace-with-the-image"}]
        notes.questions.append("which image trains? The manifest has no container")
    trainer = _trainer(containers, notes, path)
    if not trainer.get("command"):
        trainer["command"] = [COMMAND]
        notes.questions.append(
            "what does the trainer's image run? The supervisor starts it, so its command must be "
            "in the manifest, such as [python, train.py] or [torchrun, train.py]"
        )
    env = [dict(each) for each in trainer.get("env") or ()]
    fixed = [each["name"] for each in env if each.get("name") in RENDEZVOUS]
    if fixed:
        trainer["env"] = [each for each in env if each.get("name") not in RENDEZVOUS]
        notes.dropped.append(
            f"{path}.spec.containers[{trainer['name']}].env: {', '.join(fixed)}: the operator sets "
            "them anew for each attempt"
        )
    spec["containers"] = containers
    return spec


def _trainer(containers: list[dict[str, Any]], notes: Notes, path: str) -> dict[str, Any]:
    """The container that trains; it is renamed where several leave it open."""
    wanted = contract.CONTAINER_TRAINER
    if len(containers) == 1:
        return containers[0]
    named = {str(each.get("name")): each for each in containers}
    known = next((name for name in (wanted, "pytorch", "node", "jax") if name in named), None)
    found = named[known] if known is not None else containers[0]
    if found.get("name") != wanted:
        notes.carried.append(
            f"{path}.spec.containers[{found.get('name')}] is named {wanted}, for there are several"
        )
        if known is None:
            notes.questions.append(
                f"does the container {found.get('name')} train? The first one was taken"
            )
        found["name"] = wanted
    return found


def checkpoint_path(template: Mapping[str, Any]) -> str | None:
    """Where its words, its environment or a mounted claim say that checkpoints go."""
    containers = template["spec"]["containers"]
    wanted = contract.CONTAINER_TRAINER
    trainer = next((each for each in containers if each.get("name") == wanted), containers[0])
    words = [str(word) for key in ("command", "args") for word in trainer.get(key) or ()]
    for place in (*_of_words(words), *_of_environment(trainer), *_of_claims(template, trainer)):
        plain = place.rstrip("/")
        if plain.startswith("/") and not re.search(r"/\.{0,2}(/|$)|[:$]", plain):
            return plain
    return None


def _of_words(words: list[str]) -> Iterable[str]:
    for word, after in zip(words, [*words[1:], ""], strict=True):
        found = _FLAG.match(word)
        if found is not None:
            yield found["path"] or after


def _of_environment(trainer: Mapping[str, Any]) -> Iterable[str]:
    for each in trainer.get("env") or ():
        if _NAME.match(str(each.get("name"))) and each.get("value"):
            yield str(each["value"])


def _of_claims(template: Mapping[str, Any], trainer: Mapping[str, Any]) -> Iterable[str]:
    claims = {
        each.get("name")
        for each in template["spec"].get("volumes") or ()
        if "persistentVolumeClaim" in each or "nfs" in each
    }
    for mount in trainer.get("volumeMounts") or ():
        if mount.get("name") in claims and not mount.get("readOnly"):
            yield str(mount.get("mountPath"))
