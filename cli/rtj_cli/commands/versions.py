"""`rtj version`: of this program, the CRD and the operator, and whether they fit."""

from __future__ import annotations

from typing import Annotated

import typer
from rtj_api import contract
from rtj_api.version import RELEASE

from rtj_cli import options
from rtj_cli.cluster import JOBS, Cluster, ClusterProblem
from rtj_cli.commands.asking import asked
from rtj_cli.gathering import OPERATOR
from rtj_cli.skew import of_labels, warning
from rtj_cli.telling import Output, say, show


def versions_of(cluster: Cluster, missing: list[str]) -> dict[str, str]:
    """What -> version, as far as it may be read; `missing` grows with what may not."""
    found = {"rtj": RELEASE, "contract": str(contract.CONTRACT_VERSION)}
    try:
        crd = of_labels(cluster.get("crd", JOBS))
        found["CRD"] = crd if crd is not None else "not told (not installed by the chart)"
    except ClusterProblem as problem:
        missing.append(f"version of the CRD: {problem}")
    try:
        pods = cluster.items("pods", selector=OPERATOR, everywhere=True)
        told = sorted({version for pod in pods if (version := of_labels(pod)) is not None})
        if told:
            found["operator"] = told[0]
        else:
            missing.append("version of the operator: no pod of it was found")
    except ClusterProblem as problem:
        missing.append(f"version of the operator: {problem}")
    return found


def version_command(
    client: Annotated[bool, typer.Option("--client", help="Ask no cluster.")] = False,
    context: options.KubeContext = None,
    kubeconfig: options.Kubeconfig = None,
    output: options.Form = Output.TABLE,
) -> None:
    """Tell the versions of rtj, of the CRD and of the operator, and warn where they do not fit.

    One minor version may lie between them. What you may not read is said.
    """
    if client:
        found = {"rtj": RELEASE, "contract": str(contract.CONTRACT_VERSION)}
    else:
        with asked(None, context, kubeconfig) as cluster:
            missing: list[str] = []
            found = versions_of(cluster, missing)
            for each in missing:
                say(each, style="yellow")
    rows = [{"name": name, "version": version} for name, version in found.items()]
    columns = {"what": lambda row: row["name"], "version": lambda row: row["version"]}
    show(rows, output, columns=columns)
    others = {name: found[name] for name in ("CRD", "operator") if name in found}
    told = warning(RELEASE, {f"the {name}": version for name, version in others.items()})
    if told is not None:
        say(told, style="yellow")
