"""A job in which one kernel writes a table of addresses and another is given the table alone; run by grouped.py.

Between the two, other blocks are used until what the table names is the least recently used. Its live bytes are given by
--layers. --table says how long a table lives: one for each launch, or one for the whole job. --writer part: each group
has a launch of its own, which adds to the table.
"""

import argparse
import ctypes
import hashlib
import json
from pathlib import Path

import torch
from step_probe import read_stats, stand_in_driver

MIB = 1 << 20
GROUPS = 4
WRITE_ALL, WRITE_ONE, PRODUCT = 0, 1, 2


class Kernels:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.grouped_launch.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        if self.library.grouped_register(stand_in_driver().simcuda_register_kernel) != 0:
            raise SystemExit("the kernels were not registered")

    def launch(self, kind, *words):
        packed = (ctypes.c_uint64 * 13)(*(word % (1 << 64) for word in words))
        result = self.library.grouped_launch(kind, packed, torch.cuda.current_stream().cuda_stream)
        if result != 0:
            raise SystemExit(f"launch {kind} answered {result}")

    def write(self, table, left, right, out, only):
        first = table.data_ptr()
        tables = [first + 8 * GROUPS * i for i in range(5)]
        whole = (left.data_ptr(), right.data_ptr(), out.data_ptr(), 0, 0, *tables, GROUPS, out.numel() // GROUPS)
        for group in range(GROUPS) if only else (-1,):
            self.launch(WRITE_ONE if only else WRITE_ALL, *whole, group)

    def product(self, table, out):
        first = table.data_ptr()
        self.launch(PRODUCT, *(first + 8 * GROUPS * i for i in range(3)), GROUPS, out.numel() // GROUPS)


def iteration(kernels, args, weights, kept, note):
    """One pass over all layers; returns the last layer's output. Calls note() before each table is written and after its
    product."""
    value = torch.ones_like(weights[0])
    for number, weight in enumerate(weights):
        out = torch.empty_like(value)
        table = kept if kept is not None else torch.empty(5 * GROUPS, dtype=torch.int64, device="cuda")
        note()
        kernels.write(table, value, weight, out, args.writer == "part")
        for other in weights[number + 1 :] + weights[:number]:
            other.add_(0.5)
        kernels.product(table, out)
        del table
        note()
        value = out
    return value


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernels", required=True)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--mib", type=int, default=8)
    parser.add_argument("--table", choices=("each", "one"), default="each")
    parser.add_argument("--writer", choices=("whole", "part"), default="whole")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    weights = [torch.full((args.mib * MIB // 4,), 0.125 * (i + 1), device="cuda") for i in range(args.layers)]
    kept = torch.empty(5 * GROUPS, dtype=torch.int64, device="cuda") if args.table == "one" else None
    kernels = Kernels(args.kernels)  # CUDA has been initialised by now, so that the driver is there
    driver = stand_in_driver()
    report = {"hashes": [], "out_bytes": [], "out_around": []}
    for _ in range(3):
        result = iteration(kernels, args, weights, kept, lambda: report["out_around"].append(read_stats(driver)["dtoh_bytes"]))
        report["hashes"].append(hashlib.sha256(result.cpu().numpy().tobytes()).hexdigest())
        report["out_bytes"].append(read_stats(driver)["dtoh_bytes"])
    # A table that is gone keeps nothing: this names everything.
    for weight in weights:
        weight.add_(1.0)
    torch.cuda.synchronize()
    args.json.write_text(json.dumps(report))


if __name__ == "__main__":
    main()
