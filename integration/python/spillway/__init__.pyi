import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from spillway.stats_types import Stats

__version__: str

_Path = str | os.PathLike[str]
_Value = str | float | bool | os.PathLike[str] | Sequence[_Path] | None

class NotActiveError(RuntimeError): ...

def library_dir() -> str: ...
def library() -> str: ...
def stats() -> Stats: ...
def last_error() -> str: ...
def set_gpu_memory(size: str | int | None, device: int | None = None) -> None: ...
@dataclass(frozen=True)
class PauseResult:
    clean_bytes: int
    host_bytes: int
    disk_bytes: int
    dropped_bytes: int
    unused_bytes: int
    pinned_bytes: int
    failed_bytes: int
    released_bytes: int
    remaining_bytes: int
    other_bytes: int
    seconds: float
    failure: str

def pause(tag: str | None = None) -> PauseResult: ...
def resume(tag: str | None = None, wait: bool = False) -> None: ...
def region(tag: str | None, keep: bool = True) -> AbstractContextManager[None]: ...
def unmanaged_pool() -> torch.cuda.MemPool: ...
def enable(
    *,
    gpu_memory: _Value = None,
    share: _Value = None,
    share_idle: _Value = None,
    host_memory: _Value = None,
    reach: _Value = None,
    dirs: _Value = None,
    disk_reserve: _Value = None,
    write_budget: _Value = None,
    policy: _Value = None,
    verify: _Value = None,
    checksum: _Value = None,
    encrypt: _Value = None,
    on_full: _Value = None,
    metrics: _Value = None,
    report: _Value = None,
    prometheus: _Value = None,
    status: _Value = None,
    socket: _Value = None,
    pause: _Value = None,
    log: _Value = None,
    log_file: _Value = None,
    log_format: _Value = None,
    require: _Value = None,
    cuda_driver: _Value = None,
    wait_limit: _Value = None,
    trust: _Value = None,
    trace: _Value = None,
    profile: _Value = None,
    audit: _Value = None,
    denylist: _Value = None,
    io_model: _Value = None,
    io_faults: _Value = None,
) -> bool: ...
