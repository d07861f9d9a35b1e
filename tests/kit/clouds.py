"""Real servers of Azure's, Google's and Hadoop's protocols on this machine, for tests.

Each is a context manager that is ready when it is entered and leaves no process and no file behind.
Traffic stays on the loopback. Must never be taken for the services themselves: what a server does
otherwise than its original is said at its class and in docs/stores.md.
"""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kit import cloud_tools, daemon

AZURE_ACCOUNT = "rtjtest"
AZURE_KEY = base64.b64encode(b"rtj-test-secret-of-azurite").decode()
READY_WITHIN_S = 240.0


class CloudServerError(RuntimeError):
    """The server did not come up; the message has the end of its log."""


@dataclass(frozen=True)
class Cloud:
    """`endpoint` and `url` as checkpoint.store wants them; `secret`: file name to content."""

    scheme: str
    url: str
    endpoint: str
    secret: dict[str, str]
    process: daemon.Daemon

    def credentials_dir(self, directory: Path) -> Path:
        """A mounted Secret."""
        directory.mkdir(exist_ok=True)
        for name, value in self.secret.items():
            (directory / name).write_text(value)
        return directory


@contextlib.contextmanager
def azurite() -> Iterator[Cloud]:
    """Microsoft's emulator. Checks keys, SAS, MD5 and conditions as Azure does."""
    with _directory("rtj-azurite-") as data:
        port = daemon.free_ports(count=1)[0]
        command = [
            *map(str, cloud_tools.azurite()),
            "--blobHost=127.0.0.1",
            f"--blobPort={port}",
            f"--location={data / 'data'}",
            "--silent",
            "--disableTelemetry",
            "--skipApiVersionCheck",
        ]
        endpoint = f"http://127.0.0.1:{port}/{AZURE_ACCOUNT}"
        secret = {"AZURE_STORAGE_ACCOUNT": AZURE_ACCOUNT, "AZURE_STORAGE_KEY": AZURE_KEY}
        accounts = {"AZURITE_ACCOUNTS": f"{AZURE_ACCOUNT}:{AZURE_KEY}"}
        with _running(command, data, lambda: _answers(endpoint), accounts) as process:
            from azure.storage.blob import ContainerClient

            credential = {"account_name": AZURE_ACCOUNT, "account_key": AZURE_KEY}
            with ContainerClient(endpoint, "checkpoints", credential=credential) as client:
                client.create_container()
            yield Cloud("az", "az://checkpoints", endpoint, secret, process)


@contextlib.contextmanager
def fake_gcs() -> Iterator[Cloud]:
    """fsouza/fake-gcs-server. Asks nobody for credentials; finishes an upload when it is asked how
    far it is."""
    with _directory("rtj-gcs-") as data:
        port = daemon.free_ports(count=1)[0]
        endpoint = f"http://127.0.0.1:{port}"
        command = [
            str(cloud_tools.fake_gcs_server()),
            "-scheme=http",
            "-host=127.0.0.1",
            f"-port={port}",
            "-backend=memory",
            f"-public-host=127.0.0.1:{port}",
            f"-external-url={endpoint}",
            "-log-level=error",
        ]
        with _running(command, data, lambda: _answers(f"{endpoint}/storage/v1/b")) as process:
            body = json.dumps({"name": "checkpoints"}).encode()
            made = urllib.request.Request(
                f"{endpoint}/storage/v1/b?project=test",
                data=body,
                headers={"Content-Type": "application/json"},
            )
            urllib.request.urlopen(made, timeout=10).close()
            yield Cloud("gs", "gs://checkpoints", endpoint, {}, process)


@contextlib.contextmanager
def hdfs() -> Iterator[Cloud]:
    """Hadoop's own name node and data node in one JVM (10 s to start, 500 MB)."""
    source = Path(__file__).parent / "java" / "MiniHdfs.java"
    with _directory("rtj-hdfs-") as data:
        java, jars = cloud_tools.hadoop()
        port = daemon.free_ports(count=1)[0]
        ready = data / "ready"
        command = [
            str(java),
            "-Xmx512m",
            # What turns answers into JSON reaches into the JDK.
            "--add-opens=java.base/java.lang=ALL-UNNAMED",
            "-Djava.net.preferIPv4Stack=true",
            "-cp",
            ":".join(map(str, jars)),
            str(source),
            str(data / "data"),
            str(port),
            str(ready),
        ]
        with _running(command, data, ready.exists) as process:
            endpoint = f"http://127.0.0.1:{port}"
            secret = {"HADOOP_USER_NAME": "trainer"}
            # The first write is slow, while the JVM loads what it needs.
            warm = f"{endpoint}/webhdfs/v1/checkpoints/.warm?user.name=trainer&op="
            for method, operation in (("PUT", "CREATE"), ("DELETE", "DELETE")):
                request = urllib.request.Request(f"{warm}{operation}", method=method)
                with contextlib.suppress(urllib.error.HTTPError):  # a redirect, not followed
                    urllib.request.urlopen(request, timeout=60).close()
            yield Cloud("hdfs", "hdfs://127.0.0.1/checkpoints", endpoint, secret, process)


SERVERS: dict[str, Callable[[], contextlib.AbstractContextManager[Cloud]]] = {
    "az": azurite,
    "gs": fake_gcs,
    "hdfs": hdfs,
}


@contextlib.contextmanager
def _running(
    command: list[str],
    data: Path,
    is_ready: Callable[[], bool],
    environment: dict[str, str] | None = None,
) -> Iterator[daemon.Daemon]:
    process = daemon.start(command, log=data / "log", directory=data, environment=environment)
    try:
        deadline = time.monotonic() + READY_WITHIN_S
        while not is_ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise CloudServerError(f"{command[0]} did not come up:\n{process.log_tail()}")
            time.sleep(0.1)
        yield process
    finally:
        process.stop(grace_s=5)


@contextlib.contextmanager
def _directory(prefix: str) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True
