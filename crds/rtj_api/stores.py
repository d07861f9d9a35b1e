"""The kinds of stores that `checkpoint.store.url` may name, and what a user states for each.

One table that the CRD's rules, the sidecar's drivers and docs/stores.md are made of. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the Secret that `credentialsSecret` names, called like its variable."""

    name: str
    holds: str


@dataclass(frozen=True, slots=True)
class Scheme:
    name: str
    example: str
    place: str  # what follows ://
    endpoint: str  # what `endpoint` is, and its default; "" where it has none
    keys: tuple[Key, ...]
    without: str  # what is used where the Secret is not named
    create: str  # how "only if absent" is asked of it
    replace: str  # how "only if it is still what I read" is
    proof: str  # how the bytes of an upload are proved
    build: str  # the image's build argument that brings its client; "" where it is always there


S3: Final = Scheme(
    "s3",
    "s3://bucket/prefix",
    "bucket",
    "URL of an S3-compatible server, `http://s3.storage:8333`; default AWS for the region",
    (
        Key("AWS_ACCESS_KEY_ID", "the key's name"),
        Key("AWS_SECRET_ACCESS_KEY", "the key"),
        Key("AWS_SESSION_TOKEN", "of temporary keys only"),
    ),
    "what boto3 finds: IRSA, EKS Pod Identity, the node's role",
    "`If-None-Match: *`",
    "`If-Match` with the ETag",
    "CRC64NVME that the server verifies, where it does; else what a probe finds",
    "",
)
FILE: Final = Scheme(
    "file",
    "file:///mnt/store",
    "directory",
    "",
    (),
    "the sidecar's user",
    "link(2)",
    "flock(2) and rename(2)",
    "fsync(2)",
    "",
)
GS: Final = Scheme(
    "gs",
    "gs://bucket/prefix",
    "bucket",
    "URL of another server of this protocol, or of a private endpoint; default Google's",
    (Key("GOOGLE_APPLICATION_CREDENTIALS", "a service account's JSON key: the file's content"),),
    "Workload Identity Federation for GKE, or the node's service account",
    "`ifGenerationMatch=0`",
    "`ifGenerationMatch` with the generation",
    "CRC32C that the server verifies",
    "cloud",
)
AZ: Final = Scheme(
    "az",
    "az://container/prefix",
    "container",
    "`https://<account>.blob.core.windows.net`, or another server with the account as its path; "
    "default from AZURE_STORAGE_ACCOUNT",
    (
        Key("AZURE_STORAGE_ACCOUNT", "the storage account"),
        Key("AZURE_STORAGE_KEY", "its key, or"),
        Key("AZURE_STORAGE_SAS_TOKEN", "a shared access signature, or"),
        Key("AZURE_STORAGE_CONNECTION_STRING", "all of it in one string"),
    ),
    "Microsoft Entra Workload ID, or the node's identity; the account from endpoint",
    "`If-None-Match: *`",
    "`If-Match` with the ETag",
    "MD5 of each block that the server verifies",
    "cloud",
)
HDFS: Final = Scheme(
    "hdfs",
    "hdfs://namenode/directory",
    "namenode",
    "URL of WebHDFS or HttpFS, several with `;` between them for name nodes that stand in for each "
    "other; default `http://<namenode>:9870`",
    (
        Key("HADOOP_USER_NAME", "the user, without Kerberos"),
        Key("HADOOP_DELEGATION_TOKEN", "a delegation token, with Kerberos"),
    ),
    "no user, which most clusters refuse to let write",
    "rename that fails where the target is",
    "a claim on the file's number, see below",
    "HDFS's own checksum of each block, compared; read back where it cannot be",
    "hdfs",
)

SCHEMES: Final = (S3, FILE, GS, AZ, HDFS)
REMOTE: Final = tuple(scheme for scheme in SCHEMES if scheme is not FILE)
URL_FORMS: Final = ", ".join(scheme.example for scheme in SCHEMES[:1] + SCHEMES[2:]) + (
    ", or file:///directory for a directory that every pod mounts"
)
# In a URL: what may stand between :// and the first /.
PLACE_PATTERN: Final = "[A-Za-z0-9][A-Za-z0-9._-]*"


def keys_of(name: str) -> tuple[str, ...]:
    """The names of a scheme's keys."""
    return next(tuple(k.name for k in scheme.keys) for scheme in SCHEMES if scheme.name == name)
