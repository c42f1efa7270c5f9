"""Launches a kernel that finds the address of a tensor in device memory, where no parameter shows it.

The tensor was idle for long and the budget is small, so it has been evicted: the kernel's access is a miss. Run under
simcuda with Spillway by planted.py. With --write the kernel writes a word there, too.
"""

import ctypes
import sys

import torch
from step_probe import stand_in_driver

MIB = 1 << 20
NAME = b"planted_pointer_reader"


class Launch(ctypes.Structure):
    """The head of simcuda_launch; the body needs nothing of it."""

    _fields_ = [("struct_bytes", ctypes.c_size_t)]


class Parameter(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_size_t), ("size", ctypes.c_size_t)]


BODY = ctypes.CFUNCTYPE(None, ctypes.POINTER(Launch), ctypes.POINTER(ctypes.c_void_p))


class Kernel(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("run", BODY), ("user", ctypes.c_void_p),
                ("parameters", ctypes.POINTER(Parameter)), ("parameter_count", ctypes.c_size_t)]  # fmt: skip


def read_word(address):
    return ctypes.c_uint64.from_address(address).value


@BODY
def pointer_reader(_, parameters):
    table = read_word(parameters[0])  # the parameter: the address of a table in device memory
    escaped = read_word(table)  # which holds the address of the tensor
    read_word(escaped)  # the access that no parameter shows
    if "--write" in sys.argv:
        ctypes.c_float.from_address(escaped).value = 7.0


def register(driver):
    layout = (Parameter * 1)(Parameter(0, 8))
    kernel = Kernel(NAME, pointer_reader, None, layout, 1)
    if driver.simcuda_register_kernel(ctypes.byref(kernel), None) != 0:
        raise SystemExit("the kernel was not registered")
    # By its SONAME, as PyTorch reaches the driver: these are the functions that Spillway sees.
    driver = ctypes.CDLL("libcuda.so.1")
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    image = b"//simcuda image 1\n" + NAME + b"\n"
    if driver.cuModuleLoadData(ctypes.byref(module), image) != 0:
        raise SystemExit("the image was not loaded")
    if driver.cuModuleGetFunction(ctypes.byref(function), module, NAME) != 0:
        raise SystemExit("the kernel was not found")
    return function


def launch(function, table):
    parameter = ctypes.c_uint64(table.data_ptr())
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(parameter))
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    return ctypes.CDLL("libcuda.so.1").cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, None)


def main():
    idle = torch.ones(16 * MIB // 4, device="cuda")
    table = torch.full((MIB // 8 * 2,), idle.data_ptr(), dtype=torch.int64, device="cuda")
    others = [torch.ones(16 * MIB // 4, device="cuda") for _ in range(16)]  # more than the device has
    for other in others:
        other.add_(1)
    torch.cuda.synchronize()
    function = register(stand_in_driver())
    print(f"the idle tensor lies at {idle.data_ptr():#x}", flush=True)
    if launch(function, table) != 0:
        raise SystemExit("the launch was refused")
    torch.cuda.synchronize()
    print("the kernel has ended", flush=True)
    print("the idle tensor sums to", idle.sum().item(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
