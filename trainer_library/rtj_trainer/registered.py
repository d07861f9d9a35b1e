"""What must survive: the script's objects, their states, and which of a save's parts fit them.

An object offers `state_dict` and `load_state_dict`; wrappers of PyTorch that only add a prefix to
the names are looked through, so that a save does not depend on them. Must never keep a state: it
asks for it when it is wanted.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable

from rtj_trainer.imported import imported
from rtj_trainer.loaders import has_state

RESERVED = (
    "rng",
    "dataloader",
    "kept",
    "step",
    "epoch",
    "samples",
    "loss",
    "rtj_trainer",
    "torch_version",
)
_WRAPPERS = (
    ("torch.nn.parallel", "DistributedDataParallel", "module"),
    ("torch.nn.parallel", "DataParallel", "module"),
    ("torch._dynamo.eval_frame", "OptimizedModule", "_orig_mod"),
)


@dataclass(frozen=True)
class Kept:
    """Something without `state_dict`, such as a JAX key: how to read it and how to put it back.

    `get` gives containers of numbers, texts and tensors (an array: `list(map(int, key))`); `put`
    is called with the same.
    """

    get: Callable[[], Any]
    put: Callable[[Any], None]

    def state_dict(self) -> Any:
        return self.get()

    def load_state_dict(self, state: Any) -> None:
        self.put(state)


class Gradients:
    """The gradients that a model has gathered, for a step that is cut off within its parts."""

    def __init__(self, model: Any) -> None:
        self.model = unwrapped(model)

    def state_dict(self) -> dict[str, Any]:
        named = self.model.named_parameters()
        return {name: p.grad for name, p in named if p.grad is not None}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, parameter in self.model.named_parameters():
            grad = state.get(name)
            parameter.grad = None if grad is None else grad.to(parameter.device).clone()


def checked(things: Mapping[str, Any]) -> dict[str, Any]:
    """The objects by name, without those that are None. Raises TypeError for one without a state,
    ValueError for a name that the save itself needs, and for FullyShardedDataParallel."""
    kept: dict[str, Any] = {}
    for name, thing in things.items():
        if thing is None:
            continue
        if name in RESERVED:
            raise ValueError(f"{name!r} is a name that the save itself needs: choose another")
        if _has_fsdp1(thing):
            raise ValueError(
                f"{name} is wrapped in FullyShardedDataParallel, whose state cannot be saved by "
                "shard: wrap it by torch.distributed.fsdp.fully_shard"
            )
        if not has_state(thing):
            generator = callable(getattr(thing, "get_state", None))
            if not (generator and callable(getattr(thing, "set_state", None))):
                raise TypeError(
                    f"{name} is a {type(thing).__name__} without state_dict and load_state_dict: "
                    f"wrap it, {name}=Kept(get=..., put=...)"
                )
            thing = Kept(get=thing.get_state, put=thing.set_state)
        kept[name] = thing
    return kept


def _has_fsdp1(thing: Any) -> bool:
    fsdp1 = getattr(imported("torch.distributed.fsdp"), "FullyShardedDataParallel", None)
    if not inspect.isclass(fsdp1):
        return False
    modules = thing.modules() if callable(getattr(thing, "modules", None)) else (thing,)
    return any(isinstance(module, fsdp1) for module in modules)


def unwrapped(thing: Any) -> Any:
    """What DistributedDataParallel and torch.compile have wrapped; all else as it is."""
    for module_name, class_name, attribute in _WRAPPERS:
        wrapper = getattr(imported(module_name), class_name, None)
        if inspect.isclass(wrapper) and isinstance(thing, wrapper):
            return unwrapped(getattr(thing, attribute))
    return thing


def states_of(things: Mapping[str, Any]) -> dict[str, Any]:
    """The state of each object now; tensors are the live ones, not copies."""
    return {name: unwrapped(thing).state_dict() for name, thing in things.items()}


def own_states_of(things: Mapping[str, Any]) -> dict[str, Any]:
    """Of those that each rank has for itself: generators, and what is `Kept`."""
    return states_of({name: thing for name, thing in things.items() if isinstance(thing, Kept)})


def without_numpy(value: Any) -> Any:
    """A scalar of NumPy as Python's own, all else as it is."""
    generic: Any = getattr(imported("numpy"), "generic", None)
    return value.item() if generic is not None and isinstance(value, generic) else value


def not_plain(value: Any, *, at: str = "") -> str:
    """Where a state holds something that can only be loaded by executing it; "" if nowhere.
    Scalars of NumPy are saved as Python's own, so they may stay."""
    torch = imported("torch")
    value = without_numpy(value)
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return "" if type(value).__module__ == "builtins" else f"{at}: {type(value).__name__}"
    if torch is not None and isinstance(value, (torch.Tensor, torch.Size, torch.dtype)):
        return ""
    if isinstance(value, Mapping) and type(value).__name__ in ("dict", "OrderedDict"):
        pairs = [(f"{at}.{key} (the key)", key) for key in value]
        pairs += [(f"{at}.{key}", item) for key, item in value.items()]
    elif type(value) in (list, tuple, set):
        pairs = [(f"{at}[{number}]", item) for number, item in enumerate(value)]
    else:
        return f"{at}: {type(value).__module__}.{type(value).__name__}"
    for place, item in pairs:
        if found := not_plain(item, at=place):
            return found
    return ""


def put_back(
    things: Mapping[str, Any], save: Mapping[str, Any], *, rank: int
) -> tuple[list[str], list[str]]:
    """Loads each object's part of a save; where ranks have one each (`kept`), this rank's.
    Returns the names (restored, not in the save)."""
    each = save.get("kept") or []
    own = each[rank] if rank < len(each) else {}
    done, missing = [], []
    for name, thing in things.items():
        if name not in save:
            missing.append(name)
            continue
        unwrapped(thing).load_state_dict(own.get(name, save[name]))
        done.append(name)
    return done, missing
