"""Start one detached process, in new or existing namespaces, and print its host pid.

Run as a script in a fresh single-threaded interpreter (forking a threaded one can deadlock), it
reads one JSON request from argv[1] and must never be imported for its effects. Keys:

argv      list, the program (absolute path) and its arguments
log       file that gets stdout and stderr, appended
env       dict, the whole environment
cgroups   list of `cgroup.procs` files to join before the program starts
join      host pid whose mnt, pid, net, uts and ipc namespaces to enter, or null
unshare   true: the program becomes PID 1 of new namespaces of those five kinds
"""

import ctypes
import json
import os
import socket
import struct
import sys
from typing import Any

# include/uapi/linux/sched.h
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
ALL = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
# The mount namespace comes last: entering it hides this machine's /proc.
NAMESPACES = ("pid", "net", "uts", "ipc", "mnt")


def checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def run_program(request: dict[str, Any], log: int) -> None:
    os.chdir("/")
    null = os.open("/dev/null", os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    try:
        os.execve(request["argv"][0], request["argv"], request["env"])
    except OSError as error:
        os.write(2, f"cannot start {request['argv'][0]}: {error}\n".encode())
    os._exit(127)


def main() -> None:
    request = json.loads(sys.argv[1])
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for procs in request["cgroups"]:
        with open(procs, "w", encoding="ascii") as file:
            file.write("0")
    os.setsid()
    libc = ctypes.CDLL(None, use_errno=True)
    if request.get("unshare"):
        checked(libc.unshare(ALL), "unshare")
        pid = os.fork()
        if pid == 0:
            run_program(request, log)
        print(pid)
        return
    if request.get("join"):
        handles = [os.open(f"/proc/{request['join']}/ns/{kind}", 0) for kind in NAMESPACES]
        for kind, handle in zip(NAMESPACES, handles, strict=True):
            checked(libc.setns(handle, 0), f"setns {kind}")
            os.close(handle)
    # Two forks, so that the program's parent is init (the node's, if one was joined), which
    # reaps it. Its own idea of its pid is the node's; the kernel translates the one that
    # arrives with SCM_CREDENTIALS.
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    here.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    middle = os.fork()
    if middle == 0:
        if os.fork() == 0:
            there.send(b"!")
            run_program(request, log)
        os._exit(0)
    os.waitpid(middle, 0)
    here.settimeout(10)
    _, ancillary, _, _ = here.recvmsg(1, socket.CMSG_SPACE(12))
    print(struct.unpack("iII", ancillary[0][2])[0])


if __name__ == "__main__":
    main()
