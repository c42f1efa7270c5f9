"""Calls that PyTorch makes seldom, on blocks that are away when they are named: batches of copies, words of streams,
prefetches, kernels that are compiled while the job runs. A job with twice the live bytes of its budget has the bits of one with enough memory, and spills before each
of them and after it."""

import harness
import job
from harness import MIB


def run(args, name, cap, mode=job.PRELOAD, **variables):
    here = harness.machine(args, f"calls-{name}")
    kernels, compiled = (str(args.build / "lib" / "tests" / f"lib{name}_kernels.so") for name in ("grouped", "compiled"))
    return job.run_job(here, mode, ("--kernels", kernels, "--compiled", compiled), cap, script=harness.HERE / "calls_script.py",
                       show=lambda _: False, timeout=300,
                       extra_environment={"SPILLWAY_GPU_MEMORY": "64MiB", **variables})  # fmt: skip


def main():
    args = harness.arguments(__doc__)
    problems = harness.Problems()
    cap = job.Cap(128 * MIB, "512MiB", "none")
    whole = run(args, "whole", cap, mode=job.UNCAPPED)
    if not problems.expect(whole.report is not None, f"uncapped: status {whole.exit_status}\n{whole.log[-3000:]}"):
        problems.exit()
    for name, variables in (("plain", {}), ("delays", {"SIMCUDA_DELAY": "1000", "SIMCUDA_POISON": "unmap"})):
        seen = run(args, name, cap, **variables)
        if not problems.expect(seen.report is not None, f"{name}: status {seen.exit_status}\n{seen.log[-3000:]}"):
            continue
        for scene, result in seen.report.items():
            problems.expect(result["hash"] == whole.report[scene]["hash"], f"{name}: {scene}: other bits")
            problems.expect(min(result["moved"]) > 0, f"{name}: {scene}: not spilling all the time: {result['moved']}")
        print(f"{name}: {len(seen.report)} scenes, {seen.seconds:.1f} s", flush=True)
    problems.exit()


if __name__ == "__main__":
    main()
