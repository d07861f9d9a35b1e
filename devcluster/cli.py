"""The command line: `python -m devcluster COMMAND`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from devcluster import baseimage, binaries, certs, cgroups, requirements, state
from devcluster.api import ApiError
from devcluster.cluster import DEFAULT_GPUS, DEFAULT_NODES, Cluster, ClusterError, say_on_stderr
from devcluster.firewall import FirewallError
from devcluster.images import ImageError
from devcluster.layout import MAX_NODES
from devcluster.network import NetworkError
from devcluster.processes import ProcessError
from devcluster.status import described

EXPECTED = (
    ApiError,
    ClusterError,
    FirewallError,
    ImageError,
    NetworkError,
    ProcessError,
    baseimage.BaseImageError,
    binaries.BuildError,
    certs.CertificateError,
    cgroups.CgroupError,
    state.StateError,
)


def _nodes(text: str) -> int:
    if text.isdigit() and 1 <= int(text) <= MAX_NODES:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r}: use 1 to {MAX_NODES}")


def _gpus(text: str) -> int:
    if text.isdigit():
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r}: use a whole number, 0 or more")


def parser() -> argparse.ArgumentParser:
    main = argparse.ArgumentParser(
        prog="python -m devcluster",
        description="A real Kubernetes cluster of several nodes on this machine, with fake GPUs.",
    )
    commands = main.add_subparsers(dest="command", required=True, metavar="COMMAND")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--name", default="dev", help="which cluster (default: dev)")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, parents=[common], help=text, description=text)

    up = command("up", "bring a cluster up, or put right what is dead or cut of it")
    up.add_argument("--nodes", type=_nodes, help=f"default {DEFAULT_NODES}")
    up.add_argument("--gpus", type=_gpus, help=f"fake GPUs a node, default {DEFAULT_GPUS}")
    up.add_argument(
        "--audit", action="store_true", default=None, help="log every write to the API (Metadata)"
    )
    for flag in ("apiserver", "kcm"):
        up.add_argument(
            f"--{flag}-arg",
            action="append",
            metavar="--FLAG=VALUE",
            help=f"one more argument, repeatable; write it as --{flag}-arg=--flag=value",
        )
    command("down", "remove a cluster and every trace of it")
    status = command("status", "what runs; exit code 1 if something does not")
    status.add_argument("--json", action="store_true", help="for programs")
    kubeconfig = command("kubeconfig", "print the path of the kubeconfig file")
    kubeconfig.add_argument("--content", action="store_true", help="print the file itself")
    load = command("load", "put docker or OCI image archives into every node")
    load.add_argument("archives", nargs="+", type=Path, metavar="IMAGE.tar")
    node = command("node", "kill, cut, shut down or heal a node")
    node.add_argument(
        "action",
        choices=("kill", "cut", "shutdown", "heal"),
        help="kill: power cut; cut: network lost, processes go on; shutdown: in order, as by "
        "systemd; heal: undo any of them",
    )
    node.add_argument("node", metavar="NODE", help="such as node-2")
    wall = command("firewall", "drop packets from one address to one port on every node, or stop")
    wall.add_argument("action", choices=("block", "clear"), help="clear: drop nothing any more")
    wall.add_argument("--from", dest="source", metavar="ADDRESS", help="address or CIDR of senders")
    wall.add_argument("--port", type=int, help="TCP port that they may not reach")
    logs = command("logs", "print the end of a component's log, or name the components")
    logs.add_argument("component", nargs="?", help="such as kube-apiserver or node-1.kubelet")
    logs.add_argument("-f", "--follow", action="store_true", help="go on printing")
    logs.add_argument("-n", "--lines", type=int, default=100, help="default 100")
    commands.add_parser(
        "binaries",
        help="build what is not cached, and nothing else",
        description="Build what is not cached, and nothing else; prints where each program lies.",
    )
    base = commands.add_parser(
        "base-image",
        help="make a small Debian base image",
        description="Make a small Debian base image from the mirror that apt is set up with.",
    )
    base.add_argument("--out", type=Path, required=True, metavar="FILE", help="docker-archive")
    base.add_argument("--include", default="python3,ca-certificates", help="packages, with commas")
    base.add_argument("--image-name", default=baseimage.DEFAULT_NAME, help="default %(default)s")
    return main


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        return _run(options)
    except EXPECTED as error:
        print(f"devcluster: {error}", file=sys.stderr)
        return 1
    except PermissionError as error:
        print(f"devcluster: {error}: run it as root, for example with sudo", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of a pipe has seen enough; keep Python from flushing into it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(options: argparse.Namespace) -> int:
    if options.command == "binaries":
        return _binaries()
    if options.command == "base-image":
        include = [package for package in options.include.split(",") if package]
        baseimage.make(options.out, include=include, name=options.image_name, say=say_on_stderr)
        return 0
    cluster = Cluster(options.name)
    match options.command:
        case "up":
            cluster.up(
                nodes=options.nodes,
                gpus=options.gpus,
                audit=options.audit,
                apiserver_args=options.apiserver_arg,
                kcm_args=options.kcm_arg,
            )
            print(f"export KUBECONFIG={cluster.kubeconfig}")
        case "down":
            cluster.down()
        case "status":
            return _status(cluster, as_json=options.json)
        case "kubeconfig":
            path = cluster.existing_kubeconfig()
            print(path.read_text() if options.content else path)
        case "load":
            cluster.load(*options.archives)
        case "node":
            getattr(cluster, f"node_{options.action}")(options.node)
        case "firewall":
            _firewall(cluster, options)
        case "logs":
            return _logs(cluster, options)
    return 0


def _binaries() -> int:
    if not binaries.all_cached() and (found := requirements.missing_go()):
        raise ClusterError(requirements.explained(found))
    binaries.ensure(say_on_stderr)
    for module in binaries.MODULES:
        for program in module.programs:
            print(f"{program}\t{binaries.path(program)}")
    return 0


def _status(cluster: Cluster, *, as_json: bool) -> int:
    status = cluster.status()
    if as_json:
        print(json.dumps(status, indent=1))
        return 0 if status["ready"] else 1
    print(described(status))
    return 0 if status["ready"] else 1


def _firewall(cluster: Cluster, options: argparse.Namespace) -> None:
    if options.action == "clear":
        cluster.firewall_clear()
        return
    if options.source is None or options.port is None:
        raise FirewallError("firewall block: give --from ADDRESS and --port PORT")
    cluster.firewall_block(source=options.source, port=options.port)


def _logs(cluster: Cluster, options: argparse.Namespace) -> int:
    known = cluster.logs()
    if options.component is None:
        print("\n".join(known))
        return 0
    if options.component not in known:
        raise ClusterError(
            f"no log of {options.component!r} in cluster {cluster.name}; "
            f"there are: {', '.join(known) or 'none'}"
        )
    follow = ["-f"] if options.follow else []
    path = str(known[options.component])
    return subprocess.run(["tail", *follow, "-n", str(options.lines), path]).returncode
