"""The rules that the API server checks when a job is applied, each with what to do about it.

They are CEL in the subset of Kubernetes 1.29, kept apart from the models so that each is one
named thing with one accepting and one refusing test on a real API server. What CEL cannot see
(a Secret that is missing, a mount that is read-only) is the operator's condition `Accepted`.
Must never hold a rule without a remedy in its message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from rtj_api.contract import (
    CONTAINER_SIDECAR,
    CONTAINER_TRAINER,
    ENV_ATTEMPT,
    ENV_CHECKPOINT_DIR,
    ENV_RESUME_CHECKPOINT,
    ENV_RESUME_STEP,
    GROUP,
    MOUNT_CA,
    MOUNT_CREDENTIALS,
    MOUNT_PODINFO,
    MOUNT_RUN,
    VOLUME_CHECKPOINTS,
    VOLUME_CREDENTIALS,
    VOLUME_PODINFO,
    VOLUME_RUN,
)
from rtj_api.rules.steering import FORMS
from rtj_api.rules.steering import RUN_ID as RUN_ID_PATTERN
from rtj_api.stores import PLACE_PATTERN, SCHEMES, URL_FORMS

MAX_NAME_AND_RANK: Final = 51
"""Characters of the job's name and its highest rank. A pod's name is also its hostname, which has
at most 63, and adds three dashes, 5 digits of an attempt and 4 hex."""


NOT_FOR_CHECKPOINTS: Final = (
    MOUNT_RUN,
    MOUNT_PODINFO,
    MOUNT_CREDENTIALS,
    MOUNT_CA,
    "/proc",
    "/sys",
    "/dev",
    "/var/run/secrets",
)


@dataclass(frozen=True, slots=True)
class Rule:
    """One CEL rule. `message` says what is wrong and what to write instead."""

    name: str
    rule: str
    message: str

    def dump(self) -> dict[str, str]:
        return {"rule": " ".join(self.rule.split()), "message": self.message}


def rules(*found: Rule) -> dict[str, Any]:
    """The schema extension that holds these rules."""
    return {"x-kubernetes-validations": [rule.dump() for rule in found]}


def immutable(field: str, *, remedy: str) -> Rule:
    return Rule(
        f"{field.lower().replace('.', '-')}-immutable",
        "self == oldSelf",
        f"{field} cannot be changed: {remedy}",
    )


_SAME_RUN = (
    "the saves of this run are bound to it. Delete the job and apply it anew; with the same runID "
    "it goes on from the newest save"
)

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

STORE_URL: Final = (
    Rule(
        "store-scheme",
        f"self.matches('^({'|'.join(scheme.name for scheme in SCHEMES)})://')",
        f"the store's scheme is unknown: write {URL_FORMS}",
    ),
    Rule(
        "store-url-place",
        f"self.startsWith('file://') || "
        f"self.matches('^[a-z0-9]+://{PLACE_PATTERN}(:[0-9]+)?(/[^?#]*)?$')"
        " && (!self.matches('^[a-z0-9]+://[^/]*:') || self.startsWith('hdfs://'))",
        "not a place in a store: write s3://bucket or s3://bucket/prefix (gs://bucket, "
        "az://container, hdfs://namenode alike), without credentials or query; credentials go into "
        "a Secret named by credentialsSecret, a server into endpoint",
    ),
    Rule(
        "store-url-file",
        "!self.startsWith('file://') || self.matches('^file:///[^/?#].*$')",
        "not a directory: write file:///directory with three slashes",
    ),
    Rule(
        "store-url-dots",
        "!('..' in self.split('/')) && !('.' in self.split('/'))",
        "the store's url may not contain '.' or '..' as a part of its path: write it in full",
    ),
    immutable("store.url", remedy=_SAME_RUN),
)

STORE_ENDPOINT: Final = (
    Rule(
        "endpoint",
        r"self.matches('^https?://[^/@?#;]+(/[a-z0-9]*)?(;https?://[^/@?#;]+/?)*$')",
        "endpoint is the URL of the store's server, http://host:port or https://host:port, without "
        "credentials",
    ),
)

UPLOAD_RATE: Final = (
    Rule(
        "upload-rate",
        "type(self) == int ? self >= 65536 : "
        "quantity(string(self)).compareTo(quantity('64Ki')) >= 0",
        "store.maxUploadBytesPerSecond is below 64Ki, with which no checkpoint of use would ever "
        "arrive: write bytes a second, such as 50M, or leave it out",
    ),
)

CA_BUNDLE: Final = (
    Rule(
        "ca-bundle-source",
        "has(self.configMap) != has(self.secret)",
        "caBundle names one object that holds the certificates: state either configMap or secret",
    ),
)

CHECKPOINT_PATH: Final = (
    Rule(
        "path-absolute",
        "self.startsWith('/') && self != '/'",
        "checkpoint.path must be an absolute directory other than /, such as /checkpoints",
    ),
    Rule(
        "path-plain",
        "self == '/' || !self.startsWith('/') || self.substring(1).split('/')"
        ".all(part, part != '' && part != '.' && part != '..' && !part.contains(':'))",
        "checkpoint.path must be written in full, without '//', '.', '..', ':' or a slash at "
        "its end",
    ),
    Rule(
        "path-reserved",
        " && ".join(
            f"self != '{place}' && !self.startsWith('{place}/')"
            for place in (MOUNT_RUN, MOUNT_PODINFO, "/proc", "/sys", "/dev")
        ),
        f"checkpoint.path may not lie in {MOUNT_RUN}, {MOUNT_PODINFO}, /proc, /sys or /dev: "
        "choose another directory, such as /checkpoints",
    ),
    immutable("checkpoint.path", remedy=_SAME_RUN),
)

INCLUDE: Final = (
    Rule(
        "include-relative",
        "self.all(glob, !glob.startsWith('/') && !('..' in glob.split('/')))",
        "patterns in include are relative to checkpoint.path and may not contain '..': write "
        "model_*.npz, not /checkpoints/model_*.npz",
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

RUN_ID: Final = (
    Rule(
        "run-id",
        f"self.matches('^{RUN_ID_PATTERN}$')",
        "runID consists of letters, digits, '.', '_' and '-', in parts separated by '/', each "
        "beginning with a letter or digit, such as team-a/gpt-7b",
    ),
)

TAKE_OVER: Final = (
    Rule(
        "take-over",
        "self.matches('^[A-Za-z0-9-]+(/[A-Za-z0-9-]+)?$')",
        "takeOver is the UID of the job that holds the run, or <cluster UID>/<job UID>, as the "
        "condition with reason RunInUse names it",
    ),
)

RESUME_FROM: Final = (
    Rule(
        "resume-from",
        f"self.matches('^{RUN_ID_PATTERN}/?$') || "
        f"self.matches('^(s3|gs|az)://{PLACE_PATTERN}/[^?#]+$') || "
        f"self.matches('^hdfs://{PLACE_PATTERN}(:[0-9]+)?/[^?#]+$') || "
        "self.matches('^file:///[^/?#].*$') || self.matches('^/[^/?#][^?#]*$')",
        f"resumeFrom names neither a save nor a run: {FORMS}",
    ),
    Rule(
        "resume-from-plain",
        "!self.startsWith('/') || self.substring(1).split('/')"
        ".all(part, part != '.' && part != '..')",
        "a directory in resumeFrom must be written in full, without '.' or '..'",
    ),
    Rule(
        "resume-from-reserved",
        " && ".join(
            f"self != '{place}' && !self.startsWith('{place}/') && "
            f"!self.startsWith('file://{place}/')"
            for place in NOT_FOR_CHECKPOINTS
        ),
        f"resumeFrom may not lie in {', '.join(NOT_FOR_CHECKPOINTS)}: name a directory of a volume "
        "that the trainer mounts, such as /data/old-run",
    ),
)

RESUME_VARIABLES: Final = (
    ENV_RESUME_CHECKPOINT,
    ENV_RESUME_STEP,
    ENV_CHECKPOINT_DIR,
    ENV_ATTEMPT,
)
_KNOWN_PLACES: Final = " + ".join(f"size(arg.split('$({name})')) - 1" for name in RESUME_VARIABLES)

RESUME_ARGS: Final = (
    Rule(
        "resume-args-variables",
        f"self.all(arg, size(arg.split('$(RTJ_')) - 1 == {_KNOWN_PLACES})",
        "resumeArgs name a variable that does not exist: use "
        + ", ".join(f"$({name})" for name in RESUME_VARIABLES),
    ),
)

PROBE_COMMAND: Final = (
    Rule(
        "probe-variables",
        f"self.all(arg, size(arg.split('$(RTJ_')) - 1 == {_KNOWN_PLACES})",
        "validation.probe.command names a variable that does not exist: use "
        + ", ".join(f"$({name})" for name in RESUME_VARIABLES),
    ),
    Rule(
        "probe-executable",
        "size(self[0]) > 0",
        "validation.probe.command begins with an empty word: write the program first, such as "
        "[python, check.py]",
    ),
)

REQUIRED_KEYS: Final = (
    Rule(
        "required-keys-plain",
        "self.all(key, !key.contains(' ') && !key.contains('[') && !key.contains(']') && "
        "!key.startsWith('.') && !key.endsWith('.') && !key.contains('..'))",
        "requiredKeys are names with dots and the globs * and ?, without spaces, brackets or an "
        "empty part: write optimizer, or model.head.*",
    ),
)

CHECKPOINT: Final = (
    Rule(
        "store-network-fields",
        "!has(self.store) || !self.store.url.startsWith('file://') || !(has(self.store.endpoint) "
        "|| has(self.store.credentialsSecret) || has(self.store.caBundle))",
        "endpoint, credentialsSecret and caBundle belong to a store that is reached by network: "
        "remove them, or write url: s3://bucket/prefix",
    ),
    Rule(
        "store-region",
        "!has(self.store) || !has(self.store.region) || self.store.url.startsWith('s3://')",
        "region belongs to an s3:// store: remove it",
    ),
    Rule(
        "store-endpoint-path",
        "!has(self.store) || !has(self.store.endpoint) || self.store.url.startsWith('az://') || "
        r"!self.store.endpoint.matches('^https?://[^/]+/[a-z0-9]')",
        "endpoint has a path, which only that of an az:// store may have (the account): write "
        "http://host:port or https://host:port",
    ),
    Rule(
        "store-endpoint-several",
        "!has(self.store) || !has(self.store.endpoint) || self.store.url.startsWith('hdfs://') || "
        "!self.store.endpoint.contains(';')",
        "endpoint names several servers, which only that of an hdfs:// store may do (its name "
        "nodes): write one URL",
    ),
    Rule(
        "archive-store",
        "!has(self.retention) || !has(self.retention.archiveAfterSeconds) || "
        "(has(self.store) && self.store.url.startsWith('s3://'))",
        "retention.archiveAfterSeconds needs an s3:// store, which has storage classes: remove it",
    ),
    Rule(
        "store-outside-path",
        "!has(self.store) || self.store.url != 'file://' + self.path && "
        "!self.store.url.startsWith('file://' + self.path + '/')",
        "the store may not lie inside checkpoint.path, where it would be taken for checkpoints: "
        "choose a directory of another volume",
    ),
    Rule(
        "store-stays",
        "has(self.store) == has(oldSelf.store)",
        f"checkpoint.store cannot be added or removed: {_SAME_RUN}",
    ),
    Rule(
        "run-id-immutable",
        "has(self.runID) == has(oldSelf.runID) && (!has(self.runID) || "
        "self.runID == oldSelf.runID)",
        f"runID cannot be changed: {_SAME_RUN}",
    ),
)

RETENTION: Final = (
    Rule(
        "retention-keep-last",
        "has(self.keepLast) || !(has(self.keepEvery) || has(self.keepBest) || has(self.thin))",
        "keepEvery, keepBest and thin say which older saves stay beside the newest: set keepLast, "
        "without which every save is kept",
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

SPEC: Final = (
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

POD_SPEC: Final = (
    Rule(
        "trainer-container",
        "self.containers.size() == 1 || "
        f"self.containers.exists(c, c.name == '{CONTAINER_TRAINER}')",
        f"several containers and none is named {CONTAINER_TRAINER}: name the one that trains "
        f"'{CONTAINER_TRAINER}'",
    ),
    Rule(
        "trainer-command",
        f"self.containers.all(c, (self.containers.size() > 1 && c.name != '{CONTAINER_TRAINER}') "
        "|| (has(c.command) && c.command.size() > 0))",
        "the trainer's container needs a command, because the image's own entry point cannot be "
        "read: write it out, such as command: [python, train.py]",
    ),
    Rule(
        "reserved-container",
        f"self.containers.all(c, c.name != '{CONTAINER_SIDECAR}') && (!has(self.initContainers) "
        f"|| self.initContainers.all(c, c.name != '{CONTAINER_SIDECAR}'))",
        f"a container may not be named {CONTAINER_SIDECAR}: the operator adds it; choose another "
        "name",
    ),
    Rule(
        "reserved-volume",
        "!has(self.volumes) || self.volumes.all(volume, !(volume.name in "
        f"['{VOLUME_RUN}', '{VOLUME_PODINFO}', '{VOLUME_CHECKPOINTS}', '{VOLUME_CREDENTIALS}']))",
        f"a volume may not be named {VOLUME_RUN}, {VOLUME_PODINFO}, {VOLUME_CHECKPOINTS} or "
        f"{VOLUME_CREDENTIALS}: the operator adds them; choose another name",
    ),
    Rule(
        "host-pid",
        "!has(self.hostPID) || !self.hostPID",
        "hostPID is not allowed, because a restart kills every process its container can see: "
        "remove it",
    ),
)

TEMPLATE_METADATA: Final = (
    Rule(
        "reserved-labels",
        f"(!has(self.labels) || self.labels.all(key, !key.startsWith('{GROUP}/'))) && "
        f"(!has(self.annotations) || self.annotations.all(key, !key.startsWith('{GROUP}/')))",
        f"labels and annotations under {GROUP}/ are the operator's own: remove them from the "
        "template",
    ),
)


ALL_RULES: Final = (
    *JOB,
    *REPLICAS,
    *STORE_URL,
    *STORE_ENDPOINT,
    *UPLOAD_RATE,
    *CA_BUNDLE,
    *CHECKPOINT_PATH,
    *INCLUDE,
    *OUTPUTS,
    *RUN_ID,
    *TAKE_OVER,
    *RESUME_FROM,
    *RESUME_ARGS,
    *PROBE_COMMAND,
    *REQUIRED_KEYS,
    *CHECKPOINT,
    *RETENTION,
    *BACKOFF,
    *SPEC,
    *POD_SPEC,
    *TEMPLATE_METADATA,
)
