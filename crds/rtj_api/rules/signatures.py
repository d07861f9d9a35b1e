"""What a trainer's last words say of the cause, where an exit code cannot: one table, in order.

Source: `failures-and-formulas` D3 and D4. torchrun turns every death into exit code 1; the lines
before it tell a full disk from a lost GPU. A signature names the cause for people and says where a
fault may come from (`rules.origins`); what that proposes is believed only a few times, for a log
line alone convicts nobody. The most telling row stands first; rows that only victims print stand
last. Patterns hold no nested repetition and see bounded lines, so no
log, however hostile, takes long. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from rtj_api.rules.origins import Origin
from rtj_api.rules.xids import RECOVERY_ACTION, action_of, bucket_of

MAX_LINES, MAX_LINE = 400, 600


@dataclass(frozen=True, slots=True)
class Signature:
    """One row. `patterns`: any of them, in one line, without regard to case. `is_victim`: the rank
    that prints it suffers from another's end."""

    name: str
    origin: Origin
    patterns: tuple[str, ...]
    meaning: str
    remedy: str
    is_victim: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """A signature in a log: `line` is the one that shows it, `text` what to tell a person."""

    name: str
    origin: Origin
    line: str
    meaning: str
    remedy: str
    is_victim: bool = False

    @property
    def text(self) -> str:
        return f"{self.name}: {self.meaning}. {self.remedy}"


SIGNATURES: tuple[Signature, ...] = (
    Signature(
        "GpuLost",
        Origin.NODE,
        (
            r"fallen off the bus",
            r"uncorrectable (nvlink|ecc)|uncorrectable.{0,20} ecc",
            r"no cuda-capable device is detected",
            r"unable to determine the device handle",
            r"cuda error: (device is busy or unavailable|system not yet initialized)",
        ),
        "the GPU of this rank failed or vanished",
        "Drain the node and look at its GPU (`nvidia-smi -q`, `dmesg | grep Xid`)",
    ),
    Signature(
        "DriverMismatch",
        Origin.NODE,
        (
            r"driver/library version mismatch",
            r"cuda driver version is insufficient",
            r"system has unsupported display driver / cuda driver combination",
            r"compatibility mode, but the hardware does not support",
        ),
        "the node's GPU driver does not fit the image's CUDA",
        "Update the driver of that node, or use an image for its version",
    ),
    Signature(
        "GpuOutOfMemory",
        Origin.PLACE,
        (
            r"cuda out of memory",
            r"torch\.(cuda\.)?outofmemoryerror",
            r"resource_exhausted: out of memory",
        ),
        "the GPU's memory did not suffice",
        "Lower the batch or sequence length, or shard more; if another process holds the memory "
        "(nvidia-smi), end it",
    ),
    Signature(
        "DeviceAssert",
        Origin.PROGRAM,
        (
            r"device-side assert triggered",
            r"indexselectlargeindex",
            r"scattergatherkernel.{0,80}assert",
        ),
        "a CUDA kernel found an index or label out of bounds",
        "Look at the batch of that step (labels, vocabulary size); CUDA_LAUNCH_BLOCKING=1 names "
        "the operation",
    ),
    Signature(
        "IllegalMemoryAccess",
        Origin.PLACE,
        (r"an illegal memory access was encountered", r"ncclunhandledcudaerror"),
        "a CUDA kernel touched memory that is not its own",
        "Mostly the program or a kernel library; if it stays with one node, its GPU",
    ),
    Signature(
        "SharedMemoryFull",
        Origin.PROGRAM,
        (
            r"unable to (open|mmap|write) .{0,60}shared memory",
            r"insufficient shared memory \(shm\)",
            r"bus error.{0,80}shared memory",
        ),
        "/dev/shm is too small for the data loader's workers",
        "Mount an emptyDir with medium: Memory at /dev/shm, or lower num_workers",
    ),
    Signature(
        "DiskFull",
        Origin.OPEN,
        (r"no space left on device", r"\benospc\b", r"disk quota exceeded"),
        "a volume is full",
        "Make the volume larger, or let the trainer keep fewer checkpoints",
    ),
    Signature(
        "CheckpointUnreadable",
        Origin.CHECKPOINT,
        (
            r"pytorchstreamreader failed",
            r"(unexpected eof|unpicklingerror|invalid load key)",
            r"safetensorerror|error while deserializing header",
            r"no such file or directory: .{0,300}\.metadata",
            r"ran out of input",
        ),
        "the trainer could not read a checkpoint file",
        "If it is the resumed save, say so: `rtj checkpoints mark JOB SAVE invalid --reason ...`; "
        "the next older one is taken then",
    ),
    Signature(
        "StateMismatch",
        Origin.PROGRAM,
        (
            r"error\(s\) in loading state_dict",
            r"size mismatch for \S+",
            r"(missing|unexpected) key\(s\) in state_dict",
            r"loaded state dict contains a parameter group that doesn't match",
        ),
        "the checkpoint's keys or shapes are not those of the model",
        "The code or its configuration changed since the save: undo it, or begin a new run; an "
        "older save will not help",
    ),
    Signature(
        "StoreDenied",
        Origin.PASSING,
        (
            r"\b(accessdenied|invalidaccesskeyid|signaturedoesnotmatch|expiredtoken|nosuchbucket)\b",
            r"unable to locate credentials",
        ),
        "the trainer's own access to object storage was refused",
        "Look at the trainer's credentials, bucket and their expiry",
    ),
    Signature(
        "NotANumber",
        Origin.OPEN,
        (
            r"loss (is|was|became) (nan|inf|not finite)",
            r"(nan|inf) (loss|detected|or inf found)",
            r"non-finite (loss|grad)",
            r"loss=nan\b",
        ),
        "the loss or a gradient is no number any more",
        "Look at the data of that step and the learning rate; begin again from "
        "an older save with spec.resumeFrom",
    ),
    Signature(
        "CollectiveMismatch",
        Origin.PROGRAM,
        (
            r"detected mismatch between collectives",
            r"collective.{0,60}mismatch",
            r"mismatched (sizes|op)",
        ),
        "the ranks did not call the same collective operation",
        "A branch that only some ranks take: TORCH_DISTRIBUTED_DEBUG=DETAIL names it",
    ),
    Signature(
        "CollectiveTimeout",
        Origin.PASSING,
        (
            r"watchdog caught collective operation timeout",
            r"collective operation timeout",
            r"timed out waiting \d+ ?ms for (recv|send) operation",
        ),
        "a collective operation did not end in time: some rank is not in it",
        "Look at the rank that printed no such line: it hung, loads data too slowly, or its node "
        "is cut off",
    ),
    Signature(
        "NetworkFault",
        Origin.NETWORK,
        (
            r"ncclsystemerror",
            r"ibv_\w+ failed|got completion .{0,80}error|transport retry counter exceeded",
            r"\b(mlx5_\d+|ib\w*)\b.{0,60}(link down|port error)",
        ),
        "the network between GPUs failed",
        "Look at that node's links (`ibstat`, `dmesg`); NCCL_DEBUG=INFO says which",
    ),
    Signature(
        "RendezvousTimeout",
        Origin.PASSING,
        (
            r"rendezvous.{0,40}timed? ?out",
            r"timed out after \d+ seconds waiting for clients",
            r"timed out waiting for all .{0,20}(nodes|ranks|workers)",
        ),
        "not all ranks met in time",
        "Look at the rank that is missing: its pod, its start, its network",
    ),
    Signature(
        "AddressInUse",
        Origin.PASSING,
        (r"address already in use", r"\beaddrinuse\b"),
        "the rendezvous port is taken",
        "An older process still holds it, or two jobs share a host's network: choose another port",
    ),
    Signature(
        "ModuleMissing",
        Origin.PROGRAM,
        (r"modulenotfounderror|importerror: cannot import", r"no module named '?\S+"),
        "a Python module is missing in the image",
        "Install it in the image, or correct PYTHONPATH",
    ),
    Signature(
        "PeerLost",
        Origin.PASSING,
        (
            r"ncclremoteerror",
            r"connection (reset|closed) by peer",
            r"broken pipe",
            r"\[?gloo\]?.{0,200}connection (closed|refused)",
        ),
        "another rank's end broke the connection",
        "This rank is a victim: look at the one that ended first",
        is_victim=True,
    ),
)
_COMPILED = tuple(
    (row, tuple(re.compile(pattern, re.IGNORECASE) for pattern in row.patterns))
    for row in SIGNATURES
)
_XID = re.compile(r"\bXid\b[^,]{0,60}?[:\s](\d{1,3})\b(?![:)])")


