"""Each row of the table of log signatures, by a line as the library prints it; hostile logs."""

from __future__ import annotations

import re

import pytest
from rtj_api.rules.origins import Origin
from rtj_api.rules.signatures import MAX_LINE, MAX_LINES, SIGNATURES, find, fingerprint
from rtj_api.rules.xids import BUCKETS, bucket_of

LINES = {
    "GpuLost": [
        "RuntimeError: No CUDA-capable device is detected",
        "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    ],
    "DriverMismatch": ["Failed to initialize NVML: Driver/library version mismatch"],
    "GpuOutOfMemory": [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total",
    ],
    "DeviceAssert": ["RuntimeError: CUDA error: device-side assert triggered"],
    "IllegalMemoryAccess": [
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "torch.distributed.DistBackendError: NCCL error ... ncclUnhandledCudaError: Call to CUDA",
    ],
    "SharedMemoryFull": [
        "RuntimeError: unable to open shared memory object </torch_1_2> in read-write mode",
        "It is possible that dataloader's workers are out of shared memory: insufficient shared "
        "memory (shm)",
    ],
    "DiskFull": ["OSError: [Errno 28] No space left on device: '/checkpoints/step_5.tmp'"],
    "CheckpointUnreadable": [
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central dir",
        "_pickle.UnpicklingError: invalid load key, '<'.",
        "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
        "EOFError: Ran out of input",
    ],
    "StateMismatch": [
        "RuntimeError: Error(s) in loading state_dict for GPT:",
        "\tsize mismatch for lm_head.weight: copying a param with shape torch.Size([8, 4])",
        "ValueError: loaded state dict contains a parameter group that doesn't match the size of",
    ],
    "StoreDenied": [
        "botocore.exceptions.ClientError: An error occurred (ExpiredToken) when calling PutObject",
        "botocore.exceptions.NoCredentialsError: Unable to locate credentials",
    ],
    "NotANumber": [
        "ValueError: loss is nan at step 812",
        "FloatingPointError: non-finite grad norm",
    ],
    "CollectiveMismatch": [
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running ALLREDUCE",
    ],
    "CollectiveTimeout": [
        "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=17, OpType="
        "ALLREDUCE, Timeout(ms)=600000) ran for 600013 milliseconds before timing out.",
        "RuntimeError: Timed out waiting 1800000ms for recv operation to complete",
    ],
    "NetworkFault": [
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed",
        "NET/IB : Got completion from peer 198.18.0.1 with error 12, opcode 0, len 0",
        "mlx5_core 0000:5e:00.0 ib0: Link down",
    ],
    "RendezvousTimeout": [
        "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 1/2",
        "RendezvousTimeoutError",
    ],
    "AddressInUse": [
        "The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use)"
    ],
    "ModuleMissing": ["ModuleNotFoundError: No module named 'flash_attn'"],
    "PeerLost": [
        "ncclRemoteError: A call failed possibly due to a network error or a remote process",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by "
        "peer [127.0.0.1]:8871",
    ],
}


def test_every_row_has_a_line() -> None:
    assert set(LINES) == {row.name for row in SIGNATURES}


@pytest.mark.parametrize(
    ("name", "line"), [(name, line) for name, lines in LINES.items() for line in lines]
)
def test_a_line_shows_its_signature(name: str, line: str) -> None:
    found = find(["step 5 loss=1.25", line, "Traceback (most recent call last):"])
    assert found is not None
    assert (found.name, found.line) == (name, line.strip())
    assert found.is_victim == (name == "PeerLost")


@pytest.mark.parametrize(
    "line",
    [
        "step 12000 | loss 0.1520 | lr 1e-4",
        "saved /checkpoints/model_epoch-0010_step-012000_loss-0.1520.pt",
        "KeyError: 'input_ids'",
        "INFO connection established",
        "Xid",
        "",
    ],
)
def test_an_ordinary_line_shows_nothing(line: str) -> None:
    assert find([line]) is None


def test_the_cause_comes_before_what_follows_from_it() -> None:
    lines = ["Connection reset by peer", "CUDA error: device-side assert triggered", "Broken pipe"]
    found = find(lines)
    assert found is not None
    assert found.name == "DeviceAssert"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.", "Xid79"),
        ("kernel: NVRM: Xid (PCI:0000:86:00): 48, pid='<unknown>', DBE", "Xid48"),
        ("NVRM: Xid (0000:03:00): 31, Ch 00000010, MMU Fault", "Xid31"),
        ("NVRM: Xid 94", "Xid94"),
    ],
)
def test_an_xid_is_named_by_its_number(line: str, name: str) -> None:
    found = find([line])
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize("number", [43, 45, 63, 0, 200])
def test_an_xid_that_says_nothing_alone_is_no_signature(number: int) -> None:
    assert find([f"NVRM: Xid (PCI:0000:3b:00): {number}, x"]) is None


@pytest.mark.parametrize(
    ("line", "origin"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", Origin.NODE),
        ("NVRM: Xid (PCI:0000:3b:00): 13, Graphics Exception", Origin.PLACE),
        # 154: the driver names the action itself.
        ("Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 to 0x2", Origin.NODE),
        ("Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x1 to 0x0", None),
        ("Xid (PCI:0000:3b:00): 154", Origin.PLACE),
    ],
)
def test_an_xid_says_where_it_may_come_from(line: str, origin: Origin | None) -> None:
    found = find([line])
    assert (found.origin if found is not None else None) == origin


@pytest.mark.parametrize(
    ("line", "other", "same"),
    [
        ("ValueError: bad batch 17 at 0x7f3a", "ValueError: bad batch 9 at 0x7F00", True),
        ("ValueError: bad batch 17", "KeyError: bad batch 17", False),
        ("x" * 5000, "x" * 200, True),
        ("", "  ", True),
    ],
)
def test_last_lines_are_compared_without_their_numbers(line: str, other: str, same: bool) -> None:
    assert (fingerprint(line) == fingerprint(other)) == same
    assert len(fingerprint(line)) <= 80


def test_no_xid_is_in_two_rows() -> None:
    numbers = [number for bucket in BUCKETS for number in bucket.numbers]
    assert len(numbers) == len(set(numbers))
    assert bucket_of(79) is not None
    assert bucket_of(142) is None


def test_only_the_last_lines_and_their_beginnings_are_read() -> None:
    line = "CUDA error: device-side assert triggered"
    assert find([line, *["x"] * MAX_LINES]) is None
    assert find([*["x"] * MAX_LINES, line]) is not None
    assert find(["x" * MAX_LINE + line]) is None


@pytest.mark.parametrize("pattern", [p for row in SIGNATURES for p in row.patterns])
def test_no_pattern_repeats_what_repeats(pattern: str) -> None:
    """Else a hostile line could take exponential time."""
    assert not re.search(r"[+*}]\)[+*{]", pattern)
    assert ".*" not in pattern
    assert ".+" not in pattern


@pytest.mark.parametrize("piece", ["a", "uncorrectable ", "ib0 ", "got completion ", "Xid (", "["])
def test_a_hostile_log_shows_nothing(piece: str) -> None:
    assert find([piece * 10_000] * 1000) is None
