"""Where the driver places the blocks' addresses decides whether numbers that kernels get are taken for addresses of blocks. Where
it takes the hints, no launch names a block that it does not touch; where it takes none, launches do, a line says so, and the
results are the same.
"""

import json

import harness
import job

GIB = 1 << 30
LINE = "accepts no other place: numbers passed to kernels may be taken for addresses"


def run(args, problems, hints):
    cap = job.Cap(3 * GIB, "0", "none", {})
    name = f"low_addresses_{hints}"
    status, output, result = harness.run_scene(args, name, cap, "low_addresses_script.py", SIMCUDA_ADDRESS_HINTS=hints)
    if not problems.expect(status == 0 and result is not None, f"{hints}: status {status}\n{output[-3000:]}"):
        problems.exit()
    metrics = json.loads((args.work / name / f"{job.PRELOAD}.metrics.json").read_text())
    most = metrics["devices"][0]["largest_set_bytes"]
    unmatched = metrics["unmatched_addresses"]
    print(f"hints {hints}: a launch named at most {most / (1 << 20):.0f} MiB of blocks, {unmatched} words named none")
    return output, result, most, unmatched


def main():
    args = harness.arguments(__doc__)
    problems = harness.Problems()
    taken_output, taken, taken_most, taken_unmatched = run(args, problems, "take")
    ignored_output, ignored, ignored_most, ignored_unmatched = run(args, problems, "ignore")
    problems.expect(LINE not in taken_output and LINE in ignored_output, f"the line:\n{taken_output[-1000:]}\n{ignored_output[-1000:]}")
    problems.expect(taken["sha256"] == ignored["sha256"], "the results differ")
    problems.expect(taken_most < GIB, f"with hints a launch named {taken_most} bytes")
    problems.expect(ignored_most >= GIB, f"without hints no launch named more than {ignored_most} bytes, so nothing was shown")
    problems.expect(taken_unmatched == 0 < ignored_unmatched, f"words that named no block: {taken_unmatched}, then {ignored_unmatched}")
    problems.exit()


if __name__ == "__main__":
    main()
