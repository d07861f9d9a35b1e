"""Starts the supervisor or one of its probes, in the trainer's container.

    supervise -- COMMAND ARGS        wait for go.json, run the command, wait for release.json
    supervise probe … -- COMMAND     exit 0 while no trainer runs, else ask: supervisor/probe.py

Python >= 3.8. The package `supervisor` lies beside this file; Python runs isolated and would not
look there by itself.
"""

from __future__ import annotations

import os
import sys


def main(arguments):
    here = os.path.dirname(os.path.abspath(__file__))
    run = os.path.join(os.path.dirname(here), "run")
    sys.path.insert(0, here)
    sys.dont_write_bytecode = True  # the directory may be another user's
    if arguments[:1] == ["probe"]:
        from supervisor.probe import probe

        return probe(arguments[1:], run)
    command = arguments[1:] if arguments[:1] == ["--"] else arguments
    if not command:
        sys.stderr.write("usage: supervise [probe] -- COMMAND [ARGS…]\n")
        return 2
    if not os.path.isdir(run):
        sys.stderr.write("supervise: {} is missing: the sidecar makes it\n".format(run))
        return 1
    from supervisor.loop import Supervisor

    supervisor = Supervisor(command, run)
    supervisor.prepare()
    return supervisor.loop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
