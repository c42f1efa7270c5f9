"""Measures Spillway on the GPU that is here; started by run.sh, which says what it needs.

Every speed is a ratio to the uncapped run beside it; bits are compared too, since a fast wrong run is worth nothing.
"""

import argparse
import json
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "gpu"))

import run as gpu

job = gpu.job
PARTS = ("driver", "launch", "job")
SIZES = {
    "large": "--width 1280 --layers 12 --heads 20 --sequence 512 --batch 12 --steps 8",
    "small": "--width 512 --layers 3 --heads 8 --sequence 64 --batch 16 --steps 3",
}
SECONDS = 200  # for a program
HOST, DISK = 1.0, 0.05  # of the peak: everything that leaves fits host memory; nearly everything goes to the SSD


def call(session, program, *arguments, preload=False, settings=None):
    """A program's output, and the JSON it wrote."""
    report = session.args.work / "program.json"
    report.unlink(missing_ok=True)
    command = [str(session.args.build / "bin" / program), *arguments, "--json", str(report)]
    env = {k: v for k, v in os.environ.items() if not re.match("SPILLWAY(?!_DISK_RESERVE$)|SIMCUDA", k)}
    if session.args.device == "simcuda":
        command = [str(session.args.build / "bin" / "simcuda-run"), "--memory", "4GiB", "--", *command]
        env["SIMCUDA_POISON"] = "recycle"
    if preload:
        env["LD_PRELOAD"] = str(session.args.build / "lib" / "libspillway.so")
    session.call(program, command, {**env, **(settings or {})}, SECONDS)
    return job.read_json(report)


def driver(session, report):
    more = ("--rounds", "3", "--copy-mib", "16") if session.args.size == "small" else ()
    report["driver"] = call(session, "gpu_driver_bench", *more)


def launch(session, report):
    """The same program without and with the hooks, in turns; no block of ours is in the launch."""
    alone, hooked = [], []
    for _ in range(3):
        for into, preload in ((alone, False), (hooked, True)):
            figures = call(session, "gpu_driver_bench", "--launch-only", preload=preload)
            if figures:
                into.append(figures["launch"]["launch_ns"])
    if alone and hooked:
        report["launch"] = {"alone_ns": min(alone), "hooked_ns": min(hooked), "hook_ns": min(hooked) - min(alone)}
        print(f"a launch: {min(alone):.0f} ns alone, {min(hooked):.0f} ns with the hooks")


def train(session, _report):
    arguments = [*SIZES[session.args.size].split(), "--dtype", "bf16", "--sdpa", "auto"]
    uncapped = session.run("uncapped", job.UNCAPPED, arguments)
    if uncapped is None or uncapped.keys["status"] != "ok":
        return session.expect(uncapped is None, "the uncapped run failed")
    peak = uncapped.keys["peak_bytes"]
    session.total_bytes = ((uncapped.report or {}).get("memory") or {}).get("device_total_bytes")
    saved = session.run("save_on_cpu", job.UNCAPPED, arguments, Path(__file__).with_name("save_on_cpu.py"))
    if saved is not None:
        gpu.compare(session, saved, uncapped, spills=False, budget=False)
    for share in session.args.shares:
        for tier, host_share in (("host", HOST), ("SSD", DISK)):
            if share == 100 and tier == "SSD":
                continue
            run = session.run(f"{share} %, {tier}", job.PRELOAD, arguments, job.TRAIN, share, peak, host_share)
            if run is not None:
                gpu.compare(session, run, uncapped, spills=share < 90)
    again = session.run("uncapped again", job.UNCAPPED, arguments)
    if again is not None:
        gpu.compare(session, again, uncapped, spills=False, budget=False)


def main():
    args = gpu.parse_arguments(parts=PARTS, name="bench/gpu/run.sh", description=__doc__)
    for line in gpu.machine_words(args):
        print(line, flush=True)
    session, report = gpu.Session(args), {"machine": gpu.machine_words(args), "arguments": sys.argv[1:]}
    for part, function in (("driver", driver), ("launch", launch), ("job", train)):
        if part in args.parts:
            session.part(part, function, report)
    print("\nbytes in MiB; ratio: tokens/s to those of the uncapped run\n")
    print("\n".join(gpu.table(session.rows)))
    report["runs"] = session.rows
    return session.finish(report)


if __name__ == "__main__":
    sys.exit(main())
