"""A planted miss must be caught: strict mode stops the process and names the kernel, report mode counts and goes on. With
SPILLWAY_REACH=on it is none: the kernel uses the block where it lies, and what it writes there counts.
"""

import json

import harness
import job
from harness import MIB


SUM = "the idle tensor sums to"


def run_planted(args, mode, reach="auto", options=()):
    here = harness.machine(args, f"planted-{mode}-{reach}{''.join(options)}", "--mode", mode)
    cap = job.Cap(128 * MIB, "1GiB", "none")
    child = harness.start(here, job.PRELOAD, cap, harness.HERE / "planted_script.py", *options, SPILLWAY_REACH=reach)
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
    for options, total in ((), 16 * MIB // 4), (("--write",), 16 * MIB // 4 + 6):
        status, output, missed = run_planted(args, "strict", "on", options)
        problems.expect(status == 0 and missed == 0, f"on {options}: {status}, {missed} missed\n{output[-2000:]}")
        problems.expect(f"{SUM} {float(total)}" in output, f"on {options}: wrong bytes\n{output[-2000:]}")
        told = "1 blocks were written in host memory by kernels that had not named them" in output
        problems.expect(told == bool(options), f"on {options}: what the summary says\n{output[-2000:]}")
    problems.exit()


if __name__ == "__main__":
    main()
