"""Who was killed for memory, in words. Pure."""

from __future__ import annotations

from rtj_api.wire import TrainerView

from rtj_operator.core.gang import Member

SIGKILL = 9


def was_killed_for_memory(member: Member, trainer: TrainerView) -> bool:
    """The kernel killed something of this trainer: it counted so, or it took the whole container
    and the container's own status says why."""
    if trainer.oom_kills > 0:
        return True
    container = member.pod.trainer if member.pod is not None else None
    if not trainer.container_restarted or container is None:
        return False
    return any(
        end is not None and end.reason == "OOMKilled"
        for end in (container.ended, container.last_end)
    )


def victim(trainer: TrainerView) -> str:
    """Which process that was, and what its limit is."""
    if trainer.container_restarted:
        who = "the kernel killed the whole container"
    elif trainer.signal == SIGKILL or trainer.exit_code == -SIGKILL:
        who = "the kernel killed the trainer itself"
    elif trainer.oom_kills == 1:
        who = "the kernel killed a process that the trainer had started (a data loader worker?)"
    else:
        who = f"the kernel killed {trainer.oom_kills} processes that the trainer had started"
    return f"{who} {limit(trainer)}"


def is_of_node(trainer: TrainerView) -> bool:
    """The kernel killed it for want of memory elsewhere: it was below its own limit."""
    return trainer.oom_of_node and trainer.oom_kills > 0 and not trainer.container_restarted


def limit(trainer: TrainerView) -> str:
    if is_of_node(trainer):
        return (
            "though its container was below its own limit: its node had no memory left. State "
            "resources.requests.memory that match the use of all pods there"
        )
    if trainer.memory_limit_bytes is None:
        return "at the container's memory limit"
    return f"at the container's memory limit of {trainer.memory_limit_bytes / 2**20:,.0f} MiB"
