#!/usr/bin/env python3
"""Share of time that the GPU lost, by kind of job: the planner beside least recently used, on simcuda.

    build/venv/bin/python bench/lost_share.py [--build build] [--runs 3] [--steps 12] [--kernel-us 1000] [--transfers 0.5]
                                              [--by-fetches] [--no-products] [--kinds static,varlen,...] [--json FILE]

The jobs are those of tests/jobs/changing_script.py. Kernels are padded to --kernel-us. A run with all its memory gives the
peak, the bits that all others must have, and the time of an iteration. The others have half of the peak, host memory that
suffices, and a link on which the other half takes --transfers of an iteration in each direction. With --by-fetches the link
is such that the bytes that the planner fetches in an iteration, on a link without a limit, take that time: an iteration that
goes over its memory several times moves more than the other half. Of each policy there are --runs runs, by turns, and the
median counts. Share: lost_seconds (all causes) over the time of the iterations behind the first third. Goals: at most 0.65 of
what lru loses for each kind, and 0.5 in the mean.
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

SCRIPT = ROOT / "tests" / "jobs" / "changing_script.py"
KINDS = ("static", "varlen", "layerdrop", "fifth", "mixed", "accumulation", "moe", "gan", "generation", "lora", "diffusion", "teacher")
POLICIES = ("lru", "plan")
EACH, MEAN = 0.65, 0.5  # goals: plan's share over lru's
BITS = ("losses_sha256", "state_sha256")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--runs", type=int, default=3, help="of each policy")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch", type=int, default=12, help="samples of 64 tokens; 10 at least")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kernel-us", type=int, default=1000, help="least time of a kernel, in microseconds")
    parser.add_argument("--transfers", type=float, default=0.5)
    parser.add_argument("--by-fetches", action="store_true", help="the link is by what the planner fetches, not by the peak")
    parser.add_argument("--no-products", action="store_true", help="without large matrix products, for a busy machine: bits say less")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS))
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


class Kind:
    """The runs of one kind of job."""

    def __init__(self, args, name, work):
        self.args, self.name, self.work = args, name, work
        whole = self.run(job.UNCAPPED, None)
        self.bits = [whole.keys[key] for key in BITS]
        self.peak = whole.keys["peak_bytes"]
        self.seconds = statistics.median(note["seconds"] for note in self.counted(whole))
        moved = self.fetched() if args.by_fetches else self.peak / 2
        self.link = moved / (args.transfers * self.seconds)

    def run(self, mode, cap, *costs):
        machine = job.Machine("simcuda", self.work, build=self.args.build.resolve(),
                              simcuda_options=("--mode", "strict", "--kernel-time", str(self.args.kernel_us), *costs))  # fmt: skip
        train = ["--kind", self.name, "--steps", str(self.args.steps), "--seed", str(self.args.seed), "--batch", str(self.args.batch)]
        train += ["--no-products"] if self.args.no_products else []
        done = job.run_job(machine, mode, train, cap, script=SCRIPT, show=lambda line: False, timeout=600,
                           extra_environment={"SPILLWAY_PROFILE": "off"})  # fmt: skip
        if done.keys["status"] != "ok":
            raise SystemExit(f"{self.name}, {mode}: {done.keys['status']}\n{done.log[-3000:]}")
        return done

    def counted(self, run):
        return run.report["notes"][self.args.steps // 3 :]

    def half(self, policy, *costs):
        """The counted notes of a run with half of the peak, and the one before them."""
        cap = job.Cap(self.peak // 2, job.size_text(4 * self.peak), "none", {"policy": policy})
        done = self.run(job.PRELOAD, cap, *costs)
        if [done.keys[key] for key in BITS] != self.bits:
            raise SystemExit(f"{self.name}, {policy}: other results than with all its memory")
        before, *notes = done.report["notes"][self.args.steps // 3 - 1 :]
        return before, notes

    def fetched(self):
        """Bytes that the planner fetches in an iteration."""
        before, notes = self.half("plan")
        return (notes[-1]["figures"]["fetched_bytes"] - before["figures"]["fetched_bytes"]) / len(notes)

    def capped(self, policy):
        """The share of time that the GPU lost, and the seconds of an iteration."""
        before, notes = self.half(policy, "--copy-bandwidth", str(int(self.link)))
        lost = sum(notes[-1]["figures"]["lost_seconds"].values()) - sum(before["figures"]["lost_seconds"].values())
        seconds = [note["seconds"] for note in notes]
        return lost / sum(seconds), statistics.mean(seconds)


def measure(args, name):
    with tempfile.TemporaryDirectory() as work:
        kind = Kind(args, name, Path(work))
        found = {policy: [] for policy in POLICIES}
        for number in range(args.runs):
            for policy in POLICIES if number % 2 == 0 else POLICIES[::-1]:
                found[policy].append(kind.capped(policy))
    shares = {policy: statistics.median(share for share, _ in runs) for policy, runs in found.items()}
    seconds = {policy: statistics.median(time for _, time in runs) for policy, runs in found.items()}
    ratio = shares["plan"] / shares["lru"] if shares["lru"] else None
    return {"kind": name, "peak_bytes": kind.peak, "link": kind.link, "whole_seconds": kind.seconds, "seconds": seconds,
            "shares": shares, "ratio": ratio, "runs": found}  # fmt: skip


def main():
    args = arguments()
    rows = []
    print(f"{'':12} {'peak':>8} {'link':>9} {'all':>6} {'lru':>6} {'plan':>6} {'lost: lru':>10} {'plan':>6} {'ratio':>6}")
    for name in args.kinds:
        row = measure(args, name)
        rows.append(row)
        ratio = "-" if row["ratio"] is None else f"{row['ratio']:.2f}"
        print(f"{name:12} {row['peak_bytes'] >> 20:4} MiB {row['link'] / 1e9:4.2f} GB/s {row['whole_seconds']:6.2f} {row['seconds']['lru']:6.2f} "
              f"{row['seconds']['plan']:6.2f} {row['shares']['lru']:10.3f} {row['shares']['plan']:6.3f} {ratio:>6}", flush=True)  # fmt: skip
    ratios = [row["ratio"] for row in rows if row["ratio"] is not None]
    if ratios:
        print(f"plan's share over lru's: mean {statistics.mean(ratios):.2f} (goal {MEAN}), largest {max(ratios):.2f} (goal {EACH})")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
