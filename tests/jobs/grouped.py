"""Tables of addresses that kernels write, as in grouped GEMMs: a job with twice the live bytes of its GPU has the bits of
one with enough memory, spills all the time, and keeps no block longer than its table."""

import harness
import job
from harness import MIB

LAYERS, LAYER_MIB = 14, 8  # with two values: 128 MiB live, on a budget of 64


def run(args, name, cap, *arguments, mode=job.PRELOAD, **variables):
    here = harness.machine(args, f"grouped-{name}")
    kernels = args.build / "lib" / "tests" / "libgrouped_kernels.so"
    return job.run_job(here, mode, ("--kernels", str(kernels), "--layers", str(LAYERS), "--mib", str(LAYER_MIB), *arguments),
                       cap, script=harness.HERE / "grouped_script.py", show=lambda _: False, timeout=180,
                       extra_environment={"SPILLWAY_GPU_MEMORY": "64MiB", **variables})  # fmt: skip


def spills(problems, name, seen, whole):
    """The run has the uncapped one's bits, and bytes left the GPU in each iteration."""
    if not problems.expect(seen.report is not None, f"{name}: status {seen.exit_status}\n{seen.log[-3000:]}"):
        return
    problems.expect(seen.report["hashes"] == whole.report["hashes"], f"{name}: other bits")
    left = seen.report["out_bytes"]
    print(f"{name}: {[b // MIB for b in left]} MiB have left the GPU after each iteration, {seen.seconds:.1f} s", flush=True)
    problems.expect(0 < left[0] < left[1] < left[2], f"{name}: not spilling all the time: {left}")
    # While a table is in use the others' blocks go on leaving: between its writing and its product they do not fit.
    around = seen.report["out_around"][2 * LAYERS :]  # memory is full from the second iteration on
    still = [at // 2 for at in range(0, len(around), 2) if around[at + 1] <= around[at]]
    problems.expect(len(around) == 4 * LAYERS and not still, f"{name}: nothing left the GPU beside the tables {still}")
    held = (seen.metrics or {}).get("pinned_bytes_by_reason", {}).get("denied")
    return held


def main():
    args = harness.arguments(__doc__)
    problems = harness.Problems()
    cap = job.Cap(128 * MIB, "512MiB", "none")
    whole = run(args, "whole", cap, mode=job.UNCAPPED)
    if not problems.expect(whole.report is not None, f"uncapped: {whole.log[-3000:]}"):
        problems.exit()
    list_file = args.work / "grouped-list.txt"
    list_file.write_text("_Z17write_group_table* libgrouped_kernels.so action=writer tables=5-9\n")
    own = {"SPILLWAY_DENYLIST": str(list_file)}
    for name, arguments, variables in (
        ("each-table-freed", (), {}),
        ("one-table", ("--table", "one"), {}),
        ("written-in-parts", ("--writer", "part"), own),
    ):
        held = spills(problems, name, run(args, name, cap, *arguments, **variables), whole)
        most = 3 * LAYER_MIB * MIB if name == "one-table" else 0
        problems.expect(held is not None and held <= most, f"{name}: {held} bytes are pinned in the end, not {most}")
    list_file.write_text("_ZN2at4cuda6detail25prepare_grouped_gemm_data* action=refuse\n")
    refused = run(args, "refused", cap, **own)
    problems.expect(refused.exit_status not in (0, None) and "launch 0 answered 800" in refused.log and "action=refuse" in refused.log,
                    f"refused: status {refused.exit_status}\n{refused.log[-2000:]}")  # fmt: skip
    problems.exit()


if __name__ == "__main__":
    main()
