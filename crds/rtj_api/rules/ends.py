"""Of which kind an end of a trainer is, and where it may come from: for the operator, `rtj run`.

Memory comes first, then the last words, then the exit code. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rtj_api.rules import exits, signatures
from rtj_api.rules.blame import OUT_OF_MEMORY
from rtj_api.rules.origins import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """`alike`: equal for ends of one kind. `found`: the signature that says so, if one does."""

    alike: str
    origin: Origin
    found: signatures.Found | None = None
    last: str | None = None


def kind_of(
    end: exits.Exit, *, tail: Sequence[str], error: str | None, out_of_memory: bool = False
) -> Kind:
    """`tail`: its last lines, oldest first. `error`: what torchelastic wrote of it."""
    lines = [*tail, *([error] if error else [])]
    last = error or next((line for line in reversed(tail) if line.strip()), None)
    found = signatures.find(lines)
    if out_of_memory:
        return Kind(alike=OUT_OF_MEMORY, origin=Origin.PROGRAM, found=found, last=last)
    if found is not None:
        return Kind(alike=found.name, origin=found.origin, found=found, last=last)
    said = f": {signatures.fingerprint(last)}" if last else ""
    return Kind(alike=f"{exits.label(end)}{said}", origin=exits.origin_of(end), last=last)
