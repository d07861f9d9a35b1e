"""`rtj` against a real API server, with the few rights of somebody who may only look."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.crd_jobs import job
from kit.kube import Kube
from kit.person import Person, onlooker, owner
from kit.scenarios import SCENARIOS
from rtj_api import contract

KIND = f"{contract.PLURAL}.{contract.GROUP}"


@pytest.fixture(scope="module")
def looker(space: Kube, tmp_path_factory: pytest.TempPathFactory) -> Person:
    return onlooker(space, tmp_path_factory.mktemp("onlooker"))


@pytest.fixture
def seen_job(space: Kube) -> dict[str, Any]:
    """A job whose status an operator has written, in the server's own form."""
    space.run("delete", KIND, "gpt", "--ignore-not-found")
    space.apply(job(replicas=2))
    status = SCENARIOS["crash_in_place"].run().world.state.dump()
    words = ("patch", KIND, "gpt", "--subresource=status", "--type=merge", "-p")
    space.run(*words, json.dumps({"status": status}))
    return space.get(KIND, "gpt")


def test_whoever_may_only_look_sees_all_of_it(
    seen_job: dict[str, Any], looker: Person, space: Kube, tmp_path: Path
) -> None:
    name = seen_job["metadata"]["name"]  # jobs of other tests may stand beside it
    row = next(
        each
        for each in looker.rtj("list", "-o", "json").json()
        if name in (each.get("name"), (each.get("metadata") or {}).get("name"))
    )
    assert (row["name"], row["step"], row["durableStep"]) == ("gpt", 17, 16)
    assert f"{space.namespace}/gpt trains: attempt 2" in looker.rtj("why", "gpt").out
    assert "rank 1 on node1, exit code 137" in looker.rtj("timeline", "gpt").out
    assert "goodput" in looker.rtj("describe", f"{space.namespace}/gpt").out
    assert looker.rtj("describe", "gpt", "-o", "json").json()["status"] == seen_job["status"]
    assert "no event is left" in looker.rtj("events", "gpt").words
    assert "has no pods" in looker.rtj("top", "gpt").words
    looker.rtj("wait", "gpt", "--for", "Durable=16")
    looker.rtj("wait", "gpt", "--for", "Durable=17", "--timeout", "0.5", code=6)
    page = looker.rtj("report", "gpt", "--no-store", "--to", "-")
    assert "which holds each decision" in page.words
    assert page.out.startswith("<!doctype html>")
    looker.rtj("debug-bundle", "gpt", "--to", tmp_path / "bundle.tar.gz")


def test_whoever_may_only_look_changes_nothing(
    seen_job: dict[str, Any], looker: Person, space: Kube
) -> None:
    for words in (("suspend",), ("restart",), ("resume", "--from", "16"), ("allow-scratch",)):
        refused = looker.rtj(words[0], "gpt", *words[1:], code=5)
        assert "auth can-i patch resumabletrainingjobs" in refused.words
    assert "auth can-i" in looker.rtj("list", "-A", code=5).words
    assert "NotFound" in looker.rtj("why", "nobody", code=3).words
    now = space.get(KIND, "gpt")
    assert now["metadata"]["resourceVersion"] == seen_job["metadata"]["resourceVersion"]


def test_whoever_may_change_jobs_changes_them(seen_job: dict[str, Any], space: Kube) -> None:
    durable = seen_job["status"]["checkpoint"]["lastDurableName"]
    person, name = owner(space), f"{space.namespace}/gpt"
    person.rtj("suspend", name)
    assert space.get(KIND, "gpt")["spec"]["suspend"] is True
    person.rtj("resume", name, "--from", 16, "--no-wait")
    now = space.get(KIND, "gpt")
    assert now["spec"]["suspend"] is False
    wish = json.loads(now["metadata"]["annotations"][contract.ANNOTATION_REQUEST])
    assert (wish["action"], wish["save"]) == ("resume-from", durable)
    person.rtj("restart", name, "--no-wait")
    again = space.get(KIND, "gpt")["metadata"]["annotations"][contract.ANNOTATION_REQUEST]
    assert json.loads(again)["action"] == "restart"
    assert json.loads(again)["id"] != wish["id"]
