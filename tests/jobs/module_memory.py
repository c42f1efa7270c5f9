"""Kernels' code takes 1 GiB of a GPU that the job has filled, on the default budget. No call shows such memory, and lazy loading
takes it when a kernel is first used: in the middle of the first iteration. Blocks leave for it, the job has the bits of one with
enough memory, Spillway's chunks fall by what the code takes, and figures and summary say what is left of the budget.
"""

import harness
import job
from harness import MIB

# Its blocks take 1 GiB: they fit the budget at the start, and not beside the code. Launches name few blocks each.
TRAIN = ("--width", "1024", "--layers", "5", "--heads", "8", "--sequence", "16", "--batch", "1", "--steps", "3", "--optimizer-form",
         "plain")  # fmt: skip
DEVICE = 1792 * MIB
CODE = {"SIMCUDA_CODE_BYTES": "12MiB"}  # of each of some 85 kernels
LEAST_CODE = 700 * MIB


def run(here, name, mode, cap=None, **variables):
    return job.run_job(here, mode, TRAIN, cap, name=name, show=lambda _: False, timeout=500, extra_environment=variables)


def main():
    args = harness.arguments(__doc__)
    problems = harness.Problems()
    here = harness.machine(args, "module_memory")
    whole = run(here, "whole", job.UNCAPPED)
    seen = run(here, "code", job.PRELOAD, job.Cap(DEVICE, "2GiB", "none"), **CODE)
    for name, one in (("uncapped", whole), ("with code", seen)):
        if not problems.expect(one.report is not None, f"{name}: status {one.exit_status}\n{one.log[-3000:]}"):
            problems.exit()
    for key in ("losses_sha256", "state_sha256"):
        problems.expect(seen.keys[key] == whole.keys[key], f"{key} differs from the uncapped run")
    problems.expect("nothing more will be moved" not in seen.log, f"evictions ended\n{seen.log[-2000:]}")
    problems.expect((seen.keys["spilled_bytes"] or 0) > 0, "nothing left the device, so nothing was shown")
    figures = seen.metrics
    fell = figures["budget_bytes"] - figures["budget_in_force_bytes"]
    problems.expect(fell >= LEAST_CODE, f"the budget fell by {fell} bytes only")
    problems.expect(figures["chunk_bytes"] <= figures["budget_in_force_bytes"], f"{figures['chunk_bytes']} bytes of chunks in what is left of it")
    problems.expect("; the GPU has less for it)" in seen.log, f"the summary does not say that the budget fell\n{seen.log[-2000:]}")
    print(f"budget {figures['budget_bytes'] / MIB:.0f} MiB, at the end {figures['budget_in_force_bytes'] / MIB:.0f}; chunks at most "
          f"{figures['peak_chunk_bytes'] / MIB:.0f} MiB, at the end {figures['chunk_bytes'] / MIB:.0f}; {seen.seconds:.1f} s")  # fmt: skip
    problems.exit()


if __name__ == "__main__":
    main()
