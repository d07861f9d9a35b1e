"""From a series to a message: the chart's rules in a real Prometheus, its sample configurations in
a real Alertmanager, and what arrives at chat, pager and mail.
"""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit import tools
from kit.chart import CHART
from kit.prometheus import Prometheus
from kit.receivers import Inbox, inbox
from kit.scrapes import hurried, static_scrape

pytestmark = pytest.mark.contract

EXAMPLES = CHART.parent / "examples"
# `stuck` restarts without progress, and has been started often: one reason to wake somebody, and
# one to be told by that. `failed` is a warning, `lazy` a line in the weekly mail.
STUCK = """
training_job_restarts_since_progress{namespace="ml",name="stuck"} 5
training_job_start_count_total{namespace="ml",name="stuck"} 20
training_job_status_phase{namespace="ml",name="stuck",phase="Running"} 1
"""
FAILED = """
training_job_status_phase{namespace="ml",name="failed",phase="Failed"} 1
training_job_finished_timestamp_seconds{namespace="ml",name="failed"} 4102444800
"""
LAZY = """
training_job_checkpoint_interval_seconds{namespace="ml",name="lazy"} 3600
training_job_checkpoint_interval_recommended_seconds{namespace="ml",name="lazy"} 900
training_job_status_phase{namespace="ml",name="lazy",phase="Running"} 1
"""


@contextmanager
def exporter(pages: list[str]) -> Iterator[str]:
    """`host:port` of what serves the newest of the pages."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(pages[-1].encode())

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def here(example: Path, *, box: Inbox, keys: Path) -> dict[str, Any]:
    """The sample with our servers' addresses and shorter waits; all else as it is."""
    text = example.read_text()
    for name, content in (
        ("slack", f"{box.http}/slack"),
        ("teams", f"{box.http}/teams"),
        ("pagerduty", "a-key"),
    ):
        (keys / name).write_text(content)
        text = text.replace(f"/etc/alertmanager/secrets/{name}", str(keys / name))
    text = re.sub(r"group_wait: \w+", "group_wait: 4s", text)
    text = re.sub(r"group_interval: \w+", "group_interval: 1s", text)
    config: dict[str, Any] = yaml.safe_load(text)
    config["global"] = {
        "smtp_smarthost": box.smtp,
        "smtp_from": config["global"]["smtp_from"],
        "smtp_require_tls": False,
        "pagerduty_url": f"{box.http}/pagerduty",
    }
    return config


def alertmanager_version() -> tuple[int, int]:
    done = subprocess.run(
        [tools.alertmanager(), "--version"], text=True, capture_output=True, check=False
    )
    found = re.search(r"version (\d+)\.(\d+)", done.stdout + done.stderr)
    # One that was built by `go install` has no version stamped in, and is newer than Debian's.
    return (int(found[1]), int(found[2])) if found else (9, 9)


def chat_texts(box: Inbox) -> list[tuple[str, str]]:
    """(title, text) of what the team was told, by either chat."""
    slack = [(a["title"], a["text"]) for body in box.at("/slack") for a in body["attachments"]]
    cards = [a["content"]["body"] for body in box.at("/teams") for a in body["attachments"]]
    return slack + [(card[0]["text"], card[1]["text"]) for card in cards]


@pytest.mark.parametrize("example", ["alertmanager.yaml", "alertmanager-teams.yaml"])
def test_each_alert_reaches_whom_it_is_for(example: str, tmp_path: Path) -> None:
    if "teams" in example and alertmanager_version() < (0, 28):
        pytest.skip("Teams takes Alertmanager 0.28: set RTJ_ALERTMANAGER, see docs/testing.md")
    rules = hurried((CHART / "files" / "rules.yaml").read_text())
    pages = [STUCK + FAILED + LAZY]
    with inbox() as box, exporter(pages) as target:
        config = here(EXAMPLES / example, box=box, keys=tmp_path)
        scrapes = [static_scrape("resumable-training-operator", [target])]
        with Prometheus(scrapes=scrapes, rules=rules, notify=config) as prometheus:
            prometheus.wait("the pager was told", lambda: box.at("/pagerduty"))
            [page] = box.at("/pagerduty")
            assert page["event_action"] == "trigger"
            assert page["routing_key"] == "a-key"
            assert page["payload"]["severity"] == "critical"
            assert page["payload"]["summary"] == (
                "A training job restarts without getting further: ml/stuck"
            )
            details = page["payload"]["custom_details"]
            assert details["runbook"].endswith("TrainingJobRestartingWithoutProgress.md")

            prometheus.wait(
                "the team was told of both", lambda: len({t for t, _ in chat_texts(box)}) == 2
            )
            told = dict(chat_texts(box))
            assert "ml/failed has failed" in told["A training job has failed for good"]
            assert "runbooks/TrainingJobFailed.md" in told["A training job has failed for good"]
            assert "ml/stuck" in told["A training job restarts without getting further"]

            prometheus.wait("the mail has come", lambda: box.mails)
            [mail] = box.mails
            assert mail["Subject"] == (
                "A training job saves more seldom than its faults call for (1)"
            )
            assert mail["To"] == "ml-platform@example.com"
            text = mail.get_payload(decode=True) or mail.get_payload(0).get_payload(decode=True)
            assert b"ml/lazy saves every 1h 0m 0s" in text

            # Known, and told by the one that woke somebody.
            quiet = ("TrainingJobStartsWithoutCompletion", "stuck")
            prometheus.wait("the other is inhibited", lambda: quiet in prometheus.inhibited())
            assert not any("started many times" in title for title, _ in chat_texts(box))

            pages.append(STUCK + LAZY)
            over = "Over: A training job has failed for good"
            prometheus.wait("its end is told", lambda: over in dict(chat_texts(box)))
