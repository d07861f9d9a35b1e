"""Rules on the pod template. Must never hold a rule without a remedy in its message."""

from __future__ import annotations

from typing import Final

from rtj_api.contract import (
    CONTAINER_SIDECAR,
    CONTAINER_TRAINER,
    GROUP,
    VOLUME_CHECKPOINTS,
    VOLUME_CREDENTIALS,
    VOLUME_PODINFO,
    VOLUME_RUN,
)
from rtj_api.validations.rule import Rule

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
