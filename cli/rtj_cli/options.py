"""Options that several commands have, each with one name and one meaning."""

from __future__ import annotations

from typing import Annotated

import typer
from rtj_api import contract

from rtj_cli.telling import Output

NAMED = f"{contract.SINGULAR}.{contract.GROUP}"
"""How kubectl writes the kind before a name."""


def jobs_there(incomplete: str) -> list[str]:
    """Names for the shell's completion; none where the cluster does not answer."""
    from rtj_cli.cluster import JOBS, Cluster, ClusterProblem

    namespace, slash, begin = incomplete.rpartition("/")
    try:
        found = Cluster().items(JOBS, namespace=namespace or None)
    except ClusterProblem:
        return []
    names = (str(raw["metadata"]["name"]) for raw in found)
    return [f"{namespace}{slash}{name}" for name in names if name.startswith(begin)]


Job = Annotated[
    str,
    typer.Argument(metavar="JOB", help="Its name, or `namespace/name`.", autocompletion=jobs_there),
]
Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="A store's URL (with --run-id) or a run's own, or the name of a job in the cluster "
        "(`name` or `namespace/name`).",
    ),
]
RunId = Annotated[str | None, typer.Option(help="The run in that store.")]
Endpoint = Annotated[str | None, typer.Option(help="URL of the S3 server [default: AWS].")]
Region = Annotated[str | None, typer.Option(help="S3 region.")]
Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Namespace of the job.")]
KubeContext = Annotated[str | None, typer.Option("--context", help="Context of the kubeconfig.")]
Kubeconfig = Annotated[str | None, typer.Option(help="Kubeconfig to use.")]
OperatorNamespace = Annotated[
    str | None,
    typer.Option(help="Where the operator runs, if you may not look in all namespaces."),
]
Form = Annotated[Output, typer.Option("--output", "-o", help="Form of the result.")]
Layout = Annotated[str, typer.Option(help="Layout of the checkpoints.")]
Include = Annotated[
    list[str] | None,
    typer.Option(help="Patterns of checkpoints of no known layout: state_*.json."),
]
Save = Annotated[
    str, typer.Argument(metavar="SAVE", help="Its name, or `latest`: what a job would resume from.")
]
Rank = Annotated[
    int, typer.Option(min=0, help="Whose files, where ranks wrote different ones under one name.")
]
SourceEndpoint = Annotated[
    str | None,
    typer.Option(help="URL of the S3 server of the source [default: as --endpoint]."),
]
Scratch = Annotated[
    str | None,
    typer.Option(help="Directory for what comes from a bucket, one save at a time [default: TMP]."),
]
