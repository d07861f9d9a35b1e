"""How long `decide` waits for what. Operator-wide; what a user may set is in the job's spec.

Every wait of the decision core has its end here, in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    # directives
    directive_seen_seconds: float = 30.0  # a connected sidecar must have accepted its directive
    stopped_seconds: float = 60.0  # an older trainer must be gone, beyond its grace
    prepare_seconds: float = 600.0  # settling, scanning, claiming, listing
    import_seconds: float = 3600.0  # a save of another run was copied into this one
    restore_stall_seconds: float = 180.0  # no byte of a restore moved
    start_seconds: float = 60.0  # from the go until the supervisor says it runs
    # pods
    first_report_seconds: float = 180.0  # a running sidecar must have been heard once
    sidecar_down_seconds: float = 60.0  # the kubelet must have brought it back
    container_back_seconds: float = 5.0  # … and the trainer's container
    container_back_store_seconds: float = 45.0  # … in store mode: the kubelet backs off itself
    placement_seconds: float = 600.0  # half a gang may wait for the other half's nodes
    avoid_seconds: float = 90.0  # a pod that keeps off lost nodes may wait so long for another
    containers_made_seconds: float = 60.0  # then a pod without any container is shown as stuck
    create_retry_seconds: float = 15.0  # after the API server refused a pod
    spare_again_seconds: float = 60.0  # a spare that ended is not made anew sooner
    # an elastic gang
    grow_again_seconds: float = 60.0  # after a growth that failed, doubling with each in a row
    grow_most_seconds: float = 3600.0  # no such wait is longer
    grow_stop_seconds: float = 300.0  # a stop step for a growth must be reached in that time
    fetch_ahead_seconds: float = 600.0  # a pod that waits for a rank may fetch for so long first
    # reports and nodes
    report_fresh_seconds: float = 10.0  # older than this, a report is no ground for a fast path
    contact_lost_seconds: float = 8.0  # no byte from a sidecar: its connection is dead
    poll_seconds: float = 40.0  # no poll lasts longer: the operator was paused, or its clock set
    reports_unreachable_seconds: float = 30.0  # then the job is shown as Degraded
    lease_stale_seconds: float = 22.0  # kubelets renew every 10 s: two renewals missed
    stale_lease_share_limit: float = 0.5  # a share: above it, it is the API server
    steps_stopped_seconds: float = 3.0  # a step after the contact was lost by more than this
    unfenced_writer_seconds: float = 60.0  # for a lost writer, beside sidecars that do not fence
    settle_seconds: float = 0.1  # after an end was heard, for a save that was just finished
    # slow ranks
    straggler_seconds: float = 60.0  # a rank is slow for so long, and for 96 steps
    straggler_again_seconds: float = 6 * 3600.0  # after a move that has not helped
    # the end of a run
    early_exit_seconds: float = 900.0  # some ranks done, the others without a new step
    drain_stall_seconds: float = 120.0  # all done, the last save not yet durable
    release_seconds: float = 30.0  # pods may end by themselves before they are deleted
    # holds
    hold_retry_seconds: float = 30.0  # a hold that may end by itself looks again
    hold_keep_seconds: float = 300.0  # pods of a hold are kept that long, then the GPUs are freed
    # pace
    in_place_limit: int = 2  # a count: without progress, before all pods are made anew
    refresh_seconds: float = 30.0  # between writes that only show progress
    stage_seconds: float = 10.0  # between writes that only show the stages of a recovery
    look_again_seconds: float = 60.0  # safety net when nothing is awaited
