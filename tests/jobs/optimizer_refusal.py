"""An optimiser that works on more tensors at once than the budget holds: refused, with words that name the kernel and the
option of PyTorch that makes the job fit; with that option, on the same budget, it runs and gives the same bits.
"""

import re
from pathlib import Path

import harness
import job
from harness import MIB

SCRIPT = Path(__file__).with_name("optimizer_script.py")
BUDGET = 64 * MIB  # all of it may be lent to blocks; a list of 12 takes 24 MiB, and three or four of them one launch
GROUP = {"SIMCUDA_FOREACH_GROUP": "12"}  # tensors in a launch, as on a GPU


def run(here, mode, form, cap=None):
    return job.run_job(here, mode, ["--form", form], cap, script=SCRIPT, name=f"{mode}-{form}", show=lambda line: False,
                       extra_environment=GROUP)  # fmt: skip


def refused(here, form, kernel, option, cap, problems):
    finished = run(here, job.PRELOAD, form, cap)
    problems.expect(finished.keys["status"] != "ok", f"{form}: it ran, so nothing was shown")
    line = re.search(r"spillway: a launch was refused.*", finished.log)
    if not problems.expect(line, f"{form}: no refusal\n{finished.log[-2000:]}"):
        return
    print(line.group(), flush=True)
    for words in (kernel, option, "smaller parameter groups", "MiB, and the budget leaves"):
        problems.expect(words in line.group(), f"{form}: the refusal lacks {words!r}")


def main():
    args = harness.arguments(__doc__)
    problems = harness.Problems()
    here = harness.machine(args, "optimizer-refusal")
    cap = job.Cap(BUDGET, "256MiB", "none", {"gpu_memory": job.size_text(BUDGET)})
    refused(here, "foreach", "_foreach_", "foreach=False", cap, problems)
    refused(here, "fused", "_fused_adamw_", "fused=False with foreach=False", cap, problems)
    uncapped, plain = run(here, job.UNCAPPED, "plain"), run(here, job.PRELOAD, "plain", cap)
    for finished in (uncapped, plain):
        problems.expect(finished.keys["status"] == "ok", f"{finished.keys['mode']}: {finished.keys['status']}\n{finished.log[-2000:]}")
    if uncapped.report and plain.report:
        problems.expect(uncapped.report == plain.report, "the capped run gave other bits")
        problems.expect(plain.keys["fetched_bytes"] > 0, "everything fitted, so nothing was shown")
    problems.exit()


if __name__ == "__main__":
    main()
