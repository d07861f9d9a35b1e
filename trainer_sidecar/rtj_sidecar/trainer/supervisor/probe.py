"""The user's probes, asked of a trainer that comes and goes within one container.

Each call is its own short-lived process, run by the kubelet. While no trainer runs every probe
holds. A liveness probe counts its failures here, for each trainer anew, begins only when that
trainer's startup probe has held once, and tells the supervisor when it is out of patience: the
kubelet would end the whole container. Must never fail for a reason that is not the trainer's.

    probe --kind readiness|liveness|startup|post-start|unsupervised
          [--delay SECONDS] [--threshold TIMES] [--grace SECONDS] [--startup JSON]
          [--timeout SECONDS] (--http URL [--header "NAME: VALUE"]… | --tcp HOST:PORT | -- COMMAND)

`--startup`: {"words": […], "delay": seconds, "limit": seconds} of the startup probe.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time

from .files import read_json, write_whole

NOT_FOUND = 127
SAID_CHARACTERS = 300
HOOK_SECONDS = 30.0  # for one answer from the network
OPTIONS = (
    "--kind",
    "--delay",
    "--threshold",
    "--grace",
    "--startup",
    "--timeout",
    "--http",
    "--tcp",
)
MEMORY, UNHEALTHY = "probes.json", "unhealthy.json"


class WrongUsage(Exception):
    """The words are no probe."""


def probe(words, run):
    """Exit code of one call."""
    try:
        options = parsed(words)
    except WrongUsage as error:
        sys.stderr.write("supervise probe: {}\n".format(error))
        return 2
    kind = options.get("--kind")
    if kind == "unsupervised":
        return 0  # the supervisor itself runs the hook, at each start of a trainer
    if kind == "post-start":
        return said(asked(options))
    trainer = (read_json(os.path.join(run, "supervisor.json")) or {}).get("trainer") or {}
    if trainer.get("state") != "running":
        return 0
    return Asked(run, options, trainer).answer()


def parsed(words):
    """The options by name; `command` what comes after --, `headers` a list."""
    options = {"headers": []}
    while words and words[0] != "--":
        name = words[0]
        if len(words) < 2 or (name != "--header" and name not in OPTIONS):
            raise WrongUsage("unknown or unfinished option {}".format(name))
        if name == "--header":
            options["headers"].append(words[1])
        else:
            options[name] = words[1]
        words = words[2:]
    if words:
        options["command"] = words[1:]
    if not (options.get("command") or "--http" in options or "--tcp" in options):
        raise WrongUsage("nothing to ask: give a command after --, --http or --tcp")
    return options


def said(outcome):
    code, text = outcome
    if text:
        sys.stderr.write(text + "\n")
    return code


class Asked:
    """One call while a trainer runs."""

    def __init__(self, run, options, trainer):
        self.run = run
        self.options = options
        self.trainer = [trainer.get("attempt"), trainer.get("startedAt")]
        self.age = time.time() - float(trainer.get("startedAt") or 0)
        memory = read_json(os.path.join(run, MEMORY)) or {}
        self.memory = memory if memory.get("trainer") == self.trainer else {"trainer": self.trainer}

    def answer(self):
        is_liveness = self.options.get("--kind") == "liveness"
        startup = json.loads(self.options.get("--startup") or "null")
        if startup and not self.memory.get("started"):
            if self.age < startup["delay"]:
                return 0 if is_liveness else 1
            code, text = asked(parsed(startup["words"]))
            if code:
                if is_liveness and self.age > startup["limit"]:
                    self.give_up("its startup probe never held: {}".format(text))
                return 0 if is_liveness else said((1, text))
            self.remember(started=True)
        if self.age < float(self.options.get("--delay") or 0):
            return 0 if is_liveness else 1
        code, text = asked(self.options)
        if not is_liveness:
            return said((code, text))
        failures = self.memory.get("failures", 0) + 1 if code else 0
        if failures != self.memory.get("failures", 0):
            self.remember(failures=failures)
        if failures >= int(self.options.get("--threshold") or 3):
            self.give_up("its liveness probe failed {} times: {}".format(failures, text))
        if text:
            sys.stderr.write(text + "\n")
        return 0

    def remember(self, **facts):
        self.memory.update(facts)
        write_whole(os.path.join(self.run, MEMORY), self.memory)

    def give_up(self, why):
        grace = self.options.get("--grace")
        word = {"trainer": self.trainer, "message": why}
        if grace is not None:
            word["graceSeconds"] = float(grace)
        write_whole(os.path.join(self.run, UNHEALTHY), word)


def asked(options):
    """(exit code, what was said) of the handler itself. Only a hook has no timeout of its own."""
    stated = options.get("--timeout")
    timeout = float(stated) if stated else HOOK_SECONDS
    if "--http" in options:
        return http(options["--http"], options["headers"], timeout)
    if "--tcp" in options:
        return tcp(options["--tcp"], timeout)
    return execute(options["command"], timeout if stated else None)


def execute(command, timeout):
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        return 1, "{!r} took longer than {:g} s".format(command[0], timeout)
    except OSError as error:
        return NOT_FOUND, "cannot execute {!r}: {}".format(command[0], error)
    text = done.stdout.decode("utf-8", "replace").strip()[-SAID_CHARACTERS:]
    if not done.returncode:
        return 0, text
    return done.returncode & 0xFF, "exit code {}: {}".format(done.returncode, text)


def own_address():
    """This pod's address, which the kubelet would ask; a server may not listen on loopback."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def http(url, headers, timeout):
    """As the kubelet does: any status from 200 to 399 is success, certificates are not checked."""
    code, text = http_once(url, headers, timeout)
    if code and "://127.0.0.1:" in url and "refused" in text:
        return http_once(url.replace("127.0.0.1", own_address(), 1), headers, timeout)
    return code, text


def http_once(url, headers, timeout):
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
            return (0, "") if 200 <= answer.status < 400 else (1, "status {}".format(answer.status))
    except urllib.error.HTTPError as error:
        return 1, "{}: HTTP status {}".format(url, error.code)
    except (OSError, ValueError) as error:
        return 1, "{}: {}".format(url, error)


def tcp(address, timeout):
    host, _, port = address.rpartition(":")
    hosts = [host.strip("[]")]
    if hosts == ["127.0.0.1"]:
        hosts.append(own_address())
    text = ""
    for one in hosts:
        try:
            socket.create_connection((one, int(port)), timeout=timeout).close()
            return 0, ""
        except (OSError, ValueError) as error:
            text = "{}: {}".format(address, error)
    return 1, text
