"""Rules on `checkpoint`. Must never hold a rule without a remedy in its message."""

from __future__ import annotations

from typing import Final

from rtj_api.contract import (
    ENV_ATTEMPT,
    ENV_CHECKPOINT_DIR,
    ENV_RESUME_CHECKPOINT,
    ENV_RESUME_STEP,
    MOUNT_CA,
    MOUNT_CREDENTIALS,
    MOUNT_PODINFO,
    MOUNT_RUN,
)
from rtj_api.rules.steering import FORMS
from rtj_api.rules.steering import RUN_ID as RUN_ID_PATTERN
from rtj_api.stores import PLACE_PATTERN
from rtj_api.validations.rule import SAME_RUN, Rule, immutable

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
    immutable("checkpoint.path", remedy=SAME_RUN),
)


INCLUDE: Final = (
    Rule(
        "include-relative",
        "self.all(glob, !glob.startsWith('/') && !('..' in glob.split('/')))",
        "patterns in include are relative to checkpoint.path and may not contain '..': write "
        "model_*.npz, not /checkpoints/model_*.npz",
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
        f"checkpoint.store cannot be added or removed: {SAME_RUN}",
    ),
    Rule(
        "run-id-immutable",
        "has(self.runID) == has(oldSelf.runID) && (!has(self.runID) || "
        "self.runID == oldSelf.runID)",
        f"runID cannot be changed: {SAME_RUN}",
    ),
)


INTERVAL: Final = (
    Rule(
        "interval-one",
        "!(has(self.seconds) && (has(self.mttiFraction) || has(self.maxSeconds)))",
        "interval.seconds is the interval itself, so mttiFraction and maxSeconds would do nothing: "
        "remove them, or remove seconds",
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


LOCAL_SIZE: Final = (
    Rule(
        "local-size",
        "type(self) == int ? self >= 1048576 : "
        "quantity(string(self)).compareTo(quantity('1Mi')) >= 0",
        "local.size is below 1Mi, which holds no save: write bytes, such as 200Gi, or leave it out",
    ),
)


MAX_RESTORE: Final = (
    Rule(
        "max-restore",
        "type(self) == int ? self >= 1 : quantity(string(self)).compareTo(quantity('1')) >= 0",
        "local.maxRestoreBytes is below 1, with which nothing could ever be restored: write bytes, "
        "such as 500Gi, or leave it out",
    ),
)


LOCAL: Final = (
    Rule(
        "local-memory",
        "!has(self.medium) || self.medium != 'Memory' || has(self.size)",
        "local.medium Memory needs local.size: what is written there counts against the memory "
        "limits of the pod's containers, so it must have a bound",
    ),
)
