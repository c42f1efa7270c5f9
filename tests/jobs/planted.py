"""A planted miss must be caught: strict mode stops the process and names the kernel, report mode counts and goes on."""

import json

import harness
import job
from harness import MIB


def run_planted(args, mode):
    here = harness.machine(args, f"planted-{mode}", "--mode", mode)
    cap = job.Cap(128 * MIB, "1GiB", "none")
    child = harness.start(here, job.PRELOAD, cap, harness.HERE / "planted_script.py")
    output = child.communicate(timeout=180)[0]
    stats = here.work / f"{job.PRELOAD}.simcuda.json"
    missed = json.loads(stats.read_text()).get("missed_accesses") if stats.is_file() else None
    return child.returncode, output, missed


def main():
    args = harness.arguments(__doc__)
    problems = harness.Problems()
    status, output, _ = run_planted(args, "strict")
    problems.expect(status != 0, "strict: the process went on after the miss")
    problems.expect("the idle tensor lies at" in output, f"strict: stopped before the launch\n{output[-2000:]}")
    problems.expect("planted_pointer_reader" in output, f"strict: the kernel is not named\n{output[-2000:]}")
    problems.expect("the kernel has ended" not in output, "strict: the kernel was let through")
    status, output, missed = run_planted(args, "report")
    problems.expect(status == 0 and "the kernel has ended" in output, f"report: the process did not go on\n{output[-2000:]}")
    problems.expect((missed or 0) >= 1, f"report: {missed} missed accesses counted, at least 1 was planted")
    problems.exit()


if __name__ == "__main__":
    main()
