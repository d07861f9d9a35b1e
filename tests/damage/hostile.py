"""Files made to harm: to run code, to lead elsewhere, to take memory or time without end.

None of them is ever loaded by its framework here; what counts is that a look at them is cheap,
executes nothing and does not take them for good.
"""

from __future__ import annotations

import os
import pickle
import struct

from kit.damage import Damage, both
from kit.handmade import pickled
from rtj_sidecar.checkpoints.types import Reason, Status

from damage.acts import (
    added,
    copied,
    directory_at,
    edited,
    fifo,
    hard_linked,
    linked,
    socket_at,
)
from damage.case import Case, Kind, Pick, fine
from damage.hostile_files import (
    Payload,
    chain_of_nothing,
    copies_of_one_text,
    deep_json,
    deep_pickle,
    grid_without_end,
    header_of_tiny_values,
    huge_header,
    impossible_shape,
    large_keys,
    laughing_key,
    lying_count,
    lying_offset,
    lying_size,
    made,
    many_bombs,
    metadata_of,
    million_members,
    one_name_of_every_length,
    overlapping_members,
    overlapping_tensors,
    packed_member,
    payload,
    payload_of_each_opcode,
    state_of_many_ranks,
    table_of_tiny_entries,
    torch_of,
    twice_the_same_name,
    zip_bomb,
    zip_of,
)

H, L = Kind.HOSTILE, Kind.PLACE
TORN, GOOD = Status.TORN, Status.VERIFIED
PT = "ckpt_1000.pt"
HF = "checkpoint-1000"
SHARD = "step_1000/model-00002-of-00002.safetensors"


def _torn(name: str, tree: str, damage: Damage, reason: Reason, kind: Kind = H) -> Case:
    return Case(name, kind, tree, damage, TORN, reason)


HARM = (
    Case("a payload in a torch file runs a command when it is loaded", H, "torch",
         made(PT, payload), GOOD, Reason.OK, Pick.NEWER, report="CVE-2025-32434"),
    Case("the same by every other opcode that calls", H, "torch",
         made(PT, payload_of_each_opcode), GOOD, Reason.OK, Pick.NEWER),
    Case("a payload in training_args.bin", H, "hf", made(f"{HF}/training_args.bin", payload), GOOD,
         Reason.OK, Pick.NEWER, report="Dao-AILab/flash-attention#2585"),
    _torn("a payload in .metadata", "dcp",
          made("step-1000/.metadata", lambda: pickle.dumps(Payload(), 2)), Reason.MARKER_INVALID),
    Case("a pickle a hundred thousand levels deep", H, "torch", made(PT, deep_pickle), GOOD,
         Reason.OK, Pick.NONE),
    Case("a pickle that makes copies of one text without end", H, "torch",
         made(PT, copies_of_one_text), GOOD, Reason.OK, Pick.NONE),
    Case("a pickle of names without end", H, "torch", made(PT, one_name_of_every_length), GOOD,
         Reason.OK, Pick.NONE),
    Case("a pickle of keys that are slow to hash", H, "torch", made(PT, large_keys), GOOD,
         Reason.OK, Pick.OLDER),
    Case("a key that doubles sixty times", H, "torch-legacy", made(PT, laughing_key),
         Status.SETTLED, Reason.OK, Pick.OLDER),
    _torn("a zip bomb", "torch", made(PT, zip_bomb), Reason.UNSAFE_ENTRY),
    _torn("many small zip bombs", "torch", made(PT, many_bombs), Reason.UNSAFE_ENTRY),
    Case("a million members in a zip directory", H, "torch", made(PT, million_members),
         Status.SETTLED, Reason.OK, Pick.NONE),
    _torn("a member that states two gigabytes", "torch", made(PT, lying_size), Reason.MALFORMED),
    _torn("a directory that states a trillion members", "torch", made(PT, lying_count),
          Reason.MALFORMED),
    _torn("a member far outside the file", "torch", made(PT, lying_offset), Reason.TRUNCATED),
    _torn("ten bytes that lie packed in two gigabytes", "torch", packed_member, Reason.MALFORMED),
    _torn("members that overlap", "torch", made(PT, overlapping_members), Reason.MALFORMED),
    _torn("two members of one name", "torch", made(PT, twice_the_same_name), Reason.MALFORMED),
    _torn("a member named ../../etc/passwd", "torch",
          made(PT, lambda: torch_of(pickled({"step": 1000}), **{"../../etc/passwd": b"x"})),
          Reason.UNSAFE_ENTRY),
    _torn("a member with an absolute name", "torch",
          made(PT, lambda: torch_of(pickled({"step": 1000}), **{"/etc/passwd": b"x"})),
          Reason.UNSAFE_ENTRY),
    _torn("a zip file without data.pkl", "torch", made(PT, lambda: zip_of({"a/x": b"y"})),
          Reason.MALFORMED),
    _torn("a shard of 400,000 empty archives", "dcp",
          made("step-1000/__1_0.distcp", chain_of_nothing), Reason.MIXED_GENERATIONS),
    _torn(".metadata names a file outside", "dcp",
          made("step-1000/.metadata", lambda: metadata_of("../../secret")), Reason.MARKER_INVALID),
    _torn(".metadata states an exabyte", "dcp",
          made("step-1000/.metadata", lambda: metadata_of("__0_0.distcp", length=1 << 60)),
          Reason.TRUNCATED),
    _torn("a header of 90 MB of nothing", "safetensors", made(SHARD, huge_header),
          Reason.MALFORMED),
    Case("a header of ten million empty lists", H, "safetensors",
         made(SHARD, header_of_tiny_values), GOOD, Reason.OK, Pick.NEWER),
    _torn("a header length of an exabyte", "safetensors",
          edited(SHARD, lambda c: struct.pack("<Q", 1 << 60) + c[8:]), Reason.MALFORMED),
    _torn("a shape of more bytes than there are", "safetensors", made(SHARD, impossible_shape),
          Reason.MALFORMED),
    _torn("tensors that overlap", "safetensors", made(SHARD, overlapping_tensors),
          Reason.MALFORMED),
    _torn("JSON 200,000 levels deep", "hf", made(f"{HF}/trainer_state.json", deep_json),
          Reason.MARKER_INVALID),
    _torn("a tracker of JSON 200,000 levels deep", "megatron",
          made("iter_0001000/metadata.json", deep_json), Reason.MARKER_INVALID),
    Case("an index of three million tiny entries", H, "tf",
         made("ckpt-1000.index", table_of_tiny_entries), Status.SETTLED, Reason.OK, Pick.NONE),
    _torn("a state of 2**120 ranks", "deepspeed-2",
          made("global_step1000/mp_rank_00_model_states.pt", state_of_many_ranks),
          Reason.FILES_MISSING),
    _torn("a grid of 2**120 ranks", "megatron-legacy",
          made("iter_0001000/mp_rank_00/model_optim_rng.pt", grid_without_end),
          Reason.FILES_MISSING),
    _torn("a rank of 10**17 in a name", "torch",
          both(copied(PT, "ckpt_1000_rank0.pt"),
               copied(PT, "ckpt_1000_rank99999999999999999.pt")), Reason.FILES_MISSING),
)  # fmt: skip

