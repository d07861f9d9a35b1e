"""What a person must know to use one framework here: `docs/frameworks.md` is made of these.

Words only. Each sentence states what the code of the layout does or what was tried with the real
library (`evidence`); a guide must never promise more.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Guide:
    """One way to use one layout. A layout has several where products differ in the flag only."""

    products: tuple[str, ...]
    """Names as users know them; the rows that this guide answers for."""
    recognised_by: str
    """The files and names that make a listing a save of this layout."""
    marker: str
    """What the framework writes last, and what of it is checked; or that it writes nothing."""
    container: str
    """What of the bytes is proved, and what cannot be."""
    set_rule: str
    """When all files of all ranks are there."""
    metadata: str
    """Which facts are read, and from where; always without executing anything."""
    resumes: str
    """How the framework finds the newest save by itself, or the one flag, argument or environment
    variable that is needed otherwise, ready to paste."""
    full_resume_needs: str
    """What must be in the save so that training goes on as if nothing had happened."""
    on_own_disks: str
    """Where every pod has a disk of its own: what each rank needs, or that a shared volume is
    needed."""
    evidence: str
    """The library and version that it was tried with, and how; or that it is from source only."""
