#!/bin/sh
# Finds a Python for supervise.py, which lies beside this file. Without one the command is run as
# it is, and a file tells the sidecar that nobody supervises it. Must never fail where plain
# `exec` of the command would not.
here=${0%/*}
run=${here%/*}/run
for python in python3 python /usr/bin/python3 /usr/local/bin/python3 /opt/conda/bin/python; do
    # -I -S: neither the user's PYTHONPATH nor a module in the working directory may be ours.
    if "$python" -I -S -c 'import sys, json, select, signal, subprocess, threading
sys.exit(sys.version_info < (3, 8))' >/dev/null 2>&1; then
        exec "$python" -I -S -u "$here/supervise.py" "$@"
    fi
done
if [ "$1" = probe ]; then
    shift
    [ "$1" = -- ] || exit 0 # an HTTP or TCP probe: nothing here can ask it
else
    echo "no python3 >= 3.8 in the trainer's image" >"$run/unsupervised.tmp" 2>/dev/null &&
        mv "$run/unsupervised.tmp" "$run/unsupervised" 2>/dev/null
fi
[ "$1" = -- ] && shift
exec "$@"
