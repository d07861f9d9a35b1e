"""Where one dashboard leads to: the others, a job's own, the runbooks.

An address in the JSON is one of this release: the chart puts the runbooks' real address in
(`monitoring.rules.runbookURL`). Must never name a host.
"""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as models

FLEET = "resumable-training-fleet"
JOB = "resumable-training-job"
CHECKPOINTS = "resumable-training-checkpoints"
OPERATOR = "resumable-training-operator"
TITLES = {
    FLEET: "Resumable training: fleet",
    JOB: "Resumable training: job",
    CHECKPOINTS: "Resumable training: checkpoints",
    OPERATOR: "Resumable training: operator",
}
# Those two understand each other's choice of jobs; a job's has room for one.
OF_MANY = {FLEET, CHECKPOINTS}
_SAME = "${datasource:queryparam}&${__url_time_range}"


def runbook(alert: str) -> dashboard.DashboardLink:
    return (
        dashboard.DashboardLink(f"Runbook {alert}")
        .type(models.DashboardLinkType.LINK)
        .url(f"docs/runbooks/{alert}.md")
        .target_blank(True)
    )


def to_others(uid: str) -> list[dashboard.DashboardLink]:
    """The links at the top of dashboard `uid`."""
    found = []
    for other, title in TITLES.items():
        if other == uid:
            continue
        keeps = {uid, other} <= OF_MANY or (uid, other) == (JOB, CHECKPOINTS)
        link = (
            dashboard.DashboardLink(title.removeprefix("Resumable training: ").capitalize())
            .type(models.DashboardLinkType.LINK)
            .url(f"/d/{other}" if keeps else f"/d/{other}?${{datasource:queryparam}}")
            .icon("dashboard")
            .keep_time(True)
            .include_vars(keeps)
        )
        found.append(link)
    return found


def job_of_series() -> dashboard.DashboardLink:
    """A data link: from a line to its job."""
    url = _job("${__field.labels.namespace}", "${__field.labels.name}")
    return dashboard.DashboardLink("This job").type(models.DashboardLinkType.LINK).url(url)


def job_of_row() -> dict[str, object]:
    """A data link: from a table's row to its job."""
    url = _job("${__data.fields.Namespace}", "${__data.fields.Job}")
    return {"title": "This job", "url": url}


def _job(namespace: str, name: str) -> str:
    return f"/d/{JOB}?var-namespace={namespace}&var-name={name}&{_SAME}"
