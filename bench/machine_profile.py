#!/usr/bin/env python3
"""The rates of this machine's device, for `spillway estimate --machine FILE`: products of matrices, kernels that only move
bytes, the least time of a kernel, the link, and the disk of one folder. Some ten seconds.

    python bench/machine_profile.py --json machine.json [--dir /var/tmp] [--workspace 0]

Each rate is a pair, [slowest, fastest] of what was measured: over shapes, or over kinds of kernels. On simcuda the device is
the processor that the stand-in computes on; start it there with simcuda-run.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import torch

MIB = 1 << 20
ROWS = (128, 512)
WIDTHS = ((640, 640), (576, 2304), (1728, 640))


clock = time.perf_counter


def seconds_of(call, least=0.08):
    """The median time of one call, over `least` seconds."""
    call()
    torch.cuda.synchronize()
    times, end = [], time.perf_counter() + least
    while time.perf_counter() < end or len(times) < 3:
        begin = clock()
        call()
        torch.cuda.synchronize()
        times.append(clock() - begin)
    return statistics.median(times)


def products(dtype):
    rates = []
    for rows in ROWS:
        for inner, columns in WIDTHS:
            a, b = torch.randn(rows, inner, device="cuda", dtype=dtype), torch.randn(columns, inner, device="cuda", dtype=dtype)
            rates.append(2 * rows * inner * columns / seconds_of(lambda a=a, b=b: torch.nn.functional.linear(a, b)))
            dy = torch.randn(rows, columns, device="cuda", dtype=dtype)
            rates.append(2 * rows * inner * columns / seconds_of(lambda a=a, dy=dy: dy.t() @ a))
    return [min(rates), max(rates)]


def movers():
    """Bytes a second of kernels that move bytes: the kinds that a training iteration has most of."""
    x, y = torch.randn(4 * MIB, device="cuda"), torch.randn(4 * MIB, device="cuda")
    rows = x.view(-1, 1024)
    size = x.numel() * 4
    calls = {
        "add": (lambda: torch.add(x, y), 3), "mul_": (lambda: y.mul_(1.0), 2), "clone": (x.clone, 2),
        "sqrt": (y.abs_().sqrt, 2), "addcmul_": (lambda: y.addcmul_(x, x, value=1e-9), 3),
        "lerp_": (lambda: y.lerp_(x, 1e-9), 3), "to": (lambda: x.to(torch.bfloat16), 1.5),
        "layer_norm": (lambda: torch.nn.functional.layer_norm(rows, (1024,)), 2),
        "softmax": (lambda: rows.softmax(-1), 2), "gelu": (lambda: torch.nn.functional.gelu(x), 2),
        "sum": (lambda: rows.sum(0), 1),
    }  # fmt: skip
    rates = {name: parts * size / seconds_of(call) for name, (call, parts) in calls.items()}
    quarters = statistics.quantiles(rates.values(), n=4)
    return [quarters[0], quarters[2]], rates


def least_times():
    """Microseconds of a launch with autograd around it and of a bare one, the longer first."""
    x = torch.randn(8, device="cuda", requires_grad=True)

    def chain():
        y = x
        for _ in range(100):
            y = y * 1.0
        y.sum().backward()

    y = torch.randn(8, device="cuda")

    def bare():
        for _ in range(200):
            y.mul_(1.0)

    return sorted((seconds_of(chain) / 200 * 1e6, seconds_of(bare) / 200 * 1e6), reverse=True)


def link():
    host, device = torch.empty(64 * MIB, dtype=torch.uint8).pin_memory(), torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    there = 64 * MIB / seconds_of(lambda: device.copy_(host, non_blocking=True))
    return there, 64 * MIB / seconds_of(lambda: host.copy_(device, non_blocking=True))


def disk(folder, size=256 * MIB):
    """Writes and reads a file without the page cache."""
    block = 4 * MIB
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        buffer = memoryview(bytearray(2 * block))
        start = -torch.frombuffer(buffer, dtype=torch.uint8).data_ptr() % 4096
        part = buffer[start : start + block]
        rates = []
        for flags, call in ((os.O_WRONLY, os.pwritev), (os.O_RDONLY, os.preadv)):
            handle = os.open(file.name, flags | os.O_DIRECT)
            begin = time.perf_counter()
            for offset in range(0, size, block):
                call(handle, [part], offset)
            if flags == os.O_WRONLY:
                os.fsync(handle)
            rates.append(size / (time.perf_counter() - begin))
            os.close(handle)
    return rates[1], rates[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--dir", default="/var/tmp", help="where spill files would lie")
    parser.add_argument("--workspace", type=int, default=0, help="bytes of the matrix library's workspace (simcuda: 0)")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall",
                        help="cpu: processor time of this process, for the stand-in on a machine that others use")  # fmt: skip
    args = parser.parse_args()
    if args.clock == "cpu":
        global clock
        clock = time.process_time
    properties = torch.cuda.get_device_properties(0)
    moved, kinds = movers()
    (there, back), (read, written) = link(), disk(args.dir)
    profile = {
        "name": properties.name, "source": f"measured: {properties.name}, PyTorch {torch.__version__}",
        "gpu_memory_bytes": properties.total_memory, "workspace_bytes": args.workspace,
        "matmul_fp32_per_s": products(torch.float32), "matmul_bf16_per_s": products(torch.bfloat16),
        "memory_bytes_per_s": moved, "launch_us": least_times(),
        "pcie_in_bytes_per_s": there, "pcie_out_bytes_per_s": back,
        "ssd_read_bytes_per_s": read, "ssd_write_bytes_per_s": written,
        "kinds_bytes_per_s": kinds,
    }  # fmt: skip
    args.json.write_text(json.dumps(profile, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(profile, indent=2))


if __name__ == "__main__":
    main()
