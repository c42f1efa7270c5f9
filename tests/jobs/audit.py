"""Audit mode end to end: it names the kernel that follows an escaped pointer, its list lets the job through, and a job
without such a kernel has the bits of an unaudited run, also where it must spill."""

import re

import harness
import job
from harness import MIB

KERNEL = "_Z13follow_targetPm"
# As on a GPU: a fault is an error of the context, and memory keeps its bytes while it is not mapped.
MACHINE = ("--mode", "fault", "--poison", "recycle")
# Its peak is about twice the smallest budget.
SMALL = ("--width", "512", "--layers", "2", "--heads", "8", "--sequence", "64", "--batch", "8", "--steps", "2",
         "--optimizer-form", "plain")  # fmt: skip


def run_script(args, name, cap, *arguments, **variables):
    here = harness.machine(args, name, *MACHINE)
    kernels = args.build / "lib" / "tests" / "libaudit_kernels.so"
    child = harness.start(here, job.PRELOAD, cap, harness.HERE / "audit_script.py", "--kernels", str(kernels), *arguments,
                          **variables)  # fmt: skip
    output = child.communicate(timeout=180)[0]
    return child.returncode, output


def escaped_pointer(args, problems):
    cap = job.Cap(256 * MIB, "64MiB", "none")
    list_file = args.work / "audit-deny.txt"
    list_file.parent.mkdir(parents=True, exist_ok=True)
    list_file.write_text("# found on this machine\n")
    audit = {"SPILLWAY_AUDIT": "1", "SPILLWAY_DENYLIST": str(list_file)}

    status, output = run_script(args, "audit-finds", cap, **audit)
    problems.expect(status != 0 and "stored: 0" in output, f"finds: the fault did not reach the job\n{output[-3000:]}")
    found = re.search(r"audit: launch (\d+) on GPU 0 ended in CUDA_ERROR_ILLEGAL_ADDRESS: kernel (\S.*) of (\S+) touched", output)
    if problems.expect(found is not None, f"finds: no line names the kernel\n{output[-3000:]}"):
        problems.expect("follow_target(unsigned long*)" in found[2], f"finds: named {found[2]}")
        problems.expect(found[3] == "libaudit_kernels.so", f"finds: library {found[3]}")
        # Two fills, the store, and the launch itself, which is the last that was audited.
        count = re.search(r"audit: (\d+) launches, 1 fault", output)
        problems.expect(count is not None and count[1] == found[1], f"finds: launch {found[1]} of {count and count[1]}")
    lines = list_file.read_text().splitlines()
    problems.expect(len(lines) == 2 and lines[1].startswith(f"{KERNEL} libaudit_kernels.so "), f"list: {lines}")

    status, output = run_script(args, "audit-passes", cap, "--streams", "2", **audit)
    problems.expect(status == 0 and "the target holds 1.0" in output, f"passes: status {status}\n{output[-3000:]}")
    problems.expect(re.search(r"audit: \d+ launches, 0 faults", output) is not None, f"passes: no summary\n{output[-3000:]}")
    problems.expect(list_file.read_text().splitlines() == lines, "passes: the list has changed")


def bad_list(args, problems):
    list_file = args.work / "audit-bad.txt"
    list_file.write_text("good\n\nbad/name\n")
    status, output = run_script(args, "audit-bad", job.Cap(64 * MIB, "64MiB", "none"), SPILLWAY_DENYLIST=str(list_file))
    problems.expect(status == 2 and f"{list_file}:3:" in output and "expected: " in output,
                    f"bad list: status {status}\n{output[-1000:]}")  # fmt: skip


def clean_job(args, problems):
    runs = {}
    for name, budget, variables in (
        ("plain", "512MiB", {}),
        ("audited", "512MiB", {"SPILLWAY_AUDIT": "1"}),
        ("spilling", "64MiB", {"SPILLWAY_AUDIT": "1"}),
    ):
        here = harness.machine(args, f"audit-gpt-{name}", *MACHINE)
        run = job.run_job(here, job.PRELOAD, SMALL, job.Cap(512 * MIB, "512MiB", "none"), show=lambda _: False, timeout=300,
                          extra_environment={**variables, "SPILLWAY_GPU_MEMORY": budget})  # fmt: skip
        if not problems.expect(run.report is not None, f"{name}: no report\n{run.log[-3000:]}"):
            return
        print(f"{name}: {run.seconds:.1f} s", flush=True)
        runs[name] = run
        if variables:
            problems.expect(re.search(r"audit: \d\d+ launches, 0 faults", run.log) is not None, f"{name}: no summary\n{run.log[-2000:]}")
    for name in ("audited", "spilling"):
        for key in ("losses_sha256", "state_sha256"):
            problems.expect(runs[name].report[key] == runs["plain"].report[key], f"{name}: other {key}")
    problems.expect("spilling starts" in runs["spilling"].log, "spilling: nothing was spilled")


def main():
    args = harness.arguments(__doc__)
    problems = harness.Problems()
    escaped_pointer(args, problems)
    bad_list(args, problems)
    clean_job(args, problems)
    problems.exit()


if __name__ == "__main__":
    main()
