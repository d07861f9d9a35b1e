"""What a pod's sidecar is told of its job, in the environment it starts with.

Pure. Must never hold a credential.
"""

from __future__ import annotations

from rtj_api import contract, wire
from rtj_api.rules.steering import masked
from rtj_api.v1alpha1 import (
    BestMode,
    JobSpec,
    OnDivergence,
    OnDrift,
    OnHang,
    Retention,
    StackSignal,
    StopBy,
    Thin,
    VerifyResume,
)

from rtj_operator.core import quantities
from rtj_operator.core.mounts import Sharing
from rtj_operator.core.pod_facts import (
    Owner,
    Parts,
    PodSettings,
    is_fenced,
    is_on_host,
    is_shared,
    run_id,
    trainer_grace_seconds,
)
from rtj_operator.core.probes import post_start
from rtj_operator.core.template import Manifest

MAX_WORDS, MAX_WORD = 64, 256


def _words(trainer: Manifest) -> list[str]:
    """What the trainer is started with, for people who compare two jobs: no secrets, no essays."""
    words = [*(trainer.get("command") or []), *(trainer.get("args") or [])]
    return [word[:MAX_WORD] for word in masked([str(word) for word in words])[:MAX_WORDS]]


def desired_config(
    spec: JobSpec,
    *,
    owner: Owner,
    rank: int,
    made_in: int,
    port: int,
    parts: Parts,
    settings: PodSettings,
    spare: int | None = None,
) -> wire.SidecarConfig:
    checkpoint, store = spec.checkpoint, spec.checkpoint.store
    kind = parts.checkpoint.sharing if parts.checkpoint is not None else Sharing.POD
    return wire.SidecarConfig(
        cluster_uid=settings.cluster_uid,
        job_uid=owner.uid,
        namespace=owner.namespace,
        job=owner.name,
        rank=rank,
        spare=spare,
        made_in=made_in,
        image=parts.pod["containers"][parts.trainer].get("image"),
        command=_words(parts.pod["containers"][parts.trainer]),
        framework=spec.framework,
        procs_per_replica=parts.procs,
        procs_stated=spec.procs_per_replica is not None,
        run_id=run_id(spec, owner=owner),
        path=checkpoint.path,
        layout=checkpoint.layout,
        include=list(checkpoint.include),
        store_url=store.url if store else None,
        store_endpoint=store.endpoint if store else None,
        store_region=store.region if store else None,
        store_ca_file=contract.FILE_CA if store and store.ca_bundle else None,
        store_credentials_dir=(
            contract.MOUNT_CREDENTIALS if store and store.credentials_secret else None
        ),
        max_upload_bytes_per_second=(
            quantities.parsed(store.max_upload_bytes_per_second) if store else None
        ),
        resume_args=list(checkpoint.resume_args),
        on_existing_run=checkpoint.on_existing_run,
        drain_seconds=spec.sidecar.drain_seconds,
        trainer_grace_seconds=trainer_grace_seconds(spec),
        hang_timeout_seconds=spec.recovery.hang.timeout_seconds,
        restarts_hung=spec.recovery.hang.on_hang == OnHang.RESTART,
        stack_signal=_number(spec.recovery.hang.stack_signal),
        obeys_stop=spec.recovery.stop.by != StopBy.NOTHING,
        stop_signal=_STOP_SIGNALS.get(spec.recovery.stop.by),
        verify_resume=_verify(spec.recovery.verify_resume),
        mirror=checkpoint.local.mirror,
        keep_local=checkpoint.local.keep,
        max_restore_bytes=quantities.parsed(checkpoint.local.max_restore_bytes),
        keep_last=checkpoint.retention.keep_last,
        keep=_keep(checkpoint.retention, has_store=store is not None),
        status_port=port,
        shared_directory=is_shared(spec, kind),
        fenced_directory=is_fenced(kind),
        keeps_in_directory=store is None,
        pod_volume=parts.checkpoint is None or parts.checkpoint.ends_with_pod,
        pod_volume_bytes=(
            parts.checkpoint.limit_bytes
            if parts.checkpoint
            else quantities.parsed(checkpoint.local.size)
        ),
        outputs=list(spec.outputs),
        rendezvous_told=is_on_host(spec),
        post_start=post_start(parts.pod["containers"][parts.trainer]),
        validation_level=checkpoint.validation.level,
        required_keys=list(checkpoint.validation.required_keys),
    )


_STOP_SIGNALS = {StopBy.SIGTERM: 15, StopBy.SIGUSR1: 10}


def _number(wish: StackSignal | None) -> int | None:
    """Of Linux, whatever this operator runs on."""
    return None if wish is None else {StackSignal.SIGUSR1: 10, StackSignal.SIGUSR2: 12}[wish]


def _verify(wish: VerifyResume) -> wire.VerifyResume:
    return wire.VerifyResume(
        stop_on_divergence=wish.on_divergence != OnDivergence.REPORT,
        stop_on_drift=wish.on_drift == OnDrift.HOLD,
    )


def _keep(retention: Retention, *, has_store: bool) -> wire.KeepRules:
    best = retention.keep_best
    # On the volume that the trainer writes to every save that is kept takes its room.
    thin = retention.thin or (Thin.GEOMETRIC if has_store else Thin.NONE)
    return wire.KeepRules(
        every=retention.keep_every,
        best_metric=best.metric if best is not None else None,
        best_highest=best is not None and best.mode == BestMode.MAX,
        best_count=best.count if best is not None else 1,
        thin=thin == Thin.GEOMETRIC,
        archive_after_seconds=retention.archive_after_seconds,
        archive_class=retention.archive_class,
    )
