"""Frozen weights cost no writes: a job most of whose weights never change, on a device that holds a third of it. Each
frozen block is written once; later drops of it move nothing. The bits are those of a run where everything fits.
"""

from pathlib import Path

import harness
import job
from harness import MIB

SCRIPT = Path(__file__).with_name("frozen_script.py")
BUDGET = 64 * MIB


def step_sums(notes, key):
    values = [note["devices"][0][key] if note["devices"] else 0 for note in notes]
    return [after - before for before, after in zip(values, values[1:])]


def main():
    args = harness.arguments(__doc__)
    problems = harness.Problems()
    here = harness.machine(args, "frozen")
    # Host memory for all copies, and for none: then on disk.
    for name, host in (("host", "512MiB"), ("disk", "0")):
        capped = job.run_job(here, job.PRELOAD, [], job.Cap(BUDGET, host), script=SCRIPT, name=f"preload-{name}")
        steps = len(capped.report["losses"]) if capped.report else 1
        whole = job.run_job(here, job.UNCAPPED, ["--steps", str(steps)], script=SCRIPT, name=f"whole-{name}")
        if not problems.expect(whole.report and capped.report, f"{name}: a run failed\n{capped.log[-2000:]}"):
            break
        for key in ("losses", "state_sha256"):
            problems.expect(whole.report[key] == capped.report[key], f"{name}: {key} differ")
        notes, frozen = capped.report["notes"], capped.report["frozen_bytes"]
        written, spared = (step_sums(notes, key) for key in ("spilled_bytes", "clean_drop_bytes"))
        written, spared = written[-10:], spared[-10:]
        print(f"{name}: {frozen / MIB:.0f} MiB are frozen; MiB written in the last of {steps} steps "
              f"{[round(value / MIB) for value in written]}, and spared {[round(value / MIB) for value in spared]}; "
              f"{capped.metrics['hash_mismatches']} copies had changed", flush=True)  # fmt: skip
        problems.expect(capped.metrics["spilled_bytes"] > 0, f"{name}: nothing left the device")
        # The hash is compiled in the background, and is there some steps after the first eviction.
        problems.expect(sum(spared) > 0, f"{name}: no block was dropped clean")
        problems.expect(sum(written[-3:]) < sum(spared[-3:]) / 2, f"{name}: what does not change is still written")
    problems.exit()


if __name__ == "__main__":
    main()
