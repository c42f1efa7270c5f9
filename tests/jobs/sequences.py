"""Jobs in which not every step is the one before: micro-batches, an evaluation every few steps, three sequence lengths in
a seeded order. Each uncapped and capped; equal losses and final state, and the plans of known sequences taken up again.

Prints for each step: launches that came as the sequence said, how long the GPU waited, and what was fetched and was there in
time. How soon a plan is back and how much it has there in time are goals for a quiet machine: --judge-speed holds the run
to them.
"""

import dataclasses

import harness
import job
from harness import MIB

JOBS = ("accumulation", "evaluation", "lengths")
SCRIPT = harness.HERE / "sequences_script.py"
STEPS = {"accumulation": 5, "evaluation": 10, "lengths": 10}
MODEL = ("--width", "512", "--layers", "2", "--heads", "8", "--sequence", "64")
BATCH = {"accumulation": 4, "evaluation": 12, "lengths": 12}
PERCENT = 50  # of the peak
BACK_WITHIN, IN_TIME = 2, 0.9  # steps; share of the fetched bytes
KERNEL_MICROSECONDS = 3000  # with --judge-speed, as in prediction.py


@dataclasses.dataclass
class Step:
    """What Spillway's figures say about one step of the script."""

    name: str
    seconds: float
    launches: int
    followed: int
    waited: float  # the GPU
    fetched: int
    in_time: int
    plan_launches: int  # of an iteration of the plan in force when it ended; 0: none

    @property
    def hit(self):
        return self.followed / self.launches if self.launches else 0.0


def steps_of(notes):
    steps, before = [], {}
    for note in notes:
        now = note["figures"]

        def delta(key):
            return now.get(key, 0) - before.get(key, 0)

        lost = sum(now["lost_seconds"].values()) - sum(before.get("lost_seconds", {}).values())
        steps.append(Step(note["step"], note["seconds"], delta("launches"), delta("followed_launches"), lost,
                          delta("fetched_bytes"), delta("prefetch_in_time_bytes"), now["plan_iteration_launches"]))  # fmt: skip
        before = now
    return steps


def show(steps):
    for number, step in enumerate(steps, start=1):
        share = step.in_time / step.fetched if step.fetched else 1.0
        print(f"   step {number:2d} {step.name:>10}: {step.seconds:5.2f} s, {step.hit:4.0%} of {step.launches} launches as expected, "
              f"the GPU waited {step.waited:.2f} s, fetched {step.fetched / MIB:.0f} MiB, {share:4.0%} in time", flush=True)


def returns(steps):
    """Steps at which the job does again what it did before, after something else in between."""
    seen, found = set(), []
    for index, step in enumerate(steps):
        if step.name in seen and step.name != steps[index - 1].name:
            found.append(index)
        if index > 0:  # the first step is a warm-up: no other is like it
            seen.add(step.name)
    return found


def speed_problems(kind, steps, problems):
    """The goals: back within two steps of a known sequence's return, and from then on what is fetched is there in time."""
    for index in returns(steps):
        same = [s for s in steps[index : index + BACK_WITHIN + 1]]
        problems.expect(any(s.hit >= IN_TIME for s in same), f"{kind}: no plan within {BACK_WITHIN} steps after step {index + 1}")
    late = steps[len(steps) // 2 :]
    fetched, in_time = sum(s.fetched for s in late), sum(s.in_time for s in late)
    share = in_time / fetched if fetched else 1.0
    print(f"   second half: {share:.1%} of {fetched / MIB:.0f} MiB in time", flush=True)
    problems.expect(share >= IN_TIME, f"{kind}: only {share:.1%} of the fetched bytes were there in time")


def run_kind(args, kind, problems):
    print(f"\n== {kind}", flush=True)
    options = ["--mode", "strict"] + (["--kernel-time", str(KERNEL_MICROSECONDS)] if args.judge_speed else [])
    here = harness.machine(args, f"sequences-{kind}", *options)
    arguments = [*MODEL, "--batch", str(BATCH[kind]), "--steps", str(args.steps or STEPS[kind])]
    both = {"script": SCRIPT, "extra_environment": {"SEQUENCES_JOB": kind}, "show": lambda line: False}
    uncapped = job.run_job(here, job.UNCAPPED, arguments, **both)
    if not problems.expect(uncapped.keys["status"] == "ok", f"{kind} uncapped: {uncapped.keys['status']}\n{uncapped.log[-2000:]}"):
        return
    peak = uncapped.keys["peak_bytes"]
    cap = job.Cap(harness.whole_chunks(peak * PERCENT // 100), job.size_text(2 * peak), "none")
    run = job.run_job(here, job.PRELOAD, arguments, cap, **both)
    if not problems.expect(run.keys["status"] == "ok", f"{kind}: {run.keys['status']}\n{run.log[-2000:]}"):
        return
    for key in ("losses_sha256", "state_sha256"):
        problems.expect(run.keys[key] == uncapped.keys[key], f"{kind}: {key} differs from the uncapped run")
    notes = run.report["notes"]
    last = notes[-1]["figures"]
    steps = steps_of(notes)
    show(steps)
    print(f"   {last['plans']} plans, {last['plan_improvements']} of them better ones, {last['plan_readoptions']} of sequences that were "
          f"left; {last['plan_departures']} departures, {last['plan_sequences']} sequences, {last['iteration_marks']} marks", flush=True)
    problems.expect(run.keys["fetched_bytes"] > 0, f"{kind}: nothing was fetched, so nothing is tested")
    # The latest may not have been looked at yet.
    problems.expect(0 < last["iteration_marks"] <= len(steps), f"{kind}: {last['iteration_marks']} marks in {len(steps)} steps")
    problems.expect(last["plans"] > 0, f"{kind}: no plan was ever in force")
    if returns(steps):
        problems.expect(last["plan_readoptions"] > 0, f"{kind}: no plan was taken up again")
    if args.judge_speed:
        speed_problems(kind, steps, problems)


def main():
    args = harness.arguments(__doc__, ("--only", {"choices": JOBS}), ("--steps", {"type": int, "help": "of each job"}),
                             ("--judge-speed", {"action": "store_true", "help": "for a quiet machine: kernels of up to 3 ms"}))  # fmt: skip
    problems = harness.Problems()
    for kind in [args.only] if args.only else JOBS:
        run_kind(args, kind, problems)
    problems.exit()


if __name__ == "__main__":
    main()
