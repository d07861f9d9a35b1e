#!/bin/sh
# Finds a Python for supervise.py, which lies beside this file. Without one plain.sh supervises as
# well as a shell can. Must never fail where plain `exec` of the command would not.
here=${0%/*}
run=${here%/*}/run
known=
# A probe comes often: it takes the Python that the supervisor runs on.
[ "$1" != probe ] || read -r known 2>/dev/null <"$run/python"
[ -z "$known" ] || exec "$known" -I -S -u "$here/supervise.py" "$@"
for python in python3 python /usr/bin/python3 /usr/local/bin/python3 /opt/conda/bin/python; do
    # -I -S: neither the user's PYTHONPATH nor a module in the working directory may be ours.
    if "$python" -I -S -c 'import sys, json, select, signal, subprocess, threading
sys.exit(sys.version_info < (3, 8))' >/dev/null 2>&1; then
        exec "$python" -I -S -u "$here/supervise.py" "$@"
    fi
done
if [ "$1" = probe ]; then
    hook=$3 # after --kind
    while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done
    [ $# -gt 0 ] || exit 0 # an HTTP or TCP probe: nothing here can ask it
    shift
    state=
    read -r state 2>/dev/null <"$run/supervisor.json"
    case $hook$state in
        unsupervised* | *'"state":"running"'*) exec "$@" ;;
    esac
    exit 0
fi
[ "$1" = -- ] && shift
. "$here/plain.sh"
