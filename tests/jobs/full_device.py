"""The driver runs out of memory on a GPU that Spillway has filled: for a kernel's code, for local memory, at a launch, at a
look-up. No call shows such memory. Idle blocks leave, the call is repeated, and the job has the bits of one with enough memory;
evictions do not end. The size of what the driver takes is then kept free.
"""

import harness
import job
from harness import MIB

# Its launches name few blocks each, so that most of them may leave.
TRAIN = ("--width", "384", "--layers", "4", "--heads", "4", "--sequence", "64", "--batch", "8", "--steps", "4", "--optimizer-form",
         "plain")  # fmt: skip
# Name, the device's memory in MiB, and the stand-in's settings. A failed call has the code of a full device.
CASES = (
    ("parameters", 128, {"SIMCUDA_FAIL": "cuKernelGetParamInfo:20:2"}),
    ("parameters_twice", 128, {"SIMCUDA_FAIL": "cuKernelGetParamInfo:20:2,cuKernelGetParamInfo:21:2"}),
    ("launch", 128, {"SIMCUDA_FAIL": "cuLaunchKernel:400:2"}),
    ("look-up", 128, {"SIMCUDA_FAIL": "cuLibraryGetKernel:30:2"}),
    ("code", 160, {"SIMCUDA_CODE_BYTES": "1MiB"}),
    ("local_memory", 144, {"SIMCUDA_LOCAL_MEMORY": "48MiB", "SIMCUDA_LOCAL_MEMORY_LAUNCH": "900"}),
)


def run(here, name, mode, cap=None, **variables):
    return job.run_job(here, mode, TRAIN, cap, name=name, show=lambda _: False, timeout=300, extra_environment=variables)


def main():
    args = harness.arguments(__doc__)
    problems = harness.Problems()
    here = harness.machine(args, "full_device")
    whole = run(here, "whole", job.UNCAPPED)
    if not problems.expect(whole.report is not None, f"uncapped: status {whole.exit_status}\n{whole.log[-3000:]}"):
        problems.exit()
    for name, memory, variables in CASES:
        seen = run(here, name, job.PRELOAD, job.Cap(memory * MIB, "1GiB", "none"), **variables)
        if not problems.expect(seen.report is not None, f"{name}: status {seen.exit_status}\n{seen.log[-3000:]}"):
            continue
        for key in ("losses_sha256", "state_sha256"):
            problems.expect(seen.keys[key] == whole.keys[key], f"{name}: {key} differs from the uncapped run")
        problems.expect((seen.keys["spilled_bytes"] or 0) > 0, f"{name}: nothing left the device, so nothing was shown")
        problems.expect("nothing more will be moved" not in seen.log, f"{name}: evictions ended\n{seen.log[-2000:]}")
        print(f"{name}: {memory} MiB, out {seen.keys['spilled_bytes'] / MIB:.0f} MiB, {seen.seconds:.1f} s", flush=True)
    problems.exit()


if __name__ == "__main__":
    main()
