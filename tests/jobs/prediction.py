"""The plan against least-recently-used: the example job with half of the memory that it needs, no host tier, and a disk
whose transfers take as long as the job computes.

How the disk is set: a run with all its memory, kernels padded to --kernel-time, gives the time T in which a step computes
(and the losses that all runs must have); a run with SPILLWAY=observe gives E, the bytes that any schedule must bring back
each step. The disk then has E / T bytes a second in each direction. Pairs of runs follow, plan and lru in turn, and what
`spillway simulate` makes of the plan's own trace on that machine.

    build/venv/bin/python tests/jobs/prediction.py --build build --pairs 3      # by hand, on a quiet machine: 5 minutes
    ... prediction.py --build build --short                                     # what does not depend on load
"""

import json
import math
import statistics
import subprocess
from pathlib import Path

import device_log
import harness
import job

FIRST_STEP = 6  # from here on the plan must work
BUDGET_PERCENT = 50
COPY_BYTES_PER_S = 3e9  # of the stand-in's link, each way: far above the disk's
LATENCY_US = 80
OTHERS_SHARE = 16 * harness.MIB  # of the budget, not for blocks, at least
# Few tokens for so many weights: what two cores compute hides behind the padding.
MODEL = (*harness.MODEL, "--batch", "4")
CAUSES = ("chunks", "arrival", "run_ahead")  # of what the GPU waits for


class Bench:
    """The machine of one call, and the runs on it."""

    def __init__(self, args):
        self.args = args
        self.steps = args.steps
        known = subprocess.run([str(args.build / "bin" / "spillway"), "run", "--help"], capture_output=True, text=True, check=True)
        self.records = "--trace" in known.stdout
        self.options = ("--mode", "strict", "--kernel-time", str(args.kernel_time),
                        "--copy-bandwidth", str(int(COPY_BYTES_PER_S)))  # fmt: skip

    def here(self, *more):
        return harness.machine(self.args, "prediction", *self.options, *more)

    def arguments(self, steps):
        return [*MODEL, "--optimizer-form", self.args.form, "--steps", str(steps)]

    def run(self, here, mode, steps, cap=None, script=job.TRAIN, **more):
        finished = job.run_job(here, mode, self.arguments(steps), cap, script=script, show=lambda line: False, **more)
        if finished.keys["status"] != "ok":
            raise SystemExit(f"{more.get('name', mode)}: {finished.keys['status']}\n{finished.log[-3000:]}")
        return finished

    def uncapped(self):
        """The run that all others must equal, and the seconds in which the device computes a step."""
        here = self.here()
        log = here.work / "uncapped.log.tsv"
        finished = self.run(here, job.UNCAPPED, self.steps, extra_environment={"SIMCUDA_LOG": str(log)})
        return finished, undisturbed_seconds(log, 2, self.steps)

    def least_bytes(self, budget):
        """Bytes that must come back each step, whatever the schedule."""
        here = harness.machine(self.args, "prediction", "--mode", "strict")
        cap = job.Cap(here.uncapped_memory, settings={"gpu_memory": job.size_text(budget)})
        finished = self.run(here, job.PRELOAD, 6, cap, name="observe", extra_environment={"SPILLWAY": "observe"})
        step = finished.metrics["devices"][0]["observed"]
        entry = [one for one in step.get("budgets", []) if one["percent"] is None]
        if not entry or not entry[0]["possible"]:
            raise SystemExit(f"no step was found to repeat, or it cannot fit: {step}")
        return entry[0]["least_fetched_bytes_per_iteration"]

    def capped(self, policy, budget, rate, name):
        here = self.here()
        model = f"read:{rate:.0f},write:{rate:.0f},latency:{LATENCY_US}us"
        cap = job.Cap(budget, "0", str(here.work), {"policy": policy, "io_model": model,
                                                        "gpu_memory": job.size_text(budget)})  # fmt: skip
        if policy == "plan" and self.records:
            cap.settings["trace"] = str(here.work / f"{name}.trace")
        notes = here.work / f"{name}.steps.json"
        log = here.work / f"{name}.log.tsv"
        environment = {"STATS_PROBE_FILE": str(notes), "SIMCUDA_LOG": str(log)}
        finished = self.run(here, job.PRELOAD, self.steps, cap, Path(__file__).with_name("stats_probe.py"), name=name,
                            extra_environment=environment)  # fmt: skip
        return Capped(policy, finished, json.loads(notes.read_text()), kernel_seconds(log, FIRST_STEP, self.steps))

    def predicted_seconds(self, name, budget, others, rate):
        """What the simulator makes of a step by the trace that the job wrote; None without a trace."""
        trace = self.here().work / f"{name}.trace"
        if not trace.is_file():
            return None
        command = [str(self.args.build / "bin" / "spillway"), "simulate", "--trace", str(trace), "--json", "--piece", "0",
                   "--gpu-memory", str(budget - max(others, OTHERS_SHARE)), "--host-memory", "0", "--pcie", str(COPY_BYTES_PER_S),
                   "--ssd-read", str(rate), "--ssd-write", str(rate)]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
        result = json.loads(done.stdout)
        print(f"simulate: iteration {result['iteration_us'] / 1e6:.3f} s, {result['percent_of_ideal']:.1f} % of ideal, "
              f"{result['percent_of_bound']:.1f} % of bound", flush=True)  # fmt: skip
        return result["iteration_us"] / 1e6


