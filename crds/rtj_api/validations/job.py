"""Rules on the job as a whole: its name, size, outputs and resume arguments.

Must never hold a rule without a remedy in its message.
"""

from __future__ import annotations

from typing import Final

from rtj_api.contract import CONTAINER_TRAINER, MANAGER
from rtj_api.validations.rule import Rule, immutable

MAX_NAME_AND_RANK: Final = 51
"""Characters of the job's name and its highest rank. A pod's name is also its hostname, which has
at most 63, and adds three dashes, 5 digits of an attempt and 4 hex."""


JOB: Final = (
    Rule(
        "name-length",
        f"size(self.metadata.name) + size(string(self.spec.replicas - 1)) <= {MAX_NAME_AND_RANK}",
        f"metadata.name is too long: with the digits of the highest rank it may have "
        f"{MAX_NAME_AND_RANK} characters, because pods are named <name>-<rank>-<attempt>-<id> and "
        "a hostname has at most 63. Choose a shorter name; set checkpoint.runID to go on with a "
        "run",
    ),
    Rule(
        "name-dots",
        "!self.metadata.name.contains('.')",
        "metadata.name may not contain a dot, because it begins a pod's hostname: "
        "write '-' instead",
    ),
)


REPLICAS: Final = (
    immutable(
        "replicas",
        remedy="delete the job and apply it anew with the same runID; it goes on from the "
        "newest save",
    ),
)


OUTPUTS: Final = (
    Rule(
        "outputs-absolute",
        "self.all(path, path.startsWith('/') && path != '/' && "
        "!path.substring(1).split('/').exists(part, part == '' || part == '.' || part == '..'))",
        "outputs are absolute paths written in full, without '//', '.', '..' or a slash at their "
        "end, such as /results",
    ),
)


BACKOFF: Final = (
    Rule(
        "backoff-order",
        # The server judges the default `{}` before it fills it in: so both may be absent.
        "!has(self.initialSeconds) || !has(self.maxSeconds) || "
        "self.initialSeconds <= self.maxSeconds",
        "backoff.initialSeconds may not be above backoff.maxSeconds",
    ),
)


FAILURE_RULES: Final = (
    Rule(
        "failure-rule-asks",
        "self.all(rule, has(rule.logPattern) || (has(rule.exitCodes) && size(rule.exitCodes) > 0))",
        "a failure rule fits nothing: state exitCodes, logPattern or both",
    ),
    Rule(
        "failure-rule-names",
        "self.all(rule, self.exists_one(other, other.name == rule.name))",
        "two failure rules have one name: give each its own, for it is shown as the signature",
    ),
)


_FIRST_WORDS = "[0, 1, 2, 3, 4, 5]"


def _some_word(test: str) -> str:
    """CEL: one of the first six words of a container's command or args passes `test`(WORD).

    Bounded by index, for the server's cost estimate multiplies every loop by its largest size.
    """
    return (
        "("
        + " || ".join(
            f"(has(c.{field}) && {_FIRST_WORDS}.exists(i, size(c.{field}) > i && "
            + test.replace("WORD", f"c.{field}[i]")
            + "))"
            for field in ("command", "args")
        )
        + ")"
    )


_IS_A_SCRIPT = _some_word("WORD.startsWith('-') && !WORD.startsWith('--') && WORD.endsWith('c')")


_PLACES_THEM = _some_word("WORD.contains('RTJ_RESUME_ARGS')")


MANAGED_BY: Final = (
    Rule(
        "managed-by-form",
        "self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')",
        f"not a controller's name: write <domain>/<name>, such as kueue.x-k8s.io/multikueue; leave "
        f"it out, or write {MANAGER}, for this operator",
    ),
)


SPEC: Final = (
    Rule(
        "managed-by-immutable",
        "(has(self.managedBy) ? self.managedBy : '') == "
        "(has(oldSelf.managedBy) ? oldSelf.managedBy : '')",
        "managedBy cannot be changed: two controllers would make its pods. Delete the job and "
        "apply it anew; with the same runID it goes on from the newest save",
    ),
    Rule(
        "spares-gang",
        "!has(self.scheduling) || !has(self.scheduling.gang) || self.scheduling.gang == 'none' || "
        "!has(self.recovery) || !has(self.recovery.spares) || self.recovery.spares == 0",
        "a queue or gang scheduler counts the ranks' own pods alone, so its group would never be "
        "whole again once a spare stands in for one: set recovery.spares to 0, or scheduling.gang "
        "to none",
    ),
    Rule(
        "store-or-volume",
        "has(self.checkpoint.store) || (has(self.template.spec.volumes) && "
        "self.template.spec.volumes.size() > 0)",
        "without checkpoint.store the saves need a volume that outlives every pod: set "
        "checkpoint.store, such as url: s3://bucket/prefix, or mount a shared volume (a claim, "
        "NFS) at checkpoint.path",
    ),
    Rule(
        "resume-args-shell",
        "!has(self.checkpoint.resumeArgs) || self.checkpoint.resumeArgs.size() == 0 || "
        "self.template.spec.containers.all(c, "
        f"(self.template.spec.containers.size() > 1 && c.name != '{CONTAINER_TRAINER}') || "
        "!has(c.command) || c.command.size() == 0 || "
        "!c.command[0].matches('^(.*/)?(ba|da|z|k|a)?sh$') || "
        f"!{_IS_A_SCRIPT} || {_PLACES_THEM})",
        "the trainer's command is a shell -c script, so resumeArgs cannot be appended to it: put "
        "$(RTJ_RESUME_ARGS) where the script calls the trainer, such as "
        "'exec python train.py $(RTJ_RESUME_ARGS)'",
    ),
)
