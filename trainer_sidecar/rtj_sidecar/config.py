"""Where this sidecar is and what it was told at its start. Frozen; read once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from rtj_api import contract
from rtj_api.wire import SidecarConfig, SuperviseConfig

HOLD_TERM_SECONDS = 5.0  # in which the word of a stop step may come


class ConfigError(ValueError):
    """The environment does not describe a sidecar; the message names variable and remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """`root` is what the trainer's container sees as /rtj, `directive` the annotation's file."""

    config: SidecarConfig
    pod_uid: str
    pod_name: str
    root: Path
    directive: Path
    bind: str | None = None  # None: every interface
    address: str | None = None  # of this pod, as its peers see it
    port: int = contract.PORT_STATUS

    @property
    def path(self) -> Path:
        return Path(self.config.path)

    @property
    def holds(self) -> bool:
        """Whether this rank's sidecar holds the fence, names saves and commits."""
        return self.config.rank == 0

    @property
    def for_supervisor(self) -> SuperviseConfig:
        """What its supervisor has to know before any directive."""
        return SuperviseConfig(
            path=self.config.path,
            trainer_grace_seconds=self.config.trainer_grace_seconds,
            post_start=self.config.post_start,
            hold_term_seconds=HOLD_TERM_SECONDS if self.config.obeys_stop else 0.0,
        )

    @property
    def touches_directory(self) -> bool:
        """On a directory that all pods share, rank 0's sidecar alone looks and writes."""
        return self.holds or not self.config.shared_directory


def read_site(
    environment: Mapping[str, str] = os.environ,
    *,
    root: Path | None = None,
    podinfo: Path | None = None,
    bind: str | None = None,
) -> Site:
    """The site from RTJ_CONFIG and the pod's facts. Raises ConfigError."""
    text = environment.get(contract.ENV_CONFIG)
    if not text:
        raise ConfigError(
            f"{contract.ENV_CONFIG} is not set: it holds the JSON of a SidecarConfig; the operator "
            "sets it in a pod, see docs/sidecar.md for a start by hand"
        )
    try:
        config = SidecarConfig.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{contract.ENV_CONFIG}: {where}: {first['msg']}") from error
    if not config.path.startswith("/"):
        raise ConfigError(f"{contract.ENV_CONFIG}: path {config.path!r} is not absolute")
    return Site(
        config=config,
        pod_uid=environment.get(contract.ENV_POD_UID) or "local",
        pod_name=environment.get(contract.ENV_POD_NAME) or f"{config.job}-{config.rank}",
        root=root or Path(contract.MOUNT_RUN),
        directive=(podinfo or Path(contract.MOUNT_PODINFO)) / "directive",
        bind=bind,
        address=environment.get(contract.ENV_POD_IP) or bind,
        port=config.status_port,
    )
