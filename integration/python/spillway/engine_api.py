"""Calls of this process's engine, over the C table of integration/engine/spillway.h.

The preload opens the engine for itself alone, so this module searches the loaded libraries for it and loads none. Any thread
may call; PyTorch is not needed.
"""

import ctypes
import json
import os

API_VERSION = 2
ENGINE = "libspillway_engine.so"

_TEXT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t))


class NotActiveError(RuntimeError):
    """Spillway does not run in this process."""


class _Api(ctypes.Structure):
    """struct spillway_api; functions that are not called from here are bare pointers."""

    _fields_ = [
        ("version", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("version_text", ctypes.c_char_p),
        ("smallest_block_bytes", ctypes.c_uint64),
        ("others", ctypes.c_void_p * 8),  # allocate .. device_stats
        ("last_error", ctypes.CFUNCTYPE(ctypes.c_char_p)),
        ("stats_json", _TEXT),
        ("last_refusal", _TEXT),
        ("more", ctypes.c_void_p * 8),  # reserved_bytes .. set_memory_cap
        ("set_gpu_memory", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p)),
        ("set_region", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_int)),
        ("pause", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)),
        ("resume", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_int)),
        ("read_paused", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)),
    ]


def _engine_path():
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            path = line.rstrip("\n").split(maxsplit=5)[5:]
            if path and os.path.basename(path[0]) == ENGINE:
                return path[0]
    raise NotActiveError(
        "Spillway is not active in this process: it starts with the first use of CUDA, when libspillway.so is in "
        "LD_PRELOAD or the allocator configuration names backend:spillway, unless SPILLWAY=off"
    )


def api():
    """Returns the C table of this process's engine. Raises NotActiveError if there is none of this version."""
    try:
        engine = ctypes.CDLL(_engine_path(), mode=os.RTLD_NOLOAD | os.RTLD_LOCAL | os.RTLD_NOW)
        find = engine.spillway_engine_api
    except (OSError, AttributeError) as error:
        raise NotActiveError(f"this process has an engine of another version: {error}") from error
    find.restype = ctypes.POINTER(_Api)
    api = find().contents
    if api.version != API_VERSION or api.size < ctypes.sizeof(_Api):
        raise NotActiveError(f"this process has an engine of another version ({api.version_text.decode()})")
    return api


def _text(function):
    size = 1 << 14
    while True:
        text, needed = ctypes.create_string_buffer(size), ctypes.c_size_t()
        if function(text, size, ctypes.byref(needed)) != 0:
            raise NotActiveError(
                "Spillway does not run in this process: it starts with the first use of CUDA, or it has ended, or this is a "
                "forked child of a process that used CUDA"
            )
        if needed.value <= size:
            return text.value.decode("utf-8", "replace")
        size = needed.value + 1024  # a number may have grown by a digit meanwhile


def error_of(table, result):
    """Returns the exception for a call of the table that was refused, with its text."""
    words = (table.last_error() or b"").decode("utf-8", "replace")
    errors = {1: ValueError, 2: MemoryError, 401: RuntimeError}  # CUDA_ERROR_INVALID_VALUE, _OUT_OF_MEMORY, _ILLEGAL_STATE
    return errors.get(result, NotActiveError)(words or "Spillway does not run in this process")


def stats():
    """Returns the metrics of this moment as a dict. Its keys are in stats_types; docs/metrics.md explains them.

    NotActiveError: Spillway does not run in this process.
    """
    return json.loads(_text(api().stats_json))


def last_error():
    """Returns the reason of the last refused allocation, launch or copy of this process, on any thread; "" if there was none."""
    return _text(api().last_refusal)


def set_gpu_memory(size, device=None):
    """Sets the memory that the job may hold of a GPU from now on.

    size: a size or a share as in SPILLWAY_GPU_MEMORY ("20GiB", "60%", bytes), or None for the size at the start. A smaller size
    makes blocks leave the GPU, which may take longer than this call; a plan for the new size follows.
    device: the GPU's number; None: PyTorch's current one.

    ValueError: size is not a size, or more than the device had for the job.
    MemoryError: more must be on the GPU at once, or has no place elsewhere. Nothing changes then.
    """
    if device is None:
        import torch  # a job of PyTorch's has it already

        device = torch.cuda.current_device()
    table = api()
    result = table.set_gpu_memory(device, b"none" if size is None else str(size).encode())
    if result == 0:
        return
    raise error_of(table, result)