PLACES = (
    _torn("a link to another save's shard", "dcp",
          linked("step-1000/__1_0.distcp", "../step-900/__1_0.distcp"), Reason.FILES_MISSING, L),
    _torn("a link out of the directory", "hf", linked(f"{HF}/optimizer.pt", "/etc/passwd"),
          Reason.FILES_MISSING, L),
    _torn("a link to a device", "hf", linked(f"{HF}/optimizer.pt", "/dev/zero"),
          Reason.FILES_MISSING, L),
    _torn("a FIFO where a shard should be", "dcp", fifo("step-1000/__1_0.distcp"),
          Reason.FILES_MISSING, L),
    _torn("a FIFO where the marker should be", "hf", fifo(f"{HF}/trainer_state.json"),
          Reason.MARKER_MISSING, L),
    _torn("a socket where a file should be", "hf", socket_at(f"{HF}/optimizer.pt"),
          Reason.FILES_MISSING, L),
    _torn("a directory where a file should be", "hf", directory_at(f"{HF}/optimizer.pt"),
          Reason.FILES_MISSING, L),
    Case("a link where the save should be", L, "torch", linked(PT, "ckpt_900.pt"), None),
    fine("a second name of one of its files", L, "hf",
         hard_linked("outside.bin", f"{HF}/config.json")),
    fine("a name with a line break", L, "torch", added("a\nb_7.txt")),
    fine("a name that is no UTF-8", L, "torch", added(os.fsdecode(b"ckpt_\xff\xfe.bin"))),
    fine("a name with a terminal's control characters", L, "torch", added("\x1b[2Jx.txt")),
    fine("a name like an option", L, "torch", added("--rm -rf.txt")),
    fine("a name of 255 bytes", L, "torch", added("x" * 255)),
)  # fmt: skip

CASES = (*HARM, *PLACES)
