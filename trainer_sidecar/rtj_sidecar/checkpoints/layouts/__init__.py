"""The layouts, one file each, the specific ones before the general. See `base.Layout`."""

from __future__ import annotations

from collections.abc import Sequence

from rtj_sidecar.checkpoints.layouts.accelerate import AccelerateLayout
from rtj_sidecar.checkpoints.layouts.base import Layout
from rtj_sidecar.checkpoints.layouts.composer import ComposerLayout
from rtj_sidecar.checkpoints.layouts.dcp import DcpLayout
from rtj_sidecar.checkpoints.layouts.dcp_hf import DcpHuggingFaceLayout
from rtj_sidecar.checkpoints.layouts.deepspeed import DeepSpeedLayout
from rtj_sidecar.checkpoints.layouts.dlrover import DlroverLayout
from rtj_sidecar.checkpoints.layouts.fastai import FastaiLayout
from rtj_sidecar.checkpoints.layouts.generic import GenericLayout
from rtj_sidecar.checkpoints.layouts.hf_trainer import HuggingFaceTrainerLayout
from rtj_sidecar.checkpoints.layouts.keras import KerasLayout
from rtj_sidecar.checkpoints.layouts.lightning import LightningLayout
from rtj_sidecar.checkpoints.layouts.megatron import MegatronLayout
from rtj_sidecar.checkpoints.layouts.nemo import NemoLayout
from rtj_sidecar.checkpoints.layouts.nvrx import NvrxLocalLayout
from rtj_sidecar.checkpoints.layouts.orbax import OrbaxLayout
from rtj_sidecar.checkpoints.layouts.safetensors import SafetensorsLayout
from rtj_sidecar.checkpoints.layouts.tf_checkpoint import TfCheckpointLayout
from rtj_sidecar.checkpoints.layouts.torchfile import TorchFileLayout
from rtj_sidecar.checkpoints.layouts.torchtune import TorchtuneLayout

AUTO = "auto"
GENERIC = "generic"


class UnknownLayoutError(ValueError):
    """`checkpoint.layout` names no layout; the message lists those that exist."""


def specific_layouts() -> tuple[Layout, ...]:
    """All but the generic one, in the order in which they may claim files."""
    inner = (HuggingFaceTrainerLayout(), MegatronLayout(), DeepSpeedLayout(), DcpLayout())
    return (
        DlroverLayout(inner=(*inner, TorchFileLayout())),
        NemoLayout(),
        AccelerateLayout(),
        HuggingFaceTrainerLayout(),
        MegatronLayout(),
        DeepSpeedLayout(),
        OrbaxLayout(),
        LightningLayout(),
        NvrxLocalLayout(),
        DcpHuggingFaceLayout(),
        ComposerLayout(),
        TorchtuneLayout(),
        FastaiLayout(),
        TfCheckpointLayout(),
        KerasLayout(),
        DcpLayout(),
        TorchFileLayout(),
        SafetensorsLayout(),
    )


def layouts_for(*, layout: str = AUTO, include: Sequence[str] = ()) -> tuple[Layout, ...]:
    """The layouts that `checkpoint.layout` and `.include` select, first match first.

    `auto`: all specific ones, then the generic one for what `include` names. Raises
    UnknownLayoutError.
    """
    generic = GenericLayout(include=tuple(include))
    if layout == GENERIC:
        return (generic,)
    known = specific_layouts()
    chosen = known if layout == AUTO else tuple(found for found in known if found.name == layout)
    if not chosen:
        names = ", ".join([AUTO, *(found.name for found in known), GENERIC])
        raise UnknownLayoutError(f"checkpoint.layout {layout!r} is unknown; use one of: {names}")
    return (*chosen, generic) if include else chosen


def layout_named(name: str) -> Layout | None:
    """The layout that a `FoundSave.layout` or a ship's record names; None for one of a newer
    version. Use its `union_gate` on the ranks' parts."""
    return next((found for found in all_layouts() if found.name == name), None)


def all_layouts() -> tuple[Layout, ...]:
    """Every layout that there is, the generic one last."""
    return (*specific_layouts(), GenericLayout())
