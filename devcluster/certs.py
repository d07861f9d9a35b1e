"""The certificates and kubeconfig files of one cluster, made with openssl.

One CA signs all. Existing files are kept, so that a cluster put right keeps its identity; no
key ever leaves the cluster's directory.
"""

from __future__ import annotations

import base64
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

DAYS = "3650"


class CertificateError(RuntimeError):
    """openssl failed; the message is its own."""


@dataclass(frozen=True)
class Subject:
    """A certificate to make: file stem, common name, organisations and alternative names."""

    stem: str
    common_name: str
    organisation: str = ""
    names: tuple[str, ...] = ()


def _openssl(*arguments: str) -> None:
    result = subprocess.run(["openssl", *arguments], capture_output=True, text=True)
    if result.returncode != 0:
        raise CertificateError(f"openssl {arguments[0]} failed: {result.stderr.strip()}")


def _make_key(target: Path) -> None:
    temporary = target.with_suffix(".tmp")
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(temporary))
    temporary.chmod(0o600)
    temporary.replace(target)


def make_authority(directory: Path) -> None:
    """`ca.crt`, `ca.key` and the service-account key pair `sa.key`, `sa.pub`."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    for stem in ("ca", "sa"):
        if not (directory / f"{stem}.key").exists():
            _make_key(directory / f"{stem}.key")
    key, certificate = directory / "ca.key", directory / "ca.crt"
    if not certificate.exists():
        temporary = directory / "ca.crt.tmp"
        _openssl(
            *("req", "-x509", "-new", "-key", str(key), "-days", DAYS, "-out", str(temporary)),
            *("-subj", "/CN=devcluster-ca", "-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        )
        temporary.replace(certificate)
    if not (directory / "sa.pub").exists():
        temporary = directory / "sa.pub.tmp"
        _openssl("ec", "-in", str(directory / "sa.key"), "-pubout", "-out", str(temporary))
        temporary.replace(directory / "sa.pub")


def issue(directory: Path, subject: Subject) -> None:
    """`<stem>.crt` and `<stem>.key`, for client and server use."""
    certificate = directory / f"{subject.stem}.crt"
    if certificate.exists():
        return
    key = directory / f"{subject.stem}.key"
    _make_key(key)
    request = directory / f"{subject.stem}.csr"
    extensions = directory / f"{subject.stem}.ext"
    organisation = f"/O={subject.organisation}" if subject.organisation else ""
    text = "basicConstraints=CA:FALSE\nextendedKeyUsage=clientAuth,serverAuth\n"
    if subject.names:
        kinds = [("IP:" if _is_address(name) else "DNS:") + name for name in subject.names]
        text += f"subjectAltName={','.join(kinds)}\n"
    extensions.write_text(text)
    _openssl(
        *("req", "-new", "-key", str(key), "-out", str(request)),
        *("-subj", f"{organisation}/CN={subject.common_name}"),
    )
    temporary = directory / f"{subject.stem}.crt.tmp"
    _openssl(
        *("x509", "-req", "-in", str(request), "-days", DAYS, "-extfile", str(extensions)),
        *("-CA", str(directory / "ca.crt"), "-CAkey", str(directory / "ca.key")),
        *("-set_serial", str(int.from_bytes(subject.stem.encode()[-19:], "big"))),
        *("-out", str(temporary)),
    )
    temporary.replace(certificate)
    request.unlink()
    extensions.unlink()


def _is_address(name: str) -> bool:
    return all(part.isdigit() for part in name.split("."))


def write_kubeconfig(target: Path, *, directory: Path, stem: str, server: str, name: str) -> None:
    """A self-contained kubeconfig; JSON, which is YAML too."""

    def embedded(file: str) -> str:
        return base64.b64encode((directory / file).read_bytes()).decode()

    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [
            {
                "name": name,
                "cluster": {
                    "server": server,
                    "certificate-authority-data": embedded("ca.crt"),
                },
            }
        ],
        "users": [
            {
                "name": stem,
                "user": {
                    "client-certificate-data": embedded(f"{stem}.crt"),
                    "client-key-data": embedded(f"{stem}.key"),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": stem}}],
    }
    temporary = target.with_name(target.name + ".tmp")
    temporary.touch(mode=0o600)
    temporary.write_text(json.dumps(config, indent=1))
    temporary.replace(target)
