"""A probe of the user's, asked only while a trainer runs. Its own short-lived process."""

from __future__ import annotations

import os
import sys

from .files import read_json

NOT_FOUND = 127


def probe(words, run):
    """Exit code of a probe: 0 while no trainer runs, else what the probe says."""
    state = read_json(os.path.join(run, "supervisor.json")) or {}
    if (state.get("trainer") or {}).get("state") != "running":
        return 0
    options, headers = {}, []
    while words and words[0] != "--":
        name, value = words[0], words[1] if len(words) > 1 else ""
        if name == "--header":
            headers.append(value)
        elif name in ("--http", "--tcp", "--timeout"):
            options[name] = value
        else:
            sys.stderr.write("supervise probe: unknown option {}\n".format(name))
            return 2
        words = words[2:]
    timeout = float(options.get("--timeout") or 1)
    if "--http" in options:
        return http_probe(options["--http"], headers, timeout)
    if "--tcp" in options:
        return tcp_probe(options["--tcp"], timeout)
    return execute(words[1:])


def execute(command):
    if not command:
        sys.stderr.write("supervise probe: no command after --\n")
        return 2
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write("supervise: cannot execute {!r}: {}\n".format(command[0], error))
    return NOT_FOUND


def http_probe(url, headers, timeout):
    """As the kubelet does: any status from 200 to 399 is success, certificates are not checked."""
    import ssl
    import urllib.error
    import urllib.request

    request = urllib.request.Request(url)
    for header in headers:
        name, _, value = header.partition(":")
        request.add_header(name.strip(), value.strip())
    handlers = [urllib.request.ProxyHandler({})]
    if url.startswith("https:"):
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        handlers.append(urllib.request.HTTPSHandler(context=context))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout) as answer:
            return 0 if 200 <= answer.status < 400 else 1
    except urllib.error.HTTPError as error:
        sys.stderr.write("HTTP status {}\n".format(error.code))
    except (OSError, ValueError) as error:
        sys.stderr.write("{}\n".format(error))
    return 1


def tcp_probe(address, timeout):
    import socket

    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=timeout).close()
        return 0
    except (OSError, ValueError) as error:
        sys.stderr.write("{}\n".format(error))
        return 1
