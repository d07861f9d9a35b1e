"""What a report and a bundle are made from, as far as a person may read it.

Must never end for a right that is missing: what was not to be had is a sentence in the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rtj_cli.cluster import Cluster, ClusterProblem, Raw
from rtj_cli.jobs import Seen
from rtj_cli.report.story import Decision, SavePoint, decisions_in
from rtj_cli.views import happened

OPERATOR = "app.kubernetes.io/name=resumable-training-operator"
LOG_LINES = 20_000


@dataclass
class Gathering:
    """Asks one cluster about one job. `missing` grows with what could not be had."""

    cluster: Cluster
    job: Seen
    missing: list[str] = field(default_factory=list)

    def pods(self) -> list[Raw]:
        try:
            return self.cluster.pods(job=self.job.name, namespace=self.job.namespace)
        except ClusterProblem as problem:
            self.missing.append(f"its pods: {problem}")
            return []

    def raw_events(self) -> list[Raw]:
        try:
            return self.cluster.items("events.events.k8s.io", namespace=self.job.namespace)
        except ClusterProblem as problem:
            self.missing.append(f"events: {problem}")
            return []

    def events(self, pods: Sequence[Raw]) -> list[dict[str, object]]:
        names = {str(pod["metadata"]["name"]) for pod in pods}
        return happened.rows(self.raw_events(), job=self.job, pods=names)

    def operator_logs(self, namespace: str | None) -> dict[str, str]:
        """Pod of the operator -> its log. `namespace`: None looks everywhere."""
        try:
            found = self.cluster.items(
                "pods", selector=OPERATOR, namespace=namespace, everywhere=namespace is None
            )
            if not found:
                self.missing.append(
                    "the operator's log: no pod of it; name its --operator-namespace"
                )
            return {str(pod["metadata"]["name"]): self._log(pod) for pod in found}
        except ClusterProblem as problem:
            self.missing.append(f"the operator's log, which holds each decision: {problem}")
            return {}

    def _log(self, pod: Raw) -> str:
        words = ("logs", str(pod["metadata"]["name"]), f"--tail={LOG_LINES}")
        return self.cluster.text(*words, namespace=pod["metadata"].get("namespace"))

    def decisions(self, namespace: str | None) -> list[Decision]:
        logs = self.operator_logs(namespace)
        found = [each for text in logs.values() for each in self._decided(text)]
        return sorted(found, key=lambda each: each.at)

    def _decided(self, text: str) -> list[Decision]:
        return decisions_in(text.splitlines(), job=self.job)

    def saves(self, *, endpoint: str | None, region: str | None) -> list[SavePoint]:
        """Of the store, with its credentials as the commands on saves find them."""
        from rtj_sidecar.stores.base import StoreProblem

        from rtj_cli.saves import Refused, listed
        from rtj_cli.targets import Asked, NoTarget, reached

        asked = Asked(
            target=self.job.full_name,
            endpoint=endpoint,
            region=region,
            context=self.cluster.context,
            kubeconfig=self.cluster.kubeconfig,
        )
        try:
            with reached(asked) as place:
                history = place.run.history()
                rows = {row["name"]: row for row in listed(history)}
                records = list(history.manifests.values())
        except (ClusterProblem, NoTarget, Refused, StoreProblem, OSError) as problem:
            self.missing.append(f"saves and losses, which are in the store: {problem}")
            return []
        return [
            SavePoint(
                name=record.name,
                step=record.step,
                loss=record.loss,
                attempt=record.attempt,
                at=record.committed_at,
                state=rows[record.name]["state"],
                is_branch=bool(rows[record.name]["branch"]),
            )
            for record in records
            if record.name in rows
        ]
