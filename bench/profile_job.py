#!/usr/bin/env python3
"""The example job with half of the memory that it needs, on simcuda with the costs of real machines: its iteration beside
the bound of its own workload, and beside the same job with all its memory.

    build/venv/bin/python bench/profile_job.py [--build build] [--machines a100,h100,h200] [--forms wait,pass]
                                               [--ends low,high] [--scale 20] [--kernel-us 60] [--link-gb-per-s N]
                                               [--lp] [--json FILE] [-- ARGUMENTS of train_gpt.py]

The bound is what the planner computes from the recorded iteration, the budget and the measured rates ("percent_of_bound" in
SPILLWAY_METRICS): no schedule is faster. A kernel takes --kernel-us of the machine's time at least, and this machine's
processor does it, as it does copies: where that takes longer, both hold each other up, as on no GPU. So the default
arguments make few tokens. Losses and state must equal those of the job with all its memory. On the links of these machines
the job's bytes take little of an iteration; with --link-gb-per-s the link is slower, each direction alone and beside the other,
as in a narrower slot, so that it decides. --lp: the bound of a linear programme, too, of the iteration that SPILLWAY_TRACE
recorded, with the memory and the rates of the link that SPILLWAY_METRICS names. It is tighter where the link decides.

"CPU" is what Spillway's threads take of one processor, as it would weigh at time scale 1: their processor time beside the
time of the iterations divided by the scale. Their calls of the driver are in it, and what the stand-in does for them.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "integration" / "quickstart"))

import job  # noqa: E402  (the path comes first)

FIRST_ITERATION = 6  # from here on there is a plan
HOST_MEMORY = "2GiB"
SAMPLE_SECONDS = 0.2  # between looks at the threads' processor time
TRAIN = ("--layers", "6", "--batch", "1", "--sequence", "16", "--steps", "24")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--machines", type=names, default=["a100", "h100", "h200"])
    parser.add_argument("--forms", type=names, default=["wait", "pass"])
    parser.add_argument("--ends", type=names, default=["low", "high"])
    parser.add_argument("--scale", type=int, default=20, help="how much slower than the machine everything is, 1 to 20")
    parser.add_argument("--kernel-us", type=int, default=60, help="least time of a kernel, in microseconds of the machine")
    parser.add_argument("--link-gb-per-s", type=float, help="the rate of each direction, instead of the machine's")
    parser.add_argument("--lp", action="store_true", help="also the bound of `spillway simulate --bound lp`")
    parser.add_argument("--json", type=Path)
    parser.add_argument("train", nargs="*", help="instead of the default arguments of train_gpt.py, behind --")
    return parser.parse_args()


class ThreadTimes:
    """Runs a command and adds up the processor time of Spillway's threads in it."""

    def __init__(self):
        self.seconds = {}  # by thread

    def __call__(self, arguments, env, log):
        with open(log, "w", encoding="utf-8") as output, subprocess.Popen(
            arguments, env=env, stdout=output, stderr=subprocess.STDOUT
        ) as child:
            killer = threading.Timer(900, child.kill)
            killer.start()
            while True:
                try:
                    status = child.wait(SAMPLE_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    self.look(Path("/proc") / str(child.pid) / "task")
            killer.cancel()
        return status

    def look(self, tasks):
        for task in tasks.glob("*"):
            try:
                name = (task / "comm").read_text().strip()
                if name.startswith("spill"):
                    self.seconds[task.name] = int((task / "schedstat").read_text().split()[0]) / 1e9
            except OSError:
                pass  # the thread has ended


def one_run(machine, mode, train, cap=None, runner=None, environment=None):
    run = job.run_job(machine, mode, train, cap=cap, show=lambda line: False, timeout=900, runner=runner,
                      extra_environment=environment)  # fmt: skip
    if run.keys["status"] != "ok":
        print(run.log[-3000:], file=sys.stderr)
        raise SystemExit(f"{mode}: {run.keys['status']}")
    return run


def iteration_seconds(run):
    return statistics.median(run.report["step_seconds"][FIRST_ITERATION - 1 :])


def profile_of(args, name, work):
    """The machine's name; or, with a link of its own, the file of its profile."""
    if args.link_gb_per_s is None:
        return name
    profile = json.loads((args.build / "lib" / "simcuda" / "hardware" / f"{name}.json").read_text())
    for direction in ("in", "out"):
        for rate in ("alone_gb_per_s", "both_gb_per_s"):
            profile["copies"][direction][rate] = {"value": args.link_gb_per_s, "source": "--link-gb-per-s"}
    file = work / f"{name}.json"
    file.write_text(json.dumps(profile))
    return str(file)


def lp_bound_seconds(args, trace, metrics):
    """No plan for the recorded iteration is faster with the memory of the GPU's large blocks and the measured link; 0 where
    the link was not measured."""
    device = metrics["devices"][0]
    link = device["link"]
    if not link["measurements"]:
        return 0
    simulate = [str(args.build / "bin" / "spillway"), "simulate", "--trace", str(trace), "--bound", "lp", "--json",
                "--gpu-memory", str(device["budget_bytes"] - metrics["external_bytes"]), "--host-memory", HOST_MEMORY,
                "--pcie-in", str(link["in"]), "--pcie-out", str(link["out"]), "--piece", "0",
                "--pcie-both", f"{min(link['in_both'], link['in'])},{min(link['out_both'], link['out'])}"]  # fmt: skip
    done = subprocess.run(simulate, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["bound_us"] / 1e6


def measure(args, work, costs):
    machine = job.Machine("simcuda", work, build=args.build.resolve(),
                          simcuda_options=("--mode", "strict", "--time-scale", str(args.scale),
                                           "--kernel-time", str(args.kernel_us), *costs))  # fmt: skip
    train = args.train or list(TRAIN)
    whole = one_run(machine, job.UNCAPPED, train)
    budget = whole.keys["peak_bytes"] // 2 // (2 * job.MIB) * (2 * job.MIB)
    threads = ThreadTimes()
    trace = work / "iteration.trace"
    half = one_run(machine, job.PRELOAD, train, job.Cap(budget, HOST_MEMORY, "none"), threads,
                   {"SPILLWAY_TRACE": str(trace)} if args.lp else None)  # fmt: skip
    device = half.metrics["devices"][0]
    iteration = device.get("iteration") or {}
    equal = all(half.keys[key] == whole.keys[key] for key in ("losses_sha256", "state_sha256"))
    return {
        "budget_mib": budget // job.MIB,
        "spilled_bytes": half.metrics.get("spilled_bytes"),
        "whole_step_seconds": iteration_seconds(whole),
        "half_step_seconds": iteration_seconds(half),
        "bound_seconds": iteration.get("bound_seconds"),
        "percent_of_bound": iteration.get("percent_of_bound"),
        "lp_bound_seconds": lp_bound_seconds(args, trace, half.metrics) if args.lp else None,
        "percent_of_whole": 100 * iteration_seconds(whole) / iteration_seconds(half),
        "threads_cpu_share_at_scale_1": sum(threads.seconds.values()) / (sum(half.report["step_seconds"]) / args.scale),
        "equal": equal,
    }


def main():
    args = arguments()
    rows = []
    print(f"time scale {args.scale}, kernels of {args.kernel_us} us at least; seconds are stretched by it\n"
          f"{'machine':8} {'form':5} {'end':5} {'budget':>8} {'whole':>8} {'half':>8} {'bound':>8} {'% bound':>8} {'% whole':>8} {'CPU':>6}{'  LP bound  % of it' if args.lp else ''}")  # fmt: skip
    for name in args.machines:
        for form in args.forms:
            for end in args.ends:
                with tempfile.TemporaryDirectory() as work:
                    costs = ("--hardware", profile_of(args, name, Path(work)), "--hardware-form", form, "--hardware-end", end)
                    row = {"machine": name, "form": form, "end": end, **measure(args, Path(work), costs)}
                rows.append(row)
                bound, percent = row["bound_seconds"] or 0, row["percent_of_bound"] or 0
                lp = row["lp_bound_seconds"]
                tight = f"{lp:10.3f} {100 * lp / row['half_step_seconds']:8.1f}" if args.lp else ""
                print(f"{name:8} {form:5} {end:5} {row['budget_mib']:4} MiB {row['whole_step_seconds']:8.3f} "
                      f"{row['half_step_seconds']:8.3f} {bound:8.3f} {percent:8.1f} {row['percent_of_whole']:8.1f} "
                      f"{row['threads_cpu_share_at_scale_1']:6.2f}{tight}{'' if row['equal'] else '  OTHER RESULTS'}", flush=True)  # fmt: skip
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(0 if all(row["equal"] for row in rows) else 1)


if __name__ == "__main__":
    main()
