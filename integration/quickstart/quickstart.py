"""Trains the example job four ways and shows them side by side. Started by integration/quickstart.sh after the build.

The uncapped run measures how many bytes of device memory the job takes. The other three get --budget percent of them:
PyTorch alone, which must run out of memory, and Spillway loaded in its two ways, which must give the same bits.
"""

import argparse
import json
import re
import sys
import threading
import time
from pathlib import Path

import job

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


def parse_size(text, peak):
    """Bytes of `20GiB`, `500MB` or `10%` (of the uncapped peak)."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(%|[KMG]?I?B|)\s*", text.upper())
    if not match:
        raise ValueError(f"--host-memory {text}: expected a size such as 2GiB, 500MB or 10% (of the uncapped peak)")
    number, unit = float(match.group(1)), match.group(2)
    return int(peak * number / 100) if unit == "%" else int(number * UNITS[unit])


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        prog="quickstart.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="--python PATH takes that Python's PyTorch instead of making build/venv. "
        "What follows -- goes to train_gpt.py, for example: -- --width 768 --layers 8",
    )  # fmt: skip
    add = parser.add_argument
    add("--budget", type=float, default=35, metavar="PERCENT", help="device memory of the capped runs, of the uncapped peak")
    add("--host-memory", default="10%", metavar="SIZE", help="Spillway's pinned host memory: 2GiB, 500MB, or %% of the peak")
    add("--steps", type=int, default=8)
    add("--seed", type=int, default=1)
    add("--json", type=Path, metavar="FILE", help="write the figures here")
    add("--device", choices=["auto", "gpu", "simcuda"], default="auto", help="default: the GPU where there is one")
    add("--build", type=Path, default=job.ROOT / "build", metavar="DIR", help="where Spillway was built")
    add("--check", action="store_true", help=argparse.SUPPRESS)  # for quickstart.sh: looks at the arguments alone
    add("train", nargs="*", metavar="-- ARGUMENTS", help="more arguments of train_gpt.py")
    args = parser.parse_args(argv)
    if not 1 <= args.budget <= 100:
        parser.error("--budget is a percentage from 1 to 100")
    if args.steps < 1:
        parser.error("--steps is a number from 1 on")
    try:
        parse_size(args.host_memory, 1)
    except ValueError as wrong:
        parser.error(str(wrong))
    return args


def cell(value, form="{}"):
    return "-" if value is None else form.format(value)


def mib(value):
    return cell(None if value is None else value / job.MIB, "{:.0f}")


def same(run, reference):
    """Losses of all steps and the final state, bit for bit."""
    if run["status"] != "ok" or reference["status"] != "ok" or run is reference:
        return "-"
    equal = all(run[key] == reference[key] for key in ("losses_sha256", "state_sha256"))
    return "yes" if equal else "NO"


def table(runs):
    """The runs as lines of text; bytes in MiB."""
    reference = runs[0]
    rows = [["", "status", "first loss", "last loss", "equal", "peak", "budget", "spilled", "to host", "fetched",
             "SSD written", "tokens/s", "ratio"]]  # fmt: skip
    for run in runs:
        ratio = None
        if run["tokens_per_s"] and reference["tokens_per_s"]:
            ratio = run["tokens_per_s"] / reference["tokens_per_s"]
        rows.append([run["mode"], run["status"], cell(run["first_loss"], "{:.4f}"), cell(run["last_loss"], "{:.4f}"),
                     same(run, reference), *(mib(run[k]) for k in ("peak_bytes", "budget_bytes", "spilled_bytes",
                     "host_spilled_bytes", "fetched_bytes", "disk_written_bytes")), cell(run["tokens_per_s"], "{:.0f}"),
                     cell(ratio, "{:.2f}")])  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(text.ljust(w) if i < 2 else text.rjust(w) for i, (text, w) in enumerate(zip(row, widths))).rstrip()
            for row in rows]  # fmt: skip


def problems(runs):
    """What did not come out as it must; empty when all is well."""
    found = []
    for run in runs:
        wanted = "out_of_memory" if run["mode"] == job.PLAIN else "ok"
        if run["status"] != wanted:
            found.append(f"{run['mode']}: {run['status']} instead of {wanted}")
        if run["mode"] in job.SPILLWAY_MODES and run["status"] == "ok":
            if same(run, runs[0]) != "yes":
                found.append(f"{run['mode']}: losses or final state differ from the uncapped run")
            if not run["spilled_bytes"]:
                found.append(f"{run['mode']}: nothing was spilled")
            if (run["peak_bytes"] or 0) > run["budget_bytes"]:
                found.append(f"{run['mode']}: the peak is over the budget")
    return found


def verdict(runs, found):
    """One sentence on what the runs showed, and the command to try next."""
    if found:
        return (f"Not as it must be: {'; '.join(found)}. The runs' logs are in build/quickstart; "
                "docs/troubleshooting.md has the messages.")  # fmt: skip
    uncapped, _, *spillway = runs
    ratios = [run["tokens_per_s"] / uncapped["tokens_per_s"] for run in spillway]
    return (f"Spillway trained the job on {mib(spillway[0]['budget_bytes'])} of its {mib(uncapped['peak_bytes'])} MiB, "
            f"where PyTorch alone ran out of memory: the same bits at {min(ratios):.2f} to {max(ratios):.2f} of the speed.")  # fmt: skip


def next_command(device):
    command = f"{job.ROOT}/build/bin/spillway"
    own_job = f"{command} run --host-memory 20GiB -- python train.py"
    if device == "gpu":
        return f"Next, your own job: {own_job}"
    return f"Next, on a machine with a GPU: {own_job}; here: {command} doctor"


class Heartbeat:
    """Says every 15 s that a run goes on, while it prints nothing itself. with Heartbeat() as beat: show=beat.show."""

    def __init__(self, seconds=15.0):
        self.seconds, self.last = seconds, time.monotonic()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.beat, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def show(self, line):
        shown = job.worth_showing(line)
        if shown:
            self.last = time.monotonic()
        return shown

    def beat(self):
        while not self.ended.wait(max(0.01, self.last + self.seconds - time.monotonic())):
            if time.monotonic() >= self.last + self.seconds:
                self.last = time.monotonic()
                print("    (it goes on)", flush=True)


def run_job(machine, mode, train, *cap):
    with Heartbeat() as beat:
        return job.run_job(machine, mode, train, *cap, show=beat.show)


def run_all(args, machine):
    train = ["--steps", str(args.steps), "--seed", str(args.seed), *args.train]
    print("\n-- uncapped: how much device memory the job takes", flush=True)
    uncapped = run_job(machine, job.UNCAPPED, train)
    if uncapped.keys["status"] != "ok":
        raise SystemExit(f"The uncapped run {uncapped.keys['status']}:\n{uncapped.log[-3000:]}")
    peak = uncapped.keys["peak_bytes"]
    if not peak:
        raise SystemExit("The uncapped run reported no peak of device memory.")
    budget = int(peak * args.budget / 100) // (2 * job.MIB) * (2 * job.MIB)
    cap = job.Cap(budget, job.size_text(parse_size(args.host_memory, peak)))
    total = ((uncapped.report or {}).get("memory") or {}).get("device_total_bytes")
    runs = [uncapped.keys]
    words = {job.PLAIN: "PyTorch alone", job.PRELOAD: "Spillway by LD_PRELOAD", job.CONF: "Spillway by the configuration"}
    for mode in (job.PLAIN, job.PRELOAD, job.CONF):
        print(f"\n-- {mode}: {words[mode]} on {budget / job.MIB:.0f} of {peak / job.MIB:.0f} MiB", flush=True)
        run = run_job(machine, mode, train, cap, total)
        if run.keys["status"] == "failed":
            print(run.log[-3000:], file=sys.stderr)
        runs.append(run.keys)
    return runs


def main():
    args = parse_arguments()
    if args.check:
        return
    device = args.device if args.device != "auto" else "gpu" if job.has_gpu() else "simcuda"
    machine = job.Machine(device=device, work=args.build.resolve() / "quickstart", build=args.build.resolve())
    print(f"\n== the example job, four ways, on {'the GPU' if device == 'gpu' else 'simcuda, a stand-in device'}")
    runs = run_all(args, machine)
    print("\nbytes in MiB; equal: losses of all steps and the final state, bit for bit\n")
    print("\n".join(table(runs)))
    if args.json:
        args.json.write_text(json.dumps({"device": device, "runs": runs}, indent=2) + "\n", encoding="utf-8")
    found = problems(runs)
    print(f"\n{verdict(runs, found)}")
    if not found:
        print(next_command(device))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
