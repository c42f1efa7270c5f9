"""Pause and resume: a job gives up its GPU memory and takes it back; its tensors keep their addresses (docs/pause.md).

Uses the C table of integration/engine/spillway.h. Any thread may call; the calls wait without Python's lock.
"""

import contextlib
import ctypes
import dataclasses
import sys
import threading

from . import engine_api


@dataclasses.dataclass(frozen=True)
class PauseResult:
    """The result of a pause, in bytes of whole chunks."""

    clean_bytes: int  #: left without a copy, since one in host memory or on the disk was still equal
    host_bytes: int  #: copied to host memory
    disk_bytes: int  #: copied to the disk
    dropped_bytes: int  #: of regions that do not keep them
    unused_bytes: int  #: never used since their allocation
    pinned_bytes: int  #: stayed: something may use them without naming them (pointer tables, IPC)
    failed_bytes: int  #: stayed: they could not be copied; `failure` has the reason
    released_bytes: int  #: given back to the driver
    remaining_bytes: int  #: that Spillway still has on the GPUs
    other_bytes: int  #: of the job's other allocations, as far as they are known (tensors up to 1 MiB, libraries): they remain
    seconds: float
    failure: str


class _Stats(ctypes.Structure):
    """struct spillway_pause_stats."""

    _fields_ = [
        *[(field.name, ctypes.c_uint64) for field in dataclasses.fields(PauseResult) if field.type == "int" or field.type is int],
        ("nanoseconds", ctypes.c_uint64),
        ("failure", ctypes.c_char * 256),
    ]


_regions = threading.local()


def _encoded(tag):
    if tag is None:
        return None
    if not isinstance(tag, str) or not tag or "\0" in tag:
        raise ValueError(f"the tag of a region must be a text that is not empty, not {tag!r}")
    return tag.encode()


def pause(tag=None):
    """Gives up the GPU memory of a region's tensors, or of all tensors above 1 MiB if tag is None. Returns a PauseResult.

    Bytes go to host memory and the disk, or are dropped if the region says so. Bytes that have not changed since the last
    pause are not copied again. An operation on such a tensor raises until the resume.

    ValueError: no region has had that tag. MemoryError: host memory and disk have no place for the bytes. RuntimeError: a
    capture is under way. Nothing is paused then.
    """
    table, stats = engine_api.api(), _Stats()
    result = table.pause(_encoded(tag), ctypes.byref(stats))
    if result != 0:
        raise engine_api.error_of(table, result)
    values = {name: getattr(stats, name) for name, _ in _Stats._fields_}
    values["seconds"] = values.pop("nanoseconds") / 1e9
    values["failure"] = values["failure"].decode("utf-8", "replace")
    return PauseResult(**values)


def resume(tag=None, wait=False):
    """Ends the pause of that tag, or of all tensors.

    The bytes come back in the background in the order in which they are needed, and sooner for an operation that needs them.
    wait=True: they are back when the call returns, as far as the GPU has space.
    """
    table = engine_api.api()
    result = table.resume(_encoded(tag), int(bool(wait)))
    if result != 0:
        raise engine_api.error_of(table, result)


@contextlib.contextmanager
def region(tag, keep=True):
    """Makes tensors above 1 MiB that this thread allocates inside belong to the region of that tag, for pause(tag).

    Regions nest: the innermost counts. tag None: no region. keep=False: a pause drops the bytes, and they are undefined after
    the resume.
    """
    before = getattr(_regions, "now", (None, True))
    now = (_encoded(tag), keep)
    if "torch" in sys.modules:
        sys.modules["torch"].cuda.init()  # Spillway begins with it, and this may be the first that a job does with CUDA
    _enter(now)
    try:
        yield
    finally:
        _enter(before)


def _enter(now):
    table = engine_api.api()
    result = table.set_region(now[0], int(bool(now[1])))
    if result != 0:
        raise engine_api.error_of(table, result)
    _regions.now = now
