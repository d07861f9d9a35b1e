"""Tells at once what the facts of a new save say against resuming from it, not only when needed.

Must never hold a save back: it is pinned and shipped all the same.
"""

from __future__ import annotations

import time

from rtj_api.reasons import Reason
from rtj_api.wire import Verdict

from rtj_sidecar.checkpoints import required
from rtj_sidecar.localsave import LocalSave
from rtj_sidecar.runs.unfit import against
from rtj_sidecar.station import Station

KEY = "required-keys"


def tell_unfit(at: Station, local: LocalSave) -> None:
    """An event for one that must not be resumed from; Degraded where that cannot be known."""
    facts, patterns = local.record.facts, at.site.config.required_keys
    found = against(facts.facts, required=patterns)
    if found is None and facts.facts.get("loss_not_finite"):
        reason = str(Reason.CHECKPOINT_LOSS_NOT_FINITE)
        found = (reason, f"{facts.root_key} states a loss that is not finite: it is suspect")
    if found is not None:
        at.reporter.add_verdict(
            Verdict(
                name=f"{facts.root_key}@{local.pin.fingerprint[:8]}",
                step=facts.step,
                reason=found[0],
                message=f"step {facts.step} on rank {at.site.config.rank}: {found[1]}",
                at=time.time(),
            )
        )
    told = facts.facts.get(required.FACT)
    files = required.unread(told if isinstance(told, dict) else None, patterns=patterns)
    if files is None:
        at.reporter.heal(KEY)
        return
    at.reporter.degrade(
        KEY,
        Reason.REQUIRED_KEYS_UNREAD,
        f"checkpoint.validation.requiredKeys cannot be checked on rank {at.site.config.rank}: the "
        f"names in {files} cannot be read without executing it. Use a probe "
        "(checkpoint.validation.probe) instead",
        retrying=False,
    )
