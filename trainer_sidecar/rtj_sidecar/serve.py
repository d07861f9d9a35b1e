"""The process around one agent: arguments, log, signals.

Exit code 2 for a wrong environment, 3 where its port is taken; otherwise runs until SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import logging
import signal
import sys
from pathlib import Path

from rtj_api.log_lines import JsonLines

from rtj_sidecar.agent import Agent
from rtj_sidecar.config import ConfigError, Site, read_site
from rtj_sidecar.standby import Standby


class PortTaken(Exception):
    """Another program listens where this sidecar should."""


async def serve(site: Site) -> None:
    """Run one agent until SIGTERM or SIGINT; in a spare, as soon as it has a rank."""
    work = asyncio.create_task(_wait_and_work(site))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await work
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        # On the host's network: the pod is replaced, and a new one has another port.
        raise PortTaken(f"port {site.port} is taken on this node: {error.strerror}") from error


async def _wait_and_work(site: Site) -> None:
    if site.config.spare is not None:
        site = await Standby(site).until_placed()
    agent = Agent(site)
    try:
        await agent.start()
        await agent.run()
    finally:
        await agent.close()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m rtj_sidecar",
        description="Finds, proves, ships and restores the checkpoints of one trainer.",
        epilog="Reads RTJ_CONFIG (JSON of a SidecarConfig), RTJ_POD_UID and RTJ_POD_NAME.",
    )
    parser.add_argument(
        "--run-dir", type=Path, help="in place of /rtj: holds bin/supervise and run/"
    )
    parser.add_argument(
        "--podinfo", type=Path, help="in place of /rtj-podinfo: holds the file `directive`"
    )
    parser.add_argument("--bind", help="address of the HTTP port (default: every interface)")
    arguments = parser.parse_args()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(component="sidecar"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    try:
        site = read_site(root=arguments.run_dir, podinfo=arguments.podinfo, bind=arguments.bind)
    except ConfigError as error:
        print(f"rtj_sidecar: {error}", file=sys.stderr)
        return 2
    about = {"job": f"{site.config.namespace}/{site.config.job}", "pod_uid": site.pod_uid}
    handler.setFormatter(JsonLines(component="sidecar", constant=about))
    try:
        asyncio.run(serve(site))
    except PortTaken as error:
        print(f"rtj_sidecar: {error}", file=sys.stderr)
        return 3
    return 0
