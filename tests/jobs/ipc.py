"""Small tensors that two processes share by CUDA IPC, while each of them has twice the live bytes of its budget: both have
the bits of jobs with enough memory, and spill all the time. A large tensor is refused with words."""

import harness
import job
from harness import MIB


def run(args, name, cap, mode=job.PRELOAD, **variables):
    here = harness.machine(args, f"ipc-{name}")
    return job.run_job(here, mode, (), cap, script=harness.HERE / "ipc_script.py", show=lambda _: False, timeout=200,
                       extra_environment={"SPILLWAY_GPU_MEMORY": "64MiB", **variables})  # fmt: skip


def main():
    args = harness.arguments(__doc__)
    problems = harness.Problems()
    cap = job.Cap(128 * MIB, "512MiB", "none")
    whole = run(args, "whole", cap, mode=job.UNCAPPED)
    if not problems.expect(whole.report is not None, f"uncapped: status {whole.exit_status}\n{whole.log[-3000:]}"):
        problems.exit()
    problems.expect(whole.report["refusal"] == "", f"uncapped: refused: {whole.report['refusal']}")
    seen = run(args, "spilling", cap, SIMCUDA_POISON="unmap")
    if problems.expect(seen.report is not None, f"status {seen.exit_status}\n{seen.log[-3000:]}"):
        report = seen.report
        problems.expect(report["hash"] == whole.report["hash"], "other bits")
        left = report["left"]
        problems.expect(0 < left[0] < left[1] < left[2], f"not spilling all the time: {left}")
        problems.expect(report["left_there"] > 0 and report["status_there"] == 0, f"the other process: {report}")
        problems.expect("cannot be shared" in report["refusal"], f"a large tensor: {report['refusal']!r}")
        print(f"{[b // MIB for b in left]} MiB have left the GPU after each round, {seen.seconds:.1f} s", flush=True)
    problems.exit()


if __name__ == "__main__":
    main()
