#!/usr/bin/env python3
"""What handing out and taking back a cached block costs through PyTorch: Spillway's next to native's, in one process.

    build/venv/bin/python bench/torch_allocations.py [--build build] [--json FILE]

The process starts itself anew on the device at hand with Spillway in front. Blocks of more than 1 MiB are Spillway's,
smaller ones stay native's; so both are timed by turns in one process by the sizes on either side of the border. Both
come from a cache, and what a size costs native does not depend on it. Goal: at most native's time.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "integration" / "quickstart"))

import job  # noqa: E402  (the path comes first)

KIB = 1 << 10
NATIVE_SIZES = (64 * KIB, 512 * KIB)
OUR_SIZES = (2 << 20, 20 << 20)
OTHERS = 500  # blocks that are alive beside the one that comes and goes
ROUNDS = 21
CALLS = 1000


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--inside", choices=["without", "with"], help=argparse.SUPPRESS)
    return parser.parse_args()


def nanoseconds(allocate, size):
    """Of processor time, for one allocation and its free."""
    import time

    start = time.thread_time_ns()
    for _ in range(CALLS):
        allocate(size)
    return (time.thread_time_ns() - start) / CALLS


def measure():
    """Median times by size, of torch.empty, and of the allocator behind it alone."""
    import torch

    def tensor(size):
        torch.empty(size, dtype=torch.uint8, device="cuda")

    def block(size):
        torch.cuda.caching_allocator_delete(torch.cuda.caching_allocator_alloc(size))

    others = [torch.empty(2 << 20, dtype=torch.uint8, device="cuda") for _ in range(OTHERS)]
    results = {}
    for name, allocate in (("tensor", tensor), ("block", block)):
        times = {size: [] for size in NATIVE_SIZES + OUR_SIZES}
        for size in times:  # fills the caches; a first use makes the block resident
            torch.zeros(size, dtype=torch.uint8, device="cuda")
        for _ in range(ROUNDS):
            for size, values in times.items():
                values.append(nanoseconds(allocate, size))
        results[name] = {str(size): statistics.median(values) for size, values in times.items()}
    del others
    results["backend"] = torch.cuda.get_allocator_backend()
    return results


def start(args, mode):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SPILLWAY", "SIMCUDA", "PYTORCH_", "LD_PRELOAD"))}
    env["OMP_NUM_THREADS"] = "1"
    if mode == "with":
        env["LD_PRELOAD"] = str(args.build.resolve() / "lib" / "libspillway.so")
    command = [sys.executable, __file__, "--inside", mode]
    if not job.has_gpu():
        command = [str(args.build.resolve() / "bin" / "simcuda-run"), "--memory", "4GiB", "--", *command]
    return json.loads(subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True).stdout)


def main():
    args = arguments()
    if args.inside:
        json.dump(measure(), sys.stdout)
        return
    found = {mode: start(args, mode) for mode in ("without", "with")}
    print(f"{'':24} {'size':>9} {'without ns':>11} {'with ns':>11} {'with / native in the same process':>34}")
    report = {"backend": found["with"]["backend"], "rows": []}
    for name in ("tensor", "block"):
        native = statistics.median(found["with"][name][str(size)] for size in NATIVE_SIZES)
        for size in NATIVE_SIZES + OUR_SIZES:
            without, with_us = (found[mode][name][str(size)] for mode in ("without", "with"))
            row = {"what": name, "bytes": size, "without_ns": without, "with_ns": with_us,
                   "over_native_inside": with_us / native, "over_without": with_us / without}  # fmt: skip
            report["rows"].append(row)
            print(f"{name:24} {size >> 10:5} KiB {without:11.0f} {with_us:11.0f} {with_us / native:34.2f}")
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
