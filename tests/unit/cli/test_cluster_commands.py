"""The commands on jobs: what they ask of kubectl, how they answer, what they end with."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from kit.podlike import ENVIRONMENT
from kit.scenarios import SCENARIOS
from kit.stub_kubectl import StubKubectl, job_of
from rtj_api import contract
from rtj_api.status import LastRequest, Status

Rtj = Callable[..., Any]


@pytest.fixture(scope="module")
def running() -> Status:
    return SCENARIOS["crash_in_place"].run().world.state


def answered(status: Status, result: str) -> Status:
    last = LastRequest(id="rtj-00000001", action="restart", at=1.0, result=result)
    return status.model_copy(update={"last_request": last})


def test_list_in_every_form(rtj: Rtj, cluster: StubKubectl, running: Status) -> None:
    cluster.job(job_of(running))
    table = rtj("list").out
    assert "TrainerSignaled" not in table
    for word in ("gpt", "Running", "Training", "16", "17", "68.8 %"):
        assert word in table, word
    (row,) = json.loads(rtj("list", "-o", "json").out)
    assert (row["step"], row["durableStep"], row["unsavedSteps"]) == (17, 16, 1)
    assert yaml.safe_load(rtj("list", "-o", "yaml").out)[0] == row
    assert rtj("list", "-o", "name").out == f"{contract.SINGULAR}.{contract.GROUP}/gpt\n"
    assert "ns" in rtj("list", "-A", "--wide").out
    assert "--all-namespaces" in cluster.asked()[-1]


def test_no_colour_where_it_is_not_wanted(
    rtj: Rtj, cluster: StubKubectl, running: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.job(job_of(running))
    for words in (("list",), ("why", "gpt"), ("describe", "gpt"), ("timeline", "gpt")):
        said = rtj(*words)
        assert "\x1b" not in said.out + said.words
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[3" not in rtj("list").out


def test_a_trainers_words_order_the_terminal_nothing(
    rtj: Rtj, cluster: StubKubectl, running: Status
) -> None:
    """Its last line clears the screen, turns the reading round, and begins a line of its own."""
    assert running.current is not None
    words = "killed\x1b[2J\x9b31m\u202e\rall is well"
    current = running.current.model_copy(update={"message": words})
    cluster.job(job_of(running.model_copy(update={"current": current})))
    told = ""
    for command in ("list", "why", "describe", "timeline"):
        said = rtj(command, *(() if command == "list" else ("gpt",)))
        assert not set("\x1b\x9b\u202e\r") & set(said.out + said.words), command
        told += said.out
    assert "killed\\x1b[2J\\x9b31m\\u202e\\rall is well" in told
    assert json.loads(rtj("describe", "gpt", "-o", "json").out)["status"]["current"][
        "message"
    ].startswith("killed\x1b[2J")


def test_without_the_right_to_see_pods_it_tells_what_it_can(
    rtj: Rtj, cluster: StubKubectl, running: Status
) -> None:
    cluster.job(job_of(running))
    said = rtj("why", "gpt")
    assert "trains: attempt 2" in said.out
    assert "auth can-i get pods" in said.words
    assert json.loads(rtj("why", "gpt", "-o", "json").out)["reason"] == "Training"
    assert not (cluster.directory / "secrets").exists()


def test_codes_of_what_goes_wrong(
    rtj: Rtj, cluster: StubKubectl, running: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "NotFound" in rtj("why", "gpt", code=3).words
    assert "auth can-i" in rtj("describe", "forbidden", code=5).words
    cluster.job(job_of(running) | {"status": {"attempt": "the third"}})
    assert "Update rtj" in rtj("why", "gpt", code=4).words
    monkeypatch.setenv("KUBECTL", "no-such-kubectl")
    assert "install it" in rtj("why", "gpt", code=2).words


def test_events_of_the_job_and_its_pods_alone(
    rtj: Rtj, cluster: StubKubectl, running: Status
) -> None:
    def event(kind: str, name: str, reason: str, **more: Any) -> dict[str, Any]:
        return {
            "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
            "type": "Normal",
            "reason": reason,
            "note": f"of {name}",
            "eventTime": "2026-01-01T00:00:01.000000Z",
            "regarding": {"kind": kind, "name": name},
        } | more

    cluster.job(job_of(running))
    cluster.pods({"metadata": {"name": "gpt-0-1-abcd", "labels": {}}})
    series = {"count": 7, "lastObservedTime": "2026-01-01T00:10:00.000000Z"}
    cluster.events(
        event(contract.KIND, "gpt", "Repeated", type="Warning", series=series),
        event("Pod", "gpt-0-1-abcd", "Pulled"),
        event("Pod", "other-0", "Foreign"),
        event(
            contract.KIND,
            "gpt",
            "OldNamesake",
            regarding={"kind": contract.KIND, "name": "gpt", "uid": "another"},
        ),
    )
    rows = json.loads(rtj("events", "gpt", "-o", "json").out)
    assert [(row["reason"], row["count"]) for row in rows] == [("Pulled", 1), ("Repeated", 7)]
    assert rtj("events", "gpt", "--warnings", "-o", "name").out == "Repeated\n"


def test_suspend_and_resume_change_the_spec(
    rtj: Rtj, cluster: StubKubectl, running: Status
) -> None:
    cluster.job(job_of(running))
    assert "To watch: rtj watch ns/gpt" in rtj("suspend", "gpt").words
    assert '--patch {"spec": {"suspend": true}}' in cluster.patched()[-1]
    assert "is not suspended" in rtj("resume", "gpt").words
    cluster.job(job_of(running, suspend=True))
    rtj("resume", "gpt")
    assert '{"spec": {"suspend": false}}' in cluster.patched()[-1]
    assert "already" in rtj("suspend", "gpt").words
    assert len(cluster.patched()) == 2


def test_resume_from_a_step_names_the_save_that_was_made_there(
    rtj: Rtj, cluster: StubKubectl, running: Status
) -> None:
    cluster.job(job_of(running))
    rtj("resume", "gpt", "--from", "16", "--no-wait")
    (asked,) = cluster.patched()
    wish = json.loads(
        json.loads(asked.split("--patch ")[1].split(" -o ")[0])["metadata"]["annotations"][
            contract.ANNOTATION_REQUEST
        ]
    )
    assert wish["action"] == "resume-from"
    assert wish["save"] == running.checkpoint.last_durable_name
    assert len(wish["id"]) > 6
    rtj("resume", "gpt", "--from", "f1-n2-s4", "--no-wait")
    assert "f1-n2-s4" in cluster.patched()[-1]


@pytest.mark.parametrize(
    ("words", "action"),
    [
        (("restart",), "restart"),
        (("allow-scratch",), "allow-scratch"),
        (("take-over",), "take-over"),
        (("bisect",), "bisect"),
    ],
)
def test_wishes_and_what_the_operator_says(
    rtj: Rtj,
    cluster: StubKubectl,
    running: Status,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    action: str,
) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda n: "00000001")
    cluster.job(job_of(running), after=job_of(answered(running, "done as asked")))
    assert "the operator: done as asked" in rtj(*words, "gpt").words
    assert f'\\"action\\": \\"{action}\\"' in cluster.patched()[-1]
    cluster.job(job_of(running), after=job_of(answered(running, "refused: the run is free")))
    assert "refused: the run is free" in rtj(*words, "gpt", code=4).words


def test_a_job_that_has_ended_is_not_changed(rtj: Rtj, cluster: StubKubectl) -> None:
    cluster.job(job_of(SCENARIOS["runs_to_the_end"].run().world.state))
    for words in (("suspend",), ("resume", "--from", "4"), ("restart",)):
        assert "checkpoint.runID: ns/gpt" in rtj(words[0], "gpt", *words[1:], code=4).words
    assert cluster.patched() == []


def test_wait_ends_with_what_became_of_it(rtj: Rtj, cluster: StubKubectl, running: Status) -> None:
    cluster.job(job_of(running))
    assert "step 16 durable" in rtj("wait", "gpt", "--for", "Durable=16").words
    late = rtj("wait", "gpt", "--for", "Durable=17", "--timeout", "0.5", "--every", "0.2", code=6)
    assert "no Durable=17 within 0.5s" in late.words
    cluster.job(job_of(SCENARIOS["crash_loop"].run().world.state))
    assert "without Complete" in rtj("wait", "gpt", code=7).words
    rtj("wait", "gpt", "--for", "Failed")
    rtj("wait", "gpt", "--for", "Dancing", code=2)
    (cluster.directory / "job.json").unlink()
    rtj("wait", "gpt", code=3)


def test_watch_without_a_terminal_is_a_line_a_change(rtj: Rtj, cluster: StubKubectl) -> None:
    cluster.job(job_of(SCENARIOS["runs_to_the_end"].run().world.state))
    said = rtj("watch", "gpt")
    assert said.out.count("\n") == 1
    assert "Succeeded (Succeeded)" in said.out


def test_the_kubeconfig_is_passed_on(rtj: Rtj, cluster: StubKubectl, running: Status) -> None:
    cluster.job(job_of(running))
    rtj("why", "team/gpt", "--context", "prod", "--kubeconfig", "/k", "-n", "other")
    first = cluster.asked()[0]
    assert "--namespace team --context prod --kubeconfig /k get" in first
    assert os.environ["KUBECTL"]


def test_watch_on_a_terminal_draws_a_screen(cluster: StubKubectl) -> None:
    cluster.job(job_of(SCENARIOS["runs_to_the_end"].run().world.state))
    cluster.pods()
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    environment = {**ENVIRONMENT, "TERM": "xterm", "KUBECTL": str(cluster.directory / "kubectl")}
    with subprocess.Popen(
        [sys.executable, "-m", "rtj_cli", "watch", "gpt"],
        stdout=theirs,
        stderr=subprocess.PIPE,
        env=environment,
    ) as process:
        os.close(theirs)
        drawn = b""
        try:
            while part := os.read(ours, 65536):
                drawn += part
        except OSError:  # Linux says EIO where the other side has closed
            pass
        assert process.wait() == 0
    os.close(ours)
    text = drawn.decode()
    assert "ns/gpt is complete: Succeeded" in text
    assert "First     FirstStart" in text
