"""The calls of torch_memory_saver over spillway.region(), pause() and resume() (docs/pause.md says what differs).

    from torch_memory_saver import torch_memory_saver
    with torch_memory_saver.region(tag="weights", enable_cpu_backup=True): ...
    torch_memory_saver.pause("weights"); torch_memory_saver.resume("weights")
"""

import contextlib
import ctypes
import os

from .. import engine_api, library, pausing

__all__ = ["TorchMemorySaver", "configure_subprocess", "torch_memory_saver"]

_MODES = ("preload", "torch")
_DEFAULT_TAG = "default"


class TorchMemorySaver:
    """One for the process: `torch_memory_saver`. A tag is that of spillway.region()."""

    def __init__(self):
        self._tags = []  # of regions so far, in their order
        self._hook_mode = None
        self._margin_bytes = 0
        self._retain = os.environ.get("TMS_RETAIN_CPU_BACKUP", "") in ("1", "true", "True")

    @contextlib.contextmanager
    def region(self, tag=_DEFAULT_TAG, enable_cpu_backup=False, enable_disk_backup=False, cpu_backup_backend=None):
        """Makes tensors allocated inside pausable under that tag. A pause drops their bytes if there is no backup; Spillway decides
        whether a backup is in host memory or on the disk."""
        if enable_cpu_backup and enable_disk_backup:
            raise ValueError("enable_cpu_backup and enable_disk_backup exclude each other")
        if tag not in self._tags:
            self._tags.append(tag)
        with pausing.region(tag, keep=bool(enable_cpu_backup or enable_disk_backup)):
            yield

    @contextlib.contextmanager
    def disable(self):
        """Excludes tensors allocated inside from pauses, whatever region is around it."""
        with pausing.region(None):
            yield

    def pause(self, tag=None):
        """Gives up the memory of that tag, or of all tags; addresses stay. A tag that no region had pauses nothing."""
        paused = []
        try:
            for known in self._known(tag):
                pausing.pause(known)
                paused.append(known)
        except Exception:  # nothing is paused then, as of one tag
            for known in paused:
                pausing.resume(known)
            raise

    def resume(self, tag=None):
        """Takes the memory back. Bytes with a backup come back before they are used."""
        for known in self._known(tag):
            pausing.resume(known)

    def _known(self, tag):
        return list(self._tags) if tag is None else [tag] if tag in self._tags else []

    @contextlib.contextmanager
    def cuda_graph(self, cuda_graph, pool=None, stream=None, capture_error_mode="global", tag=_DEFAULT_TAG,
                   enable_cpu_backup=False, enable_disk_backup=False, cpu_backup_backend=None):  # fmt: skip
        """torch.cuda.graph() in a region. What the capture allocates is given up with the region, and its bytes are kept, whatever
        `enable_cpu_backup` says: tensors of other captures may lie in the same memory."""
        import torch

        with (
            self.region(tag, enable_cpu_backup, enable_disk_backup, cpu_backup_backend),
            torch.cuda.graph(cuda_graph, pool=pool, stream=stream, capture_error_mode=capture_error_mode),
        ):
            yield

    def get_cpu_backup(self, tensor, zero_copy=False):
        """The bytes of a paused tensor as one on the CPU; None where it is not paused, or has no copy in host memory. Always a copy:
        `zero_copy` would let others write what is to come back."""
        import torch

        storage = tensor.untyped_storage()
        copy = torch.empty(storage.nbytes(), dtype=torch.uint8)
        table = engine_api.api()
        result = table.read_paused(ctypes.c_void_p(storage.data_ptr()), copy.data_ptr(), storage.nbytes())
        if result != 0:
            return None
        whole = torch.empty(0, dtype=tensor.dtype).set_(copy.untyped_storage())
        return whole.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())

    @property
    def enabled(self):
        """Whether Spillway runs in this process, or will once CUDA is used."""
        try:
            engine_api.api()
        except engine_api.NotActiveError:
            return "libspillway.so" in os.environ.get("LD_PRELOAD", "") or _backend_named()
        return True

    @property
    def retain_cpu_backup(self):
        """Copies are kept while they are equal to the tensor and host memory is not needed, whatever this says."""
        return self._retain

    @retain_cpu_backup.setter
    def retain_cpu_backup(self, value):
        self._retain = bool(value)

    @property
    def hook_mode(self):
        """Without meaning here: Spillway is PyTorch's allocator already."""
        return self._hook_mode

    @hook_mode.setter
    def hook_mode(self, mode):
        if mode not in _MODES:
            raise ValueError(f"hook_mode must be one of {', '.join(_MODES)}, not {mode!r}")
        self._hook_mode = mode

    @property
    def memory_margin_bytes(self):
        """Without meaning here: SPILLWAY_GPU_MEMORY and spillway.set_gpu_memory() say what the job may hold."""
        return self._margin_bytes

    @memory_margin_bytes.setter
    def memory_margin_bytes(self, value):
        self._margin_bytes = int(value)

    def set_disk_backup_dir(self, path):
        """Raises where the folder is none of SPILLWAY_DIRS, which alone says where bytes may lie."""
        folders = [entry["path"] for entry in engine_api.stats().get("directories", [])]
        if not any(os.path.realpath(path) == os.path.realpath(folder) for folder in folders):
            raise ValueError(f"{path} is not in SPILLWAY_DIRS ({', '.join(folders) or 'none'}): add it there")


def _backend_named():
    names = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    return any("backend:spillway" in os.environ.get(name, "") for name in names)


@contextlib.contextmanager
def configure_subprocess():
    """Processes that are started inside run under Spillway."""
    before = os.environ.get("LD_PRELOAD")
    os.environ["LD_PRELOAD"] = ":".join(filter(None, (library(), before)))
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("LD_PRELOAD", None)
        else:
            os.environ["LD_PRELOAD"] = before


torch_memory_saver = TorchMemorySaver()
