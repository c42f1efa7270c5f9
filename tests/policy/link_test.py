"""Links whose directions slow each other down: what plans for the true link and plans for an independent one bring there.

usage: link_test.py SPILLWAY_PROGRAM [--traces N] [--first SEED] [--json FILE]. Each random trace runs on links whose directions together
reach 1, 1.25, 1.43, 1.7 and 2 times what one does. Every schedule must be accepted by the referee, which is given the true
--pcie-both, borrow nothing, and be no shorter than the quick bound and the LP's; a plan for the true link may be at most 1 %
slower than one for an independent link. FILE gets the figures of all runs.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "referee"))
import referee  # noqa: E402
from random_traces import write_random_trace  # noqa: E402
from schedule import Machine, read_schedule  # noqa: E402
from workload import Workload  # noqa: E402

# By (IN + OUT) / one direction: parts of each direction's own rate that are reached together.
CORNERS = {1: ((0.5, 0.5), (0.3, 0.7)), 1.25: ((0.625, 0.625), (0.35, 0.9)), 1.43: ((0.715, 0.715), (0.45, 0.98)),
           1.7: ((0.85, 0.85), (0.72, 0.98)), 2: ((1, 1), (1, 1))}
MOST_SLOWER = 1.01
UNIT = 2 * 2**20  # in which whole tensors move over such a link


class Trace:
    """A random trace with a machine that is too small for it."""

    def __init__(self, program, folder, seed):
        rng = random.Random(31_000 + seed)
        write_random_trace(folder, 40_000 + seed, most_kernels=40, most_tensors=24)
        self.program, self.folder, self.seed = program, folder, seed
        self.workload = Workload(folder)
        self.gpu = max(1, int(referee.peak_live(self.workload) * rng.uniform(0.5, 0.95)))
        self.host = rng.choice([0, 30_000_000, 10**9, 10**9])
        self.piece = rng.choice([0, 2_000_000])
        self.pcie = [rng.choice([1e9, 4e9, 16e9]) for _ in range(2)] if seed % 2 else [rng.choice([1e9, 4e9, 16e9])] * 2
        self.ssd = [rng.choice([0.5e9, 2e9]) for _ in range(2)]
        self.shared = seed % 4 == 0
        self.latency = rng.choice([0, 0, 20])

    def run(self, both, *options):
        """What the program says, and what the referee does: None when the job cannot run there."""
        path = os.path.join(self.folder, "schedule.csv")
        command = [self.program, "simulate", "--trace", self.folder, "--gpu-memory", self.gpu, "--host-memory", self.host,
                   "--piece", self.piece, "--pcie-in", self.pcie[0], "--pcie-out", self.pcie[1], "--pcie-both",
                   f"{both[0]!r},{both[1]!r}", "--ssd-read", self.ssd[0], "--ssd-write", self.ssd[1], "--latency", self.latency,
                   *(["--ssd-shared"] if self.shared else []), "--schedule", path, "--json", *options]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=300)
        if done.returncode == 1:
            return None
        assert done.returncode == 0, (self.seed, done.stderr)
        rates = dict(zip(("pcie_in", "pcie_out", "ssd_read", "ssd_write"), self.pcie + self.ssd))
        machine = Machine({"gpu": self.gpu, "host": self.host, "ssd": float("inf")}, rates, self.shared, self.piece or UNIT,
                          both)
        return json.loads(done.stdout), referee.check(self.workload, read_schedule(path, self.workload), machine)


def problem_of(own, judged, bounds):
    """What is wrong with one run, or None."""
    if not judged["ok"]:
        return judged["errors"][:2]
    if judged["borrowed_bytes"]:
        return "borrows"
    if abs(own["iteration_us"] - judged["iteration_us"]) > 0.001 * judged["iteration_us"] + 1:
        return "the simulator and the referee differ"
    beaten = {kind: time for kind, time in bounds.items() if time > judged["iteration_us"] * 1.00001 + 1}
    return f"shorter than {beaten}" if beaten else None


def judge(trace, corner):
    """The runs of one trace on one link, as a dict; None when the job cannot run on it."""
    both = tuple(part * rate for part, rate in zip(corner, trace.pcie))
    lp = trace.run(both, "--bound", "lp", "--policy", "lru", "--iterations", 10)
    true = trace.run(both)
    if lp is None or true is None:
        return None
    runs = {"lru": lp, "true": true, "independent": trace.run(both, "--plan-independent")}
    bounds = {"lp": lp[0]["bound_us"], "quick": true[0]["bound_us"]}
    if runs["lru"][1]["borrowed_bytes"]:  # on demand a job need not come to a steady iteration
        del runs["lru"]
    problems = {name: problem_of(*run, bounds) for name, run in runs.items()}
    times = {name: run[1]["iteration_us"] for name, run in runs.items()}
    if times["true"] > MOST_SLOWER * times["independent"] + 1:
        problems["true"] = problems["true"] or f"slower than the plan for an independent link: {times}"
    problems = {name: what for name, what in problems.items() if what}
    return {"seed": trace.seed, "corner": corner, "bounds": bounds, **times, "ideal": true[0]["ideal_us"], "problems": problems}


def summary(times, runs):
    """One line for the runs of one link that its directions limit."""
    limited = [run for run in runs if run["bounds"]["lp"] > 1.001 * run["ideal"]]
    gain = [run["independent"] / run["true"] for run in limited] or [1]
    near = [run["bounds"]["lp"] / run["true"] for run in limited] or [1]
    return (f"IN + OUT = {times} times one: {len(runs)} runs, {len(limited)} limited; there the independent plan takes "
            f"{sum(gain) / len(gain):.4f} times as long (worst {max(gain):.3f}, best {min(gain):.4f}), "
            f"and the true one reaches {100 * sum(near) / len(near):.1f} % of the LP's bound")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--traces", type=int, default=40)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--json")
    args = parser.parse_args()
    found = {times: [] for times in CORNERS}
    for seed in range(args.first, args.first + args.traces):
        for times, corners in CORNERS.items():
            with tempfile.TemporaryDirectory() as folder:
                run = judge(Trace(os.path.abspath(args.program), folder, seed), corners[seed % 2])
            if run:
                found[times].append(run)
    bad = [run for runs in found.values() for run in runs if run["problems"]]
    for times, runs in found.items():
        print(summary(times, runs))
    for run in bad[:20]:
        print("wrong:", run)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
    enough = all(len(runs) >= args.traces * 0.7 for runs in found.values())
    return 0 if enough and not bad else 1


if __name__ == "__main__":
    sys.exit(main())
