"""Least-recently-used of two builds, in pairs in one call: the example job at half of its peak, SPILLWAY_POLICY=lru, tokens
a second of the one build and of the other, in turn.

    build/venv/bin/python bench/lru_builds.py --build build --other OTHER_BUILD [--pairs 5] [--tier host|ssd]

The host tier is slowed by the stand-in's copy engines so that transfers take about as long as kernels; the disk is as it
is. Padded kernels (--kernel-time) keep two busy cores from deciding.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "tests" / "jobs"), str(ROOT / "integration" / "quickstart")]

import harness  # noqa: E402  (the path comes first)
import job  # noqa: E402

MODEL = (*harness.MODEL, "--batch", "4")
FIRST_ITERATION = 3


def machine(args, build, *more):
    options = ("--mode", "off", "--kernel-time", str(args.kernel_time), *more)
    return job.Machine(device="simcuda", work=args.work, build=build, simcuda_options=options)


def run(args, build, name, mode, cap=None, *more):
    finished = job.run_job(machine(args, build, *more), mode, [*MODEL, "--steps", str(args.steps)], cap, name=name,
                           show=lambda line: False)  # fmt: skip
    if finished.keys["status"] != "ok":
        raise SystemExit(f"{name}: {finished.keys['status']}\n{finished.log[-3000:]}")
    return finished


def iterations_per_s(finished):
    seconds = finished.report["step_seconds"][FIRST_ITERATION - 1 :]
    return len(seconds) / sum(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--other", type=Path, required=True, help="the build that is compared with")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--kernel-time", type=int, default=2000, help="microseconds that a kernel takes at least")
    parser.add_argument("--tier", choices=("host", "ssd"), default="host")
    parser.add_argument("--work", type=Path, help="logs (default: BUILD/bench/lru)")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    builds = {"this": args.build.resolve(), "other": args.other.resolve()}
    args.work = (args.work or builds["this"] / "bench" / "lru").resolve()
    uncapped = run(args, builds["this"], "uncapped", job.UNCAPPED)
    peak = uncapped.keys["peak_bytes"]
    cap = job.Cap(peak // 2, job.size_text(peak) if args.tier == "host" else "0", "none" if args.tier == "host" else str(args.work),
                  {"policy": "lru"})  # fmt: skip
    # What the other build moves in an iteration decides the copy engines' speed, the same for both.
    trial = run(args, builds["other"], "trial", job.PRELOAD, cap)
    bandwidth = int(trial.keys["fetched_bytes"] / args.steps * iterations_per_s(uncapped))
    more = ("--copy-bandwidth", str(bandwidth)) if args.tier == "host" else ()
    print(f"budget {peak / 2e6:.0f} MB, {trial.keys['fetched_bytes'] / args.steps / 1e6:.0f} MB back an iteration, "
          f"copies {bandwidth / 1e6 if more else 0:.0f} MB/s, load {Path('/proc/loadavg').read_text().split()[0]}", flush=True)  # fmt: skip
    ratios = []
    for pair in range(args.pairs):
        speed = {}
        for which in ("this", "other") if pair % 2 == 0 else ("other", "this"):
            finished = run(args, builds[which], f"{which}-{pair}", job.PRELOAD, cap, *more)
            speed[which] = iterations_per_s(finished)
            if finished.keys["losses_sha256"] != uncapped.keys["losses_sha256"]:
                raise SystemExit(f"{which}: other losses than the uncapped run")
        ratios.append(speed["this"] / speed["other"])
        print(f"pair {pair + 1}: {speed['this']:.3f} and {speed['other']:.3f} iterations/s, ratio {ratios[-1]:.3f}", flush=True)
    print(f"median of {len(ratios)}: {statistics.median(ratios):.3f}")
    if args.json:
        figures = {"time": time.strftime("%Y-%m-%d %H:%M"), "tier": args.tier, "ratios": ratios, "median": statistics.median(ratios)}
        args.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
