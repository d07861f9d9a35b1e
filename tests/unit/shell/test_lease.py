"""Who works of several replicas: taken, kept, given up, and never two at once on one's word."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from rtj_operator.shell.api import ApiError
from rtj_operator.shell.lease import Election


@dataclass
class FakeLeases:
    """One Lease with versions, as the API server keeps it; `broken` answers nothing."""

    spec: dict[str, Any] = field(default_factory=dict)
    version: int = 1
    broken: bool = False
    hangs: bool = False

    async def get_lease(self, *, namespace: str, name: str) -> dict[str, Any]:
        if self.hangs:
            await asyncio.Event().wait()
        if self.broken:
            raise ApiError(status=0, message="not reached")
        meta = {"namespace": namespace, "name": name, "resourceVersion": str(self.version)}
        return {"metadata": meta, "spec": dict(self.spec)}

    async def put_lease(self, lease: dict[str, Any]) -> dict[str, Any]:
        if self.broken:
            raise ApiError(status=0, message="not reached")
        if lease["metadata"]["resourceVersion"] != str(self.version):
            raise ApiError(status=409, reason="Conflict")
        self.version += 1
        self.spec = dict(lease["spec"])
        return await self.get_lease(namespace="sys", name="rtj")


@dataclass
class Time:
    """Moves only when somebody sleeps; `then` happens after so many sleeps."""

    now: float = 1000.0
    slept: int = 0
    then: dict[int, Callable[[], None]] = field(default_factory=dict)
    most: int = 50

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += 1
        self.then.get(self.slept, lambda: None)()
        assert self.slept < self.most, "it sleeps for ever"
        await asyncio.sleep(0)


def election(leases: FakeLeases, time: Time, *, holder: str = "a") -> Election:
    sleep: Callable[[float], Awaitable[None]] = time.sleep
    return Election(
        leases=leases,
        namespace="sys",
        name="rtj",
        holder=holder,
        clock=time,
        wall=lambda: 0.0,
        sleep=sleep,
    )


async def test_the_lease_that_the_chart_made_is_taken_at_once() -> None:
    leases, time = FakeLeases(), Time()
    await election(leases, time).won()
    assert time.slept == 0
    assert leases.spec == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 10,
        "acquireTime": "1970-01-01T00:00:00.000000Z",
        "renewTime": "1970-01-01T00:00:00.000000Z",
        "leaseTransitions": 1,
    }


async def test_one_that_is_renewed_is_left_alone_and_one_that_is_not_is_taken() -> None:
    leases, time = FakeLeases({"holderIdentity": "b", "leaseDurationSeconds": 10}), Time()

    def renew() -> None:
        leases.version += 1

    time.then = dict.fromkeys(range(1, 20), renew)  # b lives for 38 s
    await election(leases, time).won()
    assert leases.spec["holderIdentity"] == "a"
    assert time.now >= 1000 + 38 + 10, "its whole duration has passed since b was seen to renew"


async def test_a_duration_that_the_holder_promised_is_waited_for() -> None:
    leases, time = FakeLeases({"holderIdentity": "b", "leaseDurationSeconds": 60}), Time()
    await election(leases, time).won()
    assert time.now >= 1060


async def test_of_two_that_take_it_at_once_one_stands_by() -> None:
    leases, time = FakeLeases(), Time()

    def other_was_first() -> None:
        leases.spec, leases.version = {"holderIdentity": "b"}, leases.version + 1

    read = leases.get_lease

    async def get_lease(**of: str) -> dict[str, Any]:
        found = await read(**of)
        if time.slept == 0:
            other_was_first()
        return found

    leases.get_lease = get_lease  # type: ignore[method-assign]
    time.most = 4
    with pytest.raises(AssertionError, match="for ever"):
        await election(leases, time).won()
    assert leases.spec == {"holderIdentity": "b"}


async def test_the_holder_renews_and_stops_when_it_is_anothers() -> None:
    leases, time = FakeLeases({"holderIdentity": "a"}), Time()

    def taken() -> None:
        leases.spec, leases.version = {"holderIdentity": "b"}, leases.version + 1

    time.then = {5: taken}
    await election(leases, time).lost()
    assert time.slept == 5
    assert leases.spec == {"holderIdentity": "b"}


@pytest.mark.parametrize("how", ["broken", "hangs"])
async def test_the_holder_gives_up_before_another_may_take_it(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases, time = FakeLeases({"holderIdentity": "a"}), Time()
    monkeypatch.setattr("rtj_operator.shell.lease.GIVE_UP_SHARE", 0.7 if how == "broken" else 0.01)
    setattr(leases, how, True)
    await election(leases, time).lost()
    assert time.now - 1000 < 10, "a taker waits for the whole duration"


async def test_an_outage_shorter_than_that_is_survived() -> None:
    leases, time = FakeLeases({"holderIdentity": "a"}), Time()
    time.then = {
        1: lambda: setattr(leases, "broken", True),
        3: lambda: setattr(leases, "broken", False),
        10: lambda: setattr(leases, "spec", {"holderIdentity": "b"}),
    }
    await election(leases, time).lost()
    assert time.slept == 10


async def test_what_is_given_back_is_free_at_once_and_anothers_is_not_touched() -> None:
    leases, time = FakeLeases({"holderIdentity": "a"}), Time()
    await election(leases, time).give_back()
    assert leases.spec["holderIdentity"] == ""
    await election(leases, time, holder="b").won()
    await election(leases, time).give_back()
    assert leases.spec["holderIdentity"] == "b"
    leases.broken = True
    await election(leases, time, holder="b").give_back()


async def test_silence_is_counted_from_the_last_answer() -> None:
    leases, time = FakeLeases(), Time()
    chosen = election(leases, time)
    time.now += 30
    assert chosen.silent_seconds() == 30
    await chosen.won()
    assert chosen.silent_seconds() == 0


async def test_what_keeps_every_replica_from_leading_is_told_until_it_is_mended() -> None:
    leases, time = FakeLeases(broken=True), Time()
    chosen = election(leases, time)
    told: list[str | None] = []

    def mend() -> None:
        told.append(chosen.trouble)
        leases.broken = False

    time.then = {3: mend}
    await chosen.won()
    assert told == ["no Lease sys/rtj: not reached"]
    assert chosen.trouble is None
