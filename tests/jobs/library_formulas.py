"""Libraries compute with figures of memory: what is reserved, allocated, active and free. While blocks are away the formulas must
hold as they do natively; a script of the same allocations on a device with enough memory says what natively is.
"""

import harness
import job
from harness import MIB


def main():
    args = harness.arguments(__doc__)
    problems = harness.Problems()
    enough = harness.run_scene(args, "formulas-enough", job.Cap(2048 * MIB, "0", "none", {}), "library_formulas_script.py")
    short = harness.run_scene(args, "formulas-short", job.Cap(200 * MIB, "1GiB", "none", {}), "library_formulas_script.py")
    for name, (status, output, result) in (("enough", enough), ("short", short)):
        if not problems.expect(status == 0 and result is not None, f"{name}: status {status}\n{output[-2000:]}"):
            continue
        print(f"{name}: {result['figures'][-1]}")
        for formula, holds in result["formulas"].items():
            problems.expect(holds, f"{name}: {formula} does not hold: {result['figures']}")
        problems.expect(result["spilled"] == (name == "short"), f"{name}: spilled is {result['spilled']}")
    problems.exit()


if __name__ == "__main__":
    main()
