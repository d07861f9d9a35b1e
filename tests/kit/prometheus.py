"""A real Prometheus with a real Alertmanager, and a receiver that keeps what they send.

For tests that must see a series scraped, a rule fire and a notification arrive. Must never leave a
process behind, nor listen on anything but 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from kit import daemon, tools
from kit.scrapes import Scrape

READY_WITHIN_S = 60.0
LOOK_UP_EVERY_S = 1.0


class PrometheusError(RuntimeError):
    """One of the processes could not be started, or a query was refused."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One series of an answer: its labels and its newest value."""

    labels: Mapping[str, str]
    value: float


@dataclass(kw_only=True)
class Receiver:
    """An HTTP server that Alertmanager notifies; `alerts` has each alert of each notification."""

    alerts: list[dict[str, Any]] = field(default_factory=list)


class Prometheus:
    """Prometheus, Alertmanager and a `Receiver`, all on 127.0.0.1, as a context manager.

    `rules` is the text of a rule file; `notify` an Alertmanager configuration in place of the one
    that tells the `Receiver`; `history` OpenMetrics text with times, of what was scraped before.
    """

    def __init__(
        self,
        *,
        scrapes: Sequence[Scrape],
        rules: str = "",
        notify: Mapping[str, Any] | None = None,
        history: str = "",
    ) -> None:
        self._notify = notify
        self._history = history
        self._scrapes = list(scrapes)
        self._rules = rules
        self._stack = contextlib.ExitStack()
        self.receiver = Receiver()
        self.url = ""
        self.alertmanager_url = ""
        self.data = Path()
        self._discovery_error = ""

    def __enter__(self) -> Prometheus:
        with contextlib.ExitStack() as stack:
            self.data = Path(tempfile.mkdtemp(prefix="rtj-prometheus-"))
            stack.callback(shutil.rmtree, self.data, ignore_errors=True)
            webhook = _serve_receiver(self.receiver, stack)
            port, manager_port = daemon.free_ports(count=2)
            self.url = f"http://127.0.0.1:{port}"
            self.alertmanager_url = f"http://127.0.0.1:{manager_port}"
            self._look_up_targets(stack)
            self._start_alertmanager(webhook, port=manager_port, stack=stack)
            self._start_prometheus(port=port, manager_port=manager_port, stack=stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def query(self, expression: str, *, at: float | None = None) -> list[Sample]:
        """An instant query, at a Unix time or now. Raises `PrometheusError` with Prometheus's own
        words."""
        when = {} if at is None else {"time": at}
        answer = self._get("/api/v1/query", query=expression, **when)
        if answer["resultType"] == "scalar":
            return [Sample(labels={}, value=float(answer["result"][1]))]
        return [
            Sample(labels=row["metric"], value=float(row["value"][1])) for row in answer["result"]
        ]

    def value(self, expression: str) -> float | None:
        """The value of the one series that the query gives; None when it gives none.

        Raises `PrometheusError` when it gives several.
        """
        found = self.query(expression)
        if len(found) > 1:
            raise PrometheusError(f"{expression} gives {len(found)} series: {found[:3]} …")
        return found[0].value if found else None

    def query_range(
        self, expression: str, *, start: float, end: float, step: float = 1.0
    ) -> list[dict[str, Any]]:
        """The `result` of a range query: `[{"metric": …, "values": [[time, text], …]}, …]`."""
        answer = self._get("/api/v1/query_range", query=expression, start=start, end=end, step=step)
        result: list[dict[str, Any]] = answer["result"]
        return result

    def firing(self) -> set[tuple[str, str, str]]:
        """(alert, namespace, name) of what fires now."""
        alerts = [
            alert["labels"]
            for alert in self._get("/api/v1/alerts")["alerts"]
            if alert["state"] == "firing"
        ]
        return {(of["alertname"], of.get("namespace", ""), of.get("name", "")) for of in alerts}

    def inhibited(self) -> set[tuple[str, str]]:
        """(alert, name) of what Alertmanager knows and keeps to itself, for another alert is on."""
        with urllib.request.urlopen(f"{self.alertmanager_url}/api/v2/alerts", timeout=30) as answer:
            known = json.load(answer)
        return {
            (alert["labels"]["alertname"], alert["labels"].get("name", ""))
            for alert in known
            if alert["status"]["inhibitedBy"]
        }

    def healthy_targets(self) -> dict[str, int]:
        """How many targets of each scrape job were scraped without error."""
        found: dict[str, int] = {}
        for target in self._get("/api/v1/targets")["activeTargets"]:
            job = target["labels"]["job"]
            found[job] = found.get(job, 0) + (target["health"] == "up")
        return found

    def wait(self, what: str, check: Callable[[], object], *, within_s: float = 60.0) -> None:
        """Until `check()` is true; raises `PrometheusError` naming `what` when it never was."""
        deadline = time.monotonic() + within_s
        while not check():
            if time.monotonic() > deadline:
                raise PrometheusError(
                    f"not within {within_s:.0f} s: {what}; firing: {sorted(self.firing())}; "
                    f"targets: {self.healthy_targets()} {self._discovery_error}"
                )
            time.sleep(0.2)

    def _get(self, path: str, **parameters: Any) -> dict[str, Any]:
        url = f"{self.url}{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                data: dict[str, Any] = json.load(answer)["data"]
                return data
        except urllib.error.HTTPError as error:
            raise PrometheusError(f"{path} {parameters}: {error.read().decode()}") from error

    def _targets_file(self, scrape: Scrape) -> Path:
        return self.data / f"targets-{scrape.job}.json"

    def _look_up_targets(self, stack: contextlib.ExitStack) -> None:
        def look_up() -> None:
            for scrape in self._scrapes:
                text = json.dumps(scrape.groups())
                file = self._targets_file(scrape)
                if not file.exists() or file.read_text() != text:
                    partial = file.with_suffix(".partial")
                    partial.write_text(text)
                    partial.rename(file)

        def keep_looking() -> None:
            while not ended.wait(LOOK_UP_EVERY_S):
                try:
                    look_up()
                    self._discovery_error = ""
                except Exception as error:  # told by `wait`, for it happens in no test's thread
                    self._discovery_error = f"(last look-up of targets failed: {error})"

        look_up()
        ended = threading.Event()
        thread = threading.Thread(target=keep_looking, daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(ended.set)

    def _start_alertmanager(self, webhook: str, *, port: int, stack: contextlib.ExitStack) -> None:
        config = self._notify or {
            "route": {
                "receiver": "test",
                "group_by": ["alertname", "namespace", "name"],
                "group_wait": "0s",
                "group_interval": "1s",
            },
            "receivers": [
                {"name": "test", "webhook_configs": [{"url": webhook, "send_resolved": True}]}
            ],
        }
        path = self.data / "alertmanager.yml"
        path.write_text(yaml.safe_dump(config))
        command = [
            tools.alertmanager(),
            f"--config.file={path}",
            f"--storage.path={self.data / 'alertmanager'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
        ]
        self._run("alertmanager", command, ready=f"{self.alertmanager_url}/-/ready", stack=stack)

    def _start_prometheus(
        self, *, port: int, manager_port: int, stack: contextlib.ExitStack
    ) -> None:
        config: dict[str, Any] = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "alerting": {
                "alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{manager_port}"]}]}]
            },
            "scrape_configs": [
                {
                    "job_name": each.job,
                    "honor_labels": each.is_believed,
                    **({} if each.is_believed else DISTRUST),
                    "scrape_interval": each.interval,
                    "scrape_timeout": each.interval,
                    "file_sd_configs": [{"files": [str(self._targets_file(each))]}],
                }
                for each in self._scrapes
            ],
        }
        if self._rules:
            (self.data / "rules.yaml").write_text(self._rules)
            config["rule_files"] = [str(self.data / "rules.yaml")]
        if self._history:
            self._take_history()
        path = self.data / "prometheus.yml"
        path.write_text(yaml.safe_dump(config))
        command = [
            tools.prometheus(),
            f"--config.file={path}",
            f"--storage.tsdb.path={self.data / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        self._run("prometheus", command, ready=f"{self.url}/-/ready", stack=stack)

    def _take_history(self) -> None:
        text = self.data / "history.txt"
        text.write_text(self._history)
        command = [tools.promtool(), "tsdb", "create-blocks-from", "openmetrics", "--quiet"]
        done = subprocess.run(
            [*command, text, self.data / "tsdb"], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise PrometheusError(f"the history was not taken: {done.stderr[-2000:]}")

    def _run(
        self, name: str, command: Sequence[str | Path], *, ready: str, stack: contextlib.ExitStack
    ) -> None:
        process = daemon.start(command, log=self.data / f"{name}.log", directory=self.data)
        stack.callback(process.stop, grace_s=5)
        deadline = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < deadline and process.poll() is None:
            with contextlib.suppress(OSError), urllib.request.urlopen(ready, timeout=5):
                return
            time.sleep(0.1)
        raise PrometheusError(
            f"{name} did not get ready (exit {process.poll()}):\n{process.log_tail()}"
        )


# As the chart's PodMonitor has it.
DISTRUST: dict[str, Any] = {
    "sample_limit": 2000,
    "metric_relabel_configs": [
        {"action": "labeldrop", "regex": "exported_(namespace|name|rank)"},
        {
            "action": "keep",
            "source_labels": ["__name__"],
            "regex": "resumable_training_sidecar_.+",
        },
    ],
}


def _serve_receiver(receiver: Receiver, stack: contextlib.ExitStack) -> str:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            receiver.alerts.extend(body["alerts"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stack.callback(server.server_close)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    stack.callback(server.shutdown)
    return f"http://127.0.0.1:{server.server_address[1]}/"