def find(lines: Iterable[str]) -> Found | None:
    """The most telling signature in the last lines of a log (oldest first); None without any.

    Looks at the last 400 lines and at the first 600 characters of each.
    """
    bounded = [line[:MAX_LINE] for line in list(lines)[-MAX_LINES:]]
    for line in bounded:
        if (xid := _xid(line)) is not None:
            return xid
    for row, patterns in _COMPILED:
        for line in bounded:
            if any(pattern.search(line) for pattern in patterns):
                return Found(
                    row.name, row.origin, line.strip(), row.meaning, row.remedy, row.is_victim
                )
    return None


def _xid(line: str) -> Found | None:
    if "Xid" not in line:
        return None
    number = next((int(match.group(1)) for match in _XID.finditer(line)), None)
    bucket = bucket_of(number) if number is not None else None
    if number is None or bucket is None or bucket.is_sympathetic:
        return None
    origin = bucket.origin
    if number == RECOVERY_ACTION:
        action = action_of(line)
        if action == 0:
            return None
        origin = Origin.PLACE if action is None else Origin.NODE
    return Found(f"Xid{number}", origin, line.strip(), bucket.meaning, bucket.remedy)


_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
_FINGERPRINT = 80


def fingerprint(line: str) -> str:
    """What two faults' last lines have in common: without numbers and addresses, bounded."""
    bare = _NUMBERS.sub("#", line[:MAX_LINE])
    return " ".join(bare.split())[:_FINGERPRINT]