def kernel_seconds(path, first, last):
    """Seconds a step in which a kernel ran, from the `first` step's forward pass to the `last` one's."""
    lines = device_log.kernels(device_log.read_log(path))
    marks = sorted(line.start for line in lines if device_log.STEP_MARK in line.name)
    inside = [line for line in lines if marks[first - 1] <= line.start < marks[last - 1]]
    return device_log.total(device_log.busy(inside)) / 1e9 / (last - first)


def undisturbed_seconds(path, first, last):
    """The same where each kernel of a step takes as long as in the step in which it took least: other work on the machine
    must not set the disk."""
    lines = device_log.kernels(device_log.read_log(path))
    marks = sorted(line.start for line in lines if device_log.STEP_MARK in line.name)[first - 1 : last]
    steps = [[line for line in lines if begin <= line.start < end] for begin, end in zip(marks, marks[1:])]
    if len({tuple(line.name for line in step) for step in steps}) > 1:
        raise SystemExit("the steps of the uncapped run launch different kernels")
    return sum(min(line.end - line.start for line in same) for same in zip(*steps)) / 1e9


class Capped:
    """One capped run, by its steps from FIRST_STEP on."""

    def __init__(self, policy, finished, notes, computing):
        self.policy, self.finished, self.computing = policy, finished, computing
        begin, end = notes[FIRST_STEP - 1], notes[-1]
        self.steps = len(notes) - FIRST_STEP
        seconds = finished.report["step_seconds"][FIRST_STEP - 1 :]
        self.step_seconds = statistics.median(seconds)  # so that other work on the machine for a while decides nothing
        arguments = finished.report["arguments"]
        self.tokens_per_s = arguments["batch"] * arguments["sequence"] / self.step_seconds
        per_step = {key: (end[key] - begin[key]) / self.steps
                    for key in ("spilled_bytes", "fetched_bytes", "in_time_bytes")}  # fmt: skip
        self.out, self.back = per_step["spilled_bytes"], per_step["fetched_bytes"]
        self.in_time = per_step["in_time_bytes"] / self.back if self.back else math.nan
        self.lost = {cause: (end["lost_seconds"][cause] - begin["lost_seconds"][cause]) / self.steps for cause in CAUSES}
        self.step = finished.metrics["devices"][0].get("iteration") or {}

    def line(self, ideal):
        stalls = ", ".join(f"{cause} {seconds:.2f}" for cause, seconds in self.lost.items())
        bound = self.step.get("percent_of_bound")
        return (f"  {self.policy:4}  {self.tokens_per_s:7.1f} tokens/s  step {self.step_seconds:.2f} s "
                f"({ideal / self.step_seconds:.0%} of everything resident, kernels {self.computing:.2f} s)  "
                f"out {self.out / 1e6:.0f} MB, back {self.back / 1e6:.0f} MB ({self.in_time:.0%} in time)  "
                f"the GPU waited, s a step: {stalls}  {'-' if bound is None else f'{bound:.1f}'} % of bound")  # fmt: skip


