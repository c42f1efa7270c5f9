"""What one run of a job has learnt, for the next (SPILLWAY_PROFILE): the example job with too little memory, twice with one
profile, and once with one in which each fact is wrong. All have the bits of the run with enough memory. The second run's
first plan knows what is written; the third one finds out, and its profile is right again.

    build/venv/bin/python tests/jobs/job_profile.py --build build --steps 20 --kernel-time 3000 --host-memory 0 --disk 4e8    # by hand
"""

import json
import subprocess
from pathlib import Path

import harness
import job
from harness import MIB

SHARE = 0.5  # of the memory that the job needs
KNOWN = 0.9  # of the accesses of an iteration, for its writes to count as known


class Judge:
    def __init__(self, args):
        self.args = args
        self.problems = harness.Problems()
        self.train = (*harness.MODEL, "--batch", "4", "--optimizer-form", "plain", "--steps", str(args.steps))
        self.here = harness.machine(args, "profile", "--mode", "strict", "--kernel-time", args.kernel_time)
        self.whole = self.run("whole", job.UNCAPPED, None)
        if not self.problems.expect(self.whole.report is not None, f"uncapped: {self.whole.log[-3000:]}"):
            self.problems.exit()
        self.memory = int(self.whole.keys["peak_bytes"] * SHARE)

    def run(self, name, mode, cap, script=job.TRAIN, **variables):
        return job.run_job(self.here, mode, self.train, cap, script=script, name=name, show=lambda _: False, timeout=500,
                           extra_environment=variables)  # fmt: skip

    def capped(self, name, profile):
        """The run, and Spillway's figures at the beginning of each step."""
        notes = self.here.work / f"{name}.steps.json"
        notes.unlink(missing_ok=True)
        settings = {"log": "info"}
        if self.args.disk:
            settings["io_model"] = f"read:{self.args.disk},write:{self.args.disk}"
        cap = job.Cap(self.memory, self.args.host_memory, str(self.here.work), settings)
        seen = self.run(name, job.PRELOAD, cap, Path(__file__).with_name("stats_probe.py"), STATS_PROBE_FILE=str(notes),
                        SPILLWAY_PROFILE=str(profile))  # fmt: skip
        if self.problems.expect(seen.report is not None, f"{name}: status {seen.exit_status}\n{seen.log[-3000:]}"):
            for key in ("losses_sha256", "state_sha256"):
                self.problems.expect(seen.keys[key] == self.whole.keys[key], f"{name}: {key} differs from the uncapped run")
            return seen, [Step(before, after) for before, after in steps_of(json.loads(notes.read_text()))]
        return seen, []


class Step:
    def __init__(self, before, after):
        self.seconds = after["time"] - before["time"]
        device = after["devices"][0]
        self.plans = device["plans"]
        self.known = device["plan_accesses_known"] / device["plan_accesses"] if device["plan_accesses"] else None
        self.lost = sum(after["lost_seconds"].values()) - sum(before["lost_seconds"].values())
        self.written = (after["spilled_bytes"] - before["spilled_bytes"]) / MIB


def steps_of(notes):
    return list(zip(notes, notes[1:]))


def table(name, steps):
    print(f"{name}: known    " + " ".join("  -- " if step.known is None else f"{step.known:5.2f}" for step in steps), flush=True)
    print(f"{name}: MiB out  " + " ".join(f"{step.written:5.0f}" for step in steps))
    print(f"{name}: lost     " + " ".join(f"{step.lost / step.seconds:5.2f}" for step in steps))
    print(f"{name}: seconds  " + " ".join(f"{step.seconds:5.2f}" for step in steps))


def first_known(steps):
    """What was known when the first plan was made, as the first step that ended with one has it; None: there was no plan."""
    return next((step.known for step in steps if step.known is not None), None)


def writers(profile):
    """The forms of kernels of which a profile says that they write."""
    lines = (line.split() for line in profile.read_text().splitlines() if line.startswith("writes "))
    return {(tag, blocks) for _, tag, blocks, _, writes in lines if int(writes, 16) != 0}


def main():
    judge = Judge(harness.arguments(__doc__, ("--steps", {"type": int, "default": 10}),
                                    ("--kernel-time", {"default": "2000", "help": "microseconds that each kernel lasts at least"}),
                                    ("--host-memory", {"default": "1GiB"}),
                                    ("--disk", {"help": "bytes a second of the disk in each direction (default: as it is)"})))  # fmt: skip
    expect = judge.problems.expect
    profile = judge.here.work / "profile.txt"
    profile.unlink(missing_ok=True)
    first, first_steps = judge.capped("first", profile)
    table("first", first_steps)
    expect(profile.is_file(), "first: no profile was written")
    expect(profile.is_file() and profile.stat().st_mode & 0o777 == 0o600, "first: the profile is not the user's alone")
    expect((first.metrics or {}).get("spilled_bytes", 0) > 0, "first: nothing was spilled, so nothing is shown")

    second, second_steps = judge.capped("second", profile)
    table("second", second_steps)
    expect(f"the profile {profile} knows " in second.log, f"second: it does not say what it knows\n{second.log[-2000:]}")
    known = first_known(second_steps)
    expect(known is not None and known >= KNOWN, f"second: its first plan knew of {known} of the accesses whether they write")

    true = writers(profile)
    liar = subprocess.run([str(judge.args.build / "tests" / "profile_liar"), str(profile)], capture_output=True, text=True)
    expect(liar.returncode == 0 and not writers(profile), f"profile_liar: {liar.stderr}")
    wrong, wrong_steps = judge.capped("wrong", profile)
    table("wrong", wrong_steps)
    expect(f"the profile {profile} knows " in wrong.log, f"wrong: the planted profile was not used\n{wrong.log[-2000:]}")
    known = first_known(wrong_steps)
    expect(known is not None and known >= KNOWN, f"wrong: its first plan believed in {known} of the planted facts")
    found = true & writers(profile)
    expect(2 * len(found) >= len(true) > 0, f"wrong: of {len(true)} forms that write it has found {len(found)}")
    judge.problems.exit()


if __name__ == "__main__":
    main()
