"""Trains the job on half of its memory with one PyTorch minor, in both ways of loading: the same bits as uncapped.

Run by the Python that has that PyTorch:  minors.py --torch 2.15
"""

import importlib.metadata
import tempfile

import configurations
import harness
import job
import matrix
from harness import MIB

STEPS = 3


def run_problems(run, uncapped, problems):
    keys, mode = run.keys, run.keys["mode"]
    if not problems.expect(keys["status"] == "ok", f"{mode}: {keys['status']}\n{run.log[-2000:]}"):
        return
    for key in ("losses_sha256", "state_sha256"):
        problems.expect(keys[key] == uncapped.keys[key], f"{mode}: {key} differs from the uncapped run")
    problems.expect(keys["peak_bytes"] <= keys["budget_bytes"], f"{mode}: peak {keys['peak_bytes']} over {keys['budget_bytes']}")
    for key in ("spilled_bytes", "fetched_bytes"):
        problems.expect(keys[key] >= uncapped.keys["peak_bytes"] - keys["budget_bytes"], f"{mode}: only {keys[key]} {key}")


def main():
    args = harness.arguments(__doc__, ("--torch", {"required": True, "help": "the minor, as 2.15"}))
    problems = harness.Problems()
    installed = importlib.metadata.version("torch")
    problems.expect(installed.startswith(f"{args.torch}."), f"this Python has PyTorch {installed}, not {args.torch}")
    here = harness.machine(args, f"torch-{args.torch}")
    row = configurations.Configuration(here.work.name, 1, "foreach", "50", "both")
    train = matrix.train_arguments(row, STEPS)
    uncapped = job.run_job(here, job.UNCAPPED, train)
    if problems.expect(uncapped.keys["status"] == "ok", f"uncapped: {uncapped.keys['status']}\n{uncapped.log[-2000:]}"):
        peak = uncapped.keys["peak_bytes"]
        gpu_bytes = peak * int(row.budget) // 100 // (2 * MIB) * (2 * MIB)
        print(f"-- PyTorch {installed}: {gpu_bytes / MIB:.0f} of {peak / MIB:.0f} MiB", flush=True)
        for mode in job.SPILLWAY_MODES:
            with tempfile.TemporaryDirectory(dir=here.work) as folder:
                run_problems(job.run_job(here, mode, train, matrix.cap_of(row, gpu_bytes, peak, folder)), uncapped, problems)
    problems.exit()


if __name__ == "__main__":
    main()
