"""From a URL to a driver. The only place that knows which drivers there are."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from rtj_api import contract
from rtj_api.reasons import Reason

from rtj_sidecar.stores.base import OnWait, Store, StoreProblem
from rtj_sidecar.stores.late import late_store
from rtj_sidecar.stores.pace import Pace

SCHEMES = ("s3", "file")


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
    """The store at `s3://bucket/prefix` or `file:///directory`. Talks to nobody yet.

    Credentials of S3 come from the files in `credentials_dir`, each named like its variable, else
    from the environment (AWS_ACCESS_KEY_ID, …, or workload identity).
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
    if parts.scheme == "s3":
        if not parts.netloc:
            raise StoreProblem(
                Reason.INVALID_SPEC,
                f"checkpoint.store.url {url!r} names no bucket: write s3://bucket/prefix",
            )
        bucket, prefix = parts.netloc, parts.path.strip("/")

        def make() -> Store:
            # Imported late: a run on a plain directory needs no boto3.
            from rtj_sidecar.stores.s3 import S3Store

            return S3Store(
                bucket=bucket,
                prefix=prefix,
                endpoint=endpoint,
                region=region,
                ca_file=ca_file,
                credentials_dir=credentials_dir,
                patience_s=patience_s,
                transfer_patience_s=transfer_patience_s,
                pace=pace,
                on_wait=on_wait,
            )

        return late_store(f"s3://{bucket}/{prefix}".rstrip("/"), make) if late else make()
    raise StoreProblem(
        Reason.STORE_SCHEME_UNKNOWN,
        f"checkpoint.store.url {url!r}: unknown scheme {parts.scheme!r}; use one of "
        + ", ".join(f"{scheme}://" for scheme in SCHEMES),
    )
