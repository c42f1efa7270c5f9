"""Trains the job on half of its memory where the script itself calls spillway.enable(), after `import torch`: cuBLAS has
looked up the driver's functions by then. The same bits as uncapped, on a device where a missed launch is a crash."""

import tempfile

import configurations
import harness
import job
import matrix
import minors
from harness import HERE, MIB

STEPS = 3


def main():
    args = harness.arguments(__doc__)
    problems = harness.Problems()
    here = harness.machine(args, "enabled")
    row = configurations.Configuration("enabled", 1, "foreach", "50", "both")
    train = matrix.train_arguments(row, STEPS)
    uncapped = job.run_job(here, job.UNCAPPED, train)
    if problems.expect(uncapped.keys["status"] == "ok", f"uncapped: {uncapped.keys['status']}\n{uncapped.log[-2000:]}"):
        peak = uncapped.keys["peak_bytes"]
        gpu_bytes = peak * int(row.budget) // 100 // (2 * MIB) * (2 * MIB)
        with tempfile.TemporaryDirectory(dir=here.work) as folder:
            cap = matrix.cap_of(row, gpu_bytes, peak, folder)
            run = job.run_job(here, job.ENABLE, train, cap, script=HERE / "enabled_script.py",
                              extra_environment={"PYTHONPATH": str(harness.ROOT / "integration" / "python"),
                                                 "SPILLWAY_LIBRARY_DIR": str(here.build / "lib")})  # fmt: skip
            minors.run_problems(run, uncapped, problems)
    problems.exit()


if __name__ == "__main__":
    main()
