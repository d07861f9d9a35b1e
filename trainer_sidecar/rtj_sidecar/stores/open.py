"""From a URL to a driver. The only place that knows which drivers there are."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from rtj_api import contract
from rtj_api.reasons import Reason
from rtj_api.stores import REMOTE, SCHEMES

from rtj_sidecar.stores.base import OnWait, Store, StoreProblem
from rtj_sidecar.stores.late import late_store
from rtj_sidecar.stores.pace import Pace
from rtj_sidecar.stores.remote import Reach, open_remote

_REMOTE = {scheme.name: scheme for scheme in REMOTE}


def kept_in(directory: Path) -> Store:
    """The store of a job that has no other: below its checkpoint directory, nothing copied."""
    from rtj_sidecar.stores.file import FileStore

    return FileStore(_kept_in(directory), links=True)


def keeps_run(directory: Path) -> bool:
    """Whether a job without another store has kept a run below this directory."""
    return _kept_in(directory).is_dir()


def _kept_in(directory: Path) -> Path:
    return directory / contract.HIDDEN_DIR / contract.DIRECTORY_STORE


def open_store(
    url: str,
    *,
    endpoint: str | None = None,
    region: str | None = None,
    ca_file: str | None = None,
    credentials_dir: Path | None = None,
    patience_s: float = 10.0,
    transfer_patience_s: float = 300.0,
    pace: Pace | None = None,
    late: bool = False,
    on_wait: OnWait | None = None,
) -> Store:
    """The store at `s3://bucket/prefix`, `file:///directory`, `gs://bucket/prefix`,
    `az://container/prefix` or `hdfs://namenode/directory`. Talks to nobody yet.

    Credentials come from the files in `credentials_dir`, each named like its variable, else from
    the environment, or workload identity (names: docs/stores.md).
    `patience_s`: how long a small call goes on trying; `transfer_patience_s`: how long a transfer
    survives a store that does not answer. `pace`: how fast uploads may go. `late`: the driver is
    loaded in the background, and what it has against its settings is said by the first call.
    `on_wait` hears of a transfer that goes on waiting, see `stores.base.OnWait`. Raises
    StoreProblem for a URL that cannot be one.
    """
    parts = urlsplit(url)
    if parts.username or parts.password:
        raise StoreProblem(
            Reason.INVALID_SPEC,
            "checkpoint.store.url holds credentials: take them out and put them into the Secret "
            "that credentialsSecret names",
        )
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise StoreProblem(
                Reason.INVALID_SPEC,
                f"checkpoint.store.url {url!r} is not file:///absolute/directory: "
                "write three slashes",
            )
        from rtj_sidecar.stores.file import FileStore

        return FileStore(Path(unquote(parts.path)), pace=pace)
    if (scheme := _REMOTE.get(parts.scheme)) is not None:
        if not parts.netloc:
            raise StoreProblem(
                Reason.INVALID_SPEC,
                f"checkpoint.store.url {url!r} names no {scheme.place}: write {scheme.example}",
            )
        prefix = parts.path.strip("/")
        at = Reach(
            endpoint=endpoint,
            region=region,
            ca_file=ca_file,
            credentials_dir=credentials_dir,
            patience_s=patience_s,
            transfer_patience_s=transfer_patience_s,
            pace=pace,
            on_wait=on_wait,
        )

        def make() -> Store:
            return open_remote(parts.scheme, parts.netloc, prefix=prefix, reach=at)

        named = f"{parts.scheme}://{parts.netloc}/{prefix}".rstrip("/")
        return late_store(named, make) if late else make()
    raise StoreProblem(
        Reason.STORE_SCHEME_UNKNOWN,
        f"checkpoint.store.url {url!r}: unknown scheme {parts.scheme!r}; use one of "
        + ", ".join(f"{known.name}://" for known in SCHEMES),
    )