def measure(bench, problems):
    uncapped, computing = bench.uncapped()
    budget = uncapped.keys["peak_bytes"] * BUDGET_PERCENT // 100 // (2 * harness.MIB) * (2 * harness.MIB)
    least = bench.least_bytes(budget)
    rate = least / computing
    print(f"uncapped: peak {uncapped.keys['peak_bytes'] / 1e6:.0f} MB, kernels {computing:.2f} s a step; budget {budget / 1e6:.0f} MB, "
          f"at least {least / 1e6:.0f} MB back a step; disk {rate / 1e6:.1f} MB/s each way", flush=True)  # fmt: skip
    figures = {"kernel_seconds": computing, "budget_bytes": budget, "least_bytes": least, "disk_bytes_per_s": rate, "pairs": []}
    for pair in range(bench.args.pairs):
        order = ("plan", "lru") if pair % 2 == 0 else ("lru", "plan")
        runs = {policy: bench.capped(policy, budget, rate, f"{policy}-{pair}") for policy in order}
        plan, lru = runs["plan"], runs["lru"]
        for run in (plan, lru):
            print(run.line(computing), flush=True)
            for key in ("losses_sha256", "state_sha256"):
                problems.expect(run.finished.keys[key] == uncapped.keys[key], f"{run.policy}: {key} differs from the uncapped run")
            # The least is that of a step that repeats for ever: the steps that are counted may begin with all memory full of
            # what they need, and end with none of it.
            problems.expect(run.back * run.steps >= least * run.steps - budget,
                            f"{run.policy} brought back {run.back:.0f} bytes a step, under the least, {least}")  # fmt: skip
        predicted = bench.predicted_seconds(f"plan-{pair}", budget, plan.finished.metrics["external_bytes"], rate)
        figures["pairs"].append({
            "plan_to_lru": lru.step_seconds / plan.step_seconds,
            "of_predicted": predicted / plan.step_seconds if predicted else None,
            "transfer_to_compute": least / rate / plan.computing,
            "in_time": plan.in_time,
            "plan": {"step_seconds": plan.step_seconds, "lost": plan.lost, "out": plan.out, "back": plan.back, **plan.step},
            "lru": {"step_seconds": lru.step_seconds, "lost": lru.lost, "out": lru.out, "back": lru.back, **lru.step},
        })  # fmt: skip
        last = figures["pairs"][-1]
        print(f"pair {pair + 1}: plan/lru {last['plan_to_lru']:.3f}, of the predicted "
              f"{'-' if predicted is None else '{:.1%}'.format(last['of_predicted'])}, transfers/kernels "
              f"{last['transfer_to_compute']:.2f}, back {plan.back / least:.2f} x E", flush=True)  # fmt: skip
        sure(plan, problems)
    return figures


def sure(plan, problems):
    """What holds however busy the machine is."""
    device = plan.finished.metrics["devices"][0]
    problems.expect(device["plans"] >= 1, "no plan was put in force")
    problems.expect(plan.finished.metrics["prefetched_bytes"] > 0, "nothing was brought back ahead of need")
    problems.expect(plan.finished.metrics["host_spilled_bytes"] == 0, "bytes went to host memory")


def goals(figures, problems):
    medians = {key: statistics.median(pair[key] for pair in figures["pairs"])
               for key in ("plan_to_lru", "transfer_to_compute")}  # fmt: skip
    predicted = [pair["of_predicted"] for pair in figures["pairs"]]
    problems.expect(medians["plan_to_lru"] >= 1.5, f"the plan has {medians['plan_to_lru']:.3f} of lru's tokens/s, less than 1.5")
    problems.expect(0.9 <= medians["transfer_to_compute"] <= 1.1, f"transfers take {medians['transfer_to_compute']:.2f} of the kernels' time")
    if problems.expect(None not in predicted, "no trace was written, so nothing was predicted"):
        share = statistics.median(predicted)
        problems.expect(share >= 0.9, f"{share:.1%} of the predicted tokens/s, less than 90 %")


def main():
    args = harness.arguments(__doc__, ("--pairs", {"type": int, "default": 3}), ("--steps", {"type": int, "default": 14}),
                             ("--kernel-time", {"type": int, "default": 5000, "help": "microseconds that a kernel takes at least"}),
                             ("--form", {"choices": ["plain", "foreach", "fused"], "default": "plain", "help": "of AdamW"}),
                             ("--short", {"action": "store_true", "help": "one pair, few steps, judged by what load does not change"}))  # fmt: skip
    if args.short:
        args.pairs, args.steps, args.kernel_time = 1, FIRST_STEP + 3, 1000
    problems = harness.Problems()
    bench = Bench(args)
    figures = measure(bench, problems)
    (bench.here().work / "prediction.json").write_text(json.dumps(figures, indent=2))
    if not args.short:
        goals(figures, problems)
    problems.exit()


if __name__ == "__main__":
    main()
