"""Which run is meant: a URL and an ID, or a job in a cluster; and the way into its store.

A job is read by kubectl with the person's own rights. Its Secret is read only if those allow it;
else the credentials are the environment's, as for every AWS tool. They are handed to the driver in
a private directory that is gone at the end. Must never print a credential, nor write to a cluster.
"""

from __future__ import annotations

import base64
import binascii
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import ValidationError
from rtj_api.v1alpha1 import Retention, Store
from rtj_sidecar.opening import union_gate
from rtj_sidecar.runs import keys
from rtj_sidecar.runs.context import About
from rtj_sidecar.runs.run import Run
from rtj_sidecar.stores.base import Store as Opened
from rtj_sidecar.stores.open import keeps_run, kept_in, open_store

from rtj_cli.cluster import Cluster, ClusterProblem
from rtj_cli.inspecting import is_url, runs_in, split_run_url
from rtj_cli.telling import Code, say


class NoTarget(Exception):
    """The run cannot be reached; with the remedy and the exit code."""

    def __init__(self, message: str, code: Code) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """As it stands on the command line."""

    target: str
    run_id: str | None = None
    endpoint: str | None = None
    region: str | None = None
    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None

    @property
    def cluster(self) -> Cluster:
        return Cluster(namespace=self.namespace, context=self.context, kubeconfig=self.kubeconfig)


@dataclass(frozen=True, slots=True)
class Place:
    """A run's store, open. `retention`, `required` (validation.requiredKeys): as the job has them;
    None where only a URL is known."""

    run: Run
    store: Opened
    run_id: str
    retention: Retention | None = None
    required: tuple[str, ...] | None = None
    has_store: bool = True

    @property
    def url(self) -> str:
        return f"{self.store.url}/{self.run_id}"


@contextmanager
def reached(asked: Asked, *, must_exist: bool = True) -> Iterator[Place]:
    """The run that is meant. Raises NoTarget, ClusterProblem,
    StoreProblem."""
    with tempfile.TemporaryDirectory(prefix="rtj-") as private:
        if is_url(asked.target):
            place = _of_url(asked)
        else:
            place = _of_job(asked, private=Path(private))
        try:
            if must_exist and place.store.get(f"{place.run_id}/{keys.RUN}") is None:
                raise NoTarget(_no_run(place), Code.NOT_FOUND)
            yield place
        finally:
            place.store.close()


def run_in(
    store: Opened, run_id: str, *, job_uid: str = "rtj", required: tuple[str, ...] = ()
) -> Run:
    """The run, as somebody who holds nothing. `required`: names without which no save counts."""
    return Run(
        store=store,
        run_id=run_id,
        cluster_uid="rtj",
        job_uid=job_uid,
        rank=0,
        union_gate=union_gate,
        about=About(required=required),
    )


def _no_run(place: Place) -> str:
    there = runs_in(place.store)
    some = ", ".join(there[:10]) + (", …" if len(there) > 10 else "")
    return f"{place.store.url} holds no run {place.run_id}; it has: {some or 'none'}"


def _of_url(asked: Asked) -> Place:
    url, run_id = asked.target.rstrip("/"), asked.run_id
    store = _opened(url, asked)
    if run_id is None:
        there = store.get(keys.RUN)
        if there is not None:
            url, run_id = split_run_url(url, there.data)
            store.close()
            store = _opened(url, asked)
        else:
            runs = runs_in(store)
            if len(runs) != 1:
                some = ", ".join(runs[:10]) + (", …" if len(runs) > 10 else "")
                raise NoTarget(
                    f"say which run of {url} is meant with --run-id; it has: {some or 'none'}",
                    Code.USAGE if runs else Code.NOT_FOUND,
                )
            run_id = runs[0]
    return Place(run_in(store, run_id), store, run_id)


def _opened(url: str, asked: Asked) -> Opened:
    parts = urlsplit(url)
    directory = Path(unquote(parts.path))
    if parts.scheme == "file" and keeps_run(directory):
        return kept_in(directory)
    return open_store(url, endpoint=asked.endpoint, region=asked.region)


def _of_job(asked: Asked, *, private: Path) -> Place:
    job = asked.cluster.job(asked.target)
    name = asked.target.rpartition("/")[2]
    where = str(job["metadata"]["namespace"])
    checkpoint = (job.get("spec") or {}).get("checkpoint") or {}
    run_id = asked.run_id or checkpoint.get("runID") or f"{where}/{name}"
    told = checkpoint.get("store")
    if told is None:
        raise NoTarget(
            f"job {where}/{name} keeps its run in its checkpoint volume "
            f"({checkpoint.get('path')}), which only its pods see: mount that volume here and give "
            "it as file:///directory",
            Code.REFUSED,
        )
    try:
        spec = Store.model_validate(told)
        retention = Retention.model_validate(checkpoint.get("retention") or {})
    except ValidationError as error:
        raise NoTarget(f"job {where}/{name} cannot be read: {error}", Code.REFUSED) from None
    credentials, ca_file = None, None
    if spec.credentials_secret is not None:
        credentials = _credentials(asked, where, spec.credentials_secret, private / "credentials")
    if spec.ca_bundle is not None:
        ca_file = _certificates(asked, where, told["caBundle"], private / "ca.crt")
    store = open_store(
        spec.url,
        endpoint=asked.endpoint or spec.endpoint,
        region=asked.region or spec.region,
        ca_file=ca_file,
        credentials_dir=credentials,
    )
    keys_asked = (checkpoint.get("validation") or {}).get("requiredKeys") or ()
    required = tuple(str(each) for each in keys_asked)
    return Place(run_in(store, run_id, required=required), store, run_id, retention, required)


def _credentials(asked: Asked, namespace: str, name: str, into: Path) -> Path | None:
    """Its files; None where the person may not read the Secret: then the environment's are used."""
    try:
        secret = asked.cluster.get("secret", name, namespace=namespace)
    except ClusterProblem as error:
        say(f"Secret {namespace}/{name} cannot be read ({error}): the environment's credentials")
        return None
    into.mkdir(mode=0o700)
    for key, value in (secret.get("data") or {}).items():
        try:
            content = base64.b64decode(value, validate=True)
        except (binascii.Error, TypeError):
            continue
        if key == Path(key).name and not key.startswith("."):
            (into / key).touch(mode=0o600)
            (into / key).write_bytes(content)
    return into


def _certificates(
    asked: Asked, namespace: str, bundle: Mapping[str, Any], into: Path
) -> str | None:
    kind = "configmap" if "configMap" in bundle else "secret"
    named = bundle.get("configMap") or bundle.get("secret") or {}
    try:
        found = asked.cluster.get(kind, str(named.get("name")), namespace=namespace)
    except ClusterProblem as error:
        say(f"{kind} {namespace}/{named.get('name')} cannot be read ({error}): this machine's own")
        return None
    text = (found.get("data") or {}).get(str(named.get("key", "ca.crt")))
    if not isinstance(text, str):
        return None
    into.write_bytes(base64.b64decode(text) if kind == "secret" else text.encode())
    return str(into)
