"""Shared by the tests of PyTorch's operators on the stand-in GPU (torch_*_test.py): skipping where PyTorch is absent,
the stand-in's own calls by ctypes, and comparing with the CPU. Started through simcuda-run."""

import ctypes
import importlib.util
import os
import sys

if importlib.util.find_spec("torch") is None:
    print("skipped: PyTorch is not installed in", sys.executable)
    sys.exit(77)

import torch

if torch.version.cuda is None:
    print("skipped: this PyTorch was built without CUDA")
    sys.exit(77)

CUDA = torch.device("cuda")


def _find_driver():
    """The stand-in driver as it is loaded in this process, found in the process's maps."""
    torch.cuda.init()
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split()[-1] for line in maps if "libcuda.so" in line}
    for path in sorted(paths):
        library = ctypes.CDLL(path)
        if hasattr(library, "simcuda_get_stats"):
            return library
    raise RuntimeError("the stand-in driver is not loaded")


class Stats(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_size_t),
        ("physical_bytes", ctypes.c_uint64 * 8),
        ("peak_physical_bytes", ctypes.c_uint64 * 8),
        ("missed_accesses", ctypes.c_uint64),
        ("misuses", ctypes.c_uint64),
        ("launches", ctypes.c_uint64),
        ("copies", ctypes.c_uint64),
        ("memsets", ctypes.c_uint64),
        ("copied_bytes", ctypes.c_uint64 * 4),
    ]


class Driver:
    def __init__(self):
        self.library = _find_driver()

    def stats(self):
        stats = Stats(struct_bytes=ctypes.sizeof(Stats))
        if self.library.simcuda_get_stats(ctypes.byref(stats)) != 0:
            raise RuntimeError("simcuda_get_stats failed")
        return stats

    def set(self, name, value):
        if self.library.simcuda_set(name.encode(), str(value).encode()) != 0:
            raise RuntimeError(f"simcuda_set({name}, {value}) failed")

    def hold_streams(self, hold):
        self.library.simcuda_hold_streams(int(hold))

    def flush_log(self):
        self.library.simcuda_flush_log()


def to_cuda(value):
    """The same structure with every tensor copied to the stand-in."""
    if isinstance(value, torch.Tensor):
        return value.detach().to(CUDA).requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        return type(value)(to_cuda(element) for element in value)
    if isinstance(value, dict):
        return {key: to_cuda(element) for key, element in value.items()}
    return value


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for element in value for tensor in tensors_in(element)]
    return []


def run_with_gradients(function, arguments):
    """Returns of the function, and the gradients of its floating inputs for a fixed cotangent."""
    outputs = tensors_in(function(*arguments))
    inputs = [tensor for tensor in tensors_in(list(arguments)) if tensor.requires_grad]
    roots = [output for output in outputs if output.requires_grad]
    if not inputs or not roots:
        return outputs, []
    cotangents = []
    for root in roots:
        ramp = torch.linspace(0.25, 1.0, root.numel(), dtype=torch.float64).reshape(root.shape)
        cotangents.append(ramp.to(root.dtype).to(root.device))
    gradients = torch.autograd.grad(roots, inputs, cotangents, allow_unused=True)
    return outputs, [gradient for gradient in gradients if gradient is not None]
