#!/usr/bin/env python3
"""What Spillway costs a job that fits: the example job without and with it, in pairs, on a device that holds all of it.

    build/venv/bin/python bench/fits.py [--build build] [--pairs 5] [--json FILE] [-- ARGUMENTS of train_gpt.py]

Each pair runs both in one order and the next pair in the other, so that a machine that slows down slows both. The figure
is the median over the pairs of tokens/s with Spillway over tokens/s without; losses and state must be equal. It also
prints what whole chunks cost: bytes handed out, when most were, over the bytes asked for.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "integration" / "quickstart"))

import job  # noqa: E402  (the path comes first)

GOAL = 0.99
DEVICE_BYTES = 8 << 30


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("train", nargs="*", help="more for train_gpt.py, behind --")
    return parser.parse_args()


def one_run(machine, mode, train, number):
    cap = job.Cap(DEVICE_BYTES, host_memory="0", dirs="none") if mode == job.PRELOAD else None
    run = job.run_job(machine, mode, train, cap=cap, name=f"{mode}-{number}", show=lambda line: False, timeout=600)
    if run.keys["status"] != "ok":
        print(run.log[-3000:], file=sys.stderr)
        raise SystemExit(f"{mode}: {run.keys['status']}")
    return run


def rounding(metrics):
    """Bytes asked for and handed out when most were handed out, and how much more the latter are."""
    asked, handed_out = metrics.get("peak_requested_bytes"), metrics.get("peak_live_bytes")
    if not asked:
        return None
    return {"requested_bytes": asked, "handed_out_bytes": handed_out, "wasted": handed_out / asked - 1}


def main():
    args = arguments()
    device = "gpu" if job.has_gpu() else "simcuda"
    train = ["--steps", "6", *args.train]
    rows = []
    with tempfile.TemporaryDirectory() as work:
        machine = job.Machine(device, Path(work), build=args.build.resolve(), uncapped_memory=DEVICE_BYTES)
        print(f"{'pair':>4} {'without':>10} {'with':>10} {'ratio':>7}   tokens/s on {device}")
        for pair in range(args.pairs):
            order = (job.UNCAPPED, job.PRELOAD) if pair % 2 == 0 else (job.PRELOAD, job.UNCAPPED)
            runs = {mode: one_run(machine, mode, train, pair) for mode in order}
            plain, spilled = runs[job.UNCAPPED].keys, runs[job.PRELOAD].keys
            for key in ("losses_sha256", "state_sha256"):
                if plain[key] != spilled[key]:
                    raise SystemExit(f"the runs differ in {key}")
            if spilled["spilled_bytes"] != 0:
                raise SystemExit("something was spilled: this is to be measured where everything fits")
            ratio = spilled["tokens_per_s"] / plain["tokens_per_s"]
            rows.append({"without": plain["tokens_per_s"], "with": spilled["tokens_per_s"], "ratio": ratio})
            print(f"{pair + 1:4} {plain['tokens_per_s']:10.1f} {spilled['tokens_per_s']:10.1f} {ratio:7.3f}", flush=True)
        metrics = runs[job.PRELOAD].metrics or {}
    median = statistics.median(row["ratio"] for row in rows)
    waste = rounding(metrics)
    print(f"median ratio {median:.3f} (goal {GOAL}), {metrics.get('launches')} launches through the gate")
    if waste:
        print(f"at the peak {waste['handed_out_bytes'] >> 20} MiB in whole chunks for {waste['requested_bytes'] >> 20} MiB "
              f"asked for: {100 * waste['wasted']:.1f} % more")  # fmt: skip
    if args.json:
        report = {"device": device, "pairs": rows, "median_ratio": median, "goal": GOAL, "rounding": waste,
                  "launches": metrics.get("launches")}  # fmt: skip
        args.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
