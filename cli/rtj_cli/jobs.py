"""A job as the API server holds it, read once: what every view of it is made from. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from rtj_api import contract
from rtj_api.status import Condition, ConditionType, Status, parse_time

Raw = Mapping[str, Any]
_UNSHOWN = ("managedFields", "resourceVersion")


class UnreadableJob(Exception):
    """Its status is none that this version knows; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Seen:
    """`raw`: the object. `status`: empty where no operator has written one yet."""

    raw: Raw
    status: Status

    @property
    def name(self) -> str:
        return str(self.raw["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.raw["metadata"].get("namespace") or "default")

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def spec(self) -> Raw:
        return self.raw.get("spec") or {}

    @property
    def replicas(self) -> int:
        return int(self.spec.get("replicas") or 1)

    @property
    def is_suspended(self) -> bool:
        return bool(self.spec.get("suspend"))

    @property
    def run_id(self) -> str:
        return str((self.spec.get("checkpoint") or {}).get("runID") or self.full_name)

    @property
    def store_url(self) -> str | None:
        store = (self.spec.get("checkpoint") or {}).get("store")
        return None if not store else str(store.get("url"))

    @property
    def created_at(self) -> float | None:
        told = self.raw["metadata"].get("creationTimestamp")
        return None if told is None else float(parse_time(told))

    @property
    def is_looked_at(self) -> bool:
        """An operator has written a status."""
        return bool(self.raw.get("status"))

    @property
    def has_news(self) -> bool:
        """The spec is newer than what the operator has taken up."""
        generation = int(self.raw["metadata"].get("generation") or 0)
        return self.is_looked_at and generation > self.status.observed_generation

    def condition(self, kind: ConditionType) -> Condition | None:
        return self.status.condition(kind)

    @property
    def reason(self) -> str:
        """Why it runs or does not, as in the printed column."""
        running = self.condition(ConditionType.RUNNING)
        return "" if running is None else running.reason


def seen(raw: Raw) -> Seen:
    """Raises UnreadableJob."""
    try:
        return Seen(raw, Status.model_validate(raw.get("status") or {}))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(["status", *map(str, first["loc"])])
        name = raw["metadata"]["name"]
        raise UnreadableJob(
            f"{name}: {where}: {first['msg']}: written by a newer operator? Update rtj, or look "
            f"with `kubectl get {contract.SHORT_NAME} {name} -o yaml`"
        ) from None


def shown(raw: Raw) -> dict[str, Any]:
    """The object without what only the API server needs."""
    meta = {key: value for key, value in raw["metadata"].items() if key not in _UNSHOWN}
    return {**raw, "metadata": meta}
