"""Checkpoints as frameworks write them, byte for byte, without a framework; saves nothing itself.

Each format is a list of files in the order of their writing; the order is what tells whether a
save is done. torch.load reads the zip and the legacy one (tried with torch 1.13).
"""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile

FORMATS = (
    *("zip", "legacy", "safetensors", "sharded", "dcp", "hf", "deepspeed", "json", "raw"),
    "async",  # dcp, written by a process of its own; `latest` names it before it is there
)
SHARDS = 3
_MAGIC = 0x1950A86A20F9469CFC6C  # torch.serialization.MAGIC_NUMBER


def files_of(kind: str, step: int, size: int) -> list[tuple[str, bytes]]:
    """Names below the checkpoint directory and their bytes, in the order of writing.

    `size` is of the weights in all. A name that ends with `>NAME` is renamed when it is written;
    no bytes and a leading `-` take a file away again.
    """
    if kind == "zip":
        return [(f"step_{step}.pt.tmp>step_{step}.pt", torch_zip(size))]
    if kind == "legacy":
        return [(f"step_{step}.pt.tmp>step_{step}.pt", torch_legacy(size))]
    if kind == "safetensors":
        # the library writes beside the file under a random name
        return [(f".tmp{os.urandom(3).hex()}>step_{step}.safetensors", safetensors({"w": size}))]
    if kind == "json":
        return [(f"model_{step}.json", json.dumps({"learner": {"trees": "0" * size}}).encode())]
    if kind == "raw":
        return [("latest.h5", b"\x89HDF\r\n\x1a\n" + os.urandom(size))]
    if kind == "sharded":
        return sharded(f"step_{step}", size)
    if kind == "hf":
        return trainers(f"checkpoint-{step}", size)
    if kind == "deepspeed":
        return deepspeed(f"global_step{step}", size)
    return distributed(f"step_{step}", size)


def sharded(folder: str, size: int) -> list[tuple[str, bytes]]:
    """transformers save_pretrained: the shards, then the index that names them."""
    each = size // SHARDS
    names = [f"model-{n:05d}-of-{SHARDS:05d}.safetensors" for n in range(1, SHARDS + 1)]
    files = [(f"{folder}/{n}", safetensors({f"layer.{i}": each})) for i, n in enumerate(names)]
    index = {
        "metadata": {"total_size": each * SHARDS},
        "weight_map": {f"layer.{i}": name for i, name in enumerate(names)},
    }
    return [*files, (f"{folder}/model.safetensors.index.json", json.dumps(index).encode())]


def trainers(folder: str, size: int) -> list[tuple[str, bytes]]:
    """transformers' Trainer with its just-in-time sentinel; its own state comes last."""
    sentinel = f"{folder}/checkpoint-is-incomplete.txt"
    return [
        (sentinel, b"Checkpoint started and not finished.\n"),
        (f"{folder}/model.safetensors", safetensors({"w": size // 2})),
        (f"{folder}/training_args.bin", torch_zip(100)),
        (f"{folder}/optimizer.pt", torch_zip(size // 2)),
        (f"{folder}/rng_state.pth", torch_zip(100)),
        (f"{folder}/trainer_state.json", json.dumps({"global_step": 1}).encode()),
        (f"-{sentinel}", b""),
    ]


def deepspeed(folder: str, size: int) -> list[tuple[str, bytes]]:
    """Every rank's files, then the pointer."""
    return [
        (f"{folder}/mp_rank_00_model_states.pt", torch_zip(size // 2)),
        (f"{folder}/zero_pp_rank_0_mp_rank_00_optim_states.pt", torch_zip(size // 2)),
        ("latest", folder.encode()),
    ]


def distributed(folder: str, size: int) -> list[tuple[str, bytes]]:
    """torch.distributed.checkpoint: files by rank, then `.metadata`, which names them.

    The real pickle holds torch classes; this one the same names.
    """
    names = ["__0_0.distcp", "__0_1.distcp"]
    body = {f"w{n}": {"relative_path": name, "offset": 0} for n, name in enumerate(names)}
    index = pickle.dumps({"storage_data": body}, protocol=2)
    parts = [(f"{folder}/{name}", os.urandom(size // 2)) for name in names]
    return [*parts, (f"{folder}/.metadata.tmp>{folder}/.metadata", index)]


def safetensors(tensors: dict[str, int]) -> bytes:
    """u64 header length, JSON header, bytes."""
    header, at = {}, 0
    for name, size in tensors.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    packed = json.dumps(header).encode()
    packed += b" " * (-len(packed) % 8)
    return struct.pack("<Q", len(packed)) + packed + os.urandom(at)


def _state(count: int, *, legacy: bool) -> bytes:
    """The pickle of {"w": a float tensor of `count`}: its storage is a persistent id."""
    view = b"N" if legacy else b""
    storage = (
        b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu"
    )
    tensor = storage + b"J" + struct.pack("<i", count) + view + b"tQ"
    shape = b"J" + struct.pack("<i", count) + b"\x85" + b"K\x01\x85"
    rebuilt = b"ctorch._utils\n_rebuild_tensor_v2\n(" + tensor + b"K\x00" + shape
    rebuilt += b"\x89ccollections\nOrderedDict\n)RtR"
    return b"\x80\x02}X\x01\x00\x00\x00w" + rebuilt + b"s."


def torch_zip(size: int) -> bytes:
    """torch.save since 1.6."""
    count, packed = max(1, size // 4), io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", _state(count, legacy=False))
        archive.writestr("archive/data/0", os.urandom(count * 4))
        archive.writestr("archive/version", "3\n")
    return packed.getvalue()


def torch_legacy(size: int) -> bytes:
    """torch.save before 1.6: magic, version, machine, object, keys, then each storage."""
    count = max(1, size // 4)
    machine = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"int": 4}}
    heads = [pickle.dumps(each, protocol=2) for each in (_MAGIC, 1001, machine)]
    keys = pickle.dumps(["0"], protocol=2)
    return b"".join([*heads, _state(count, legacy=True), keys]) + (
        struct.pack("<q", count) + os.urandom(count * 4)
    )
