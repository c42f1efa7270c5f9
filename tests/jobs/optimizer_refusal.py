"""An optimiser that works on more tensors at once than the budget holds: it reaches the rest in host memory, or is refused
where that is off; the line names the kernel and the option of PyTorch that makes the job fit. With that option, on the
same budget, it runs and gives the same bits.
"""

import re
from pathlib import Path

import harness
import job
from harness import MIB

SCRIPT = Path(__file__).with_name("optimizer_script.py")
BUDGET = 64 * MIB  # all of it may be lent to blocks; a list of 12 takes 24 MiB, and three or four of them one launch
GROUP = {"SIMCUDA_FOREACH_GROUP": "12"}  # tensors in a launch, as on a GPU


def run(here, mode, form, cap=None, reach="auto", report=None):
    variables = GROUP | {"SPILLWAY_REACH": reach} | ({"SPILLWAY_REPORT": str(report)} if report else {})
    return job.run_job(here, mode, ["--form", form], cap, script=SCRIPT, name=f"{mode}-{form}-{reach}", show=lambda line: False,
                       extra_environment=variables)  # fmt: skip


def says(finished, what, words, problems):
    line = re.search(rf"spillway: {what}.*", finished.log)
    if problems.expect(line, f"{finished.keys['mode']}: no line {what!r}\n{finished.log[-2000:]}"):
        print(line.group(), flush=True)
        for word in (*words, "smaller parameter groups"):
            problems.expect(word in line.group(), f"{what!r} lacks {word!r}")


def of_lists(here, form, words, cap, problems):
    refused = run(here, job.PRELOAD, form, cap, reach="off")
    problems.expect(refused.keys["status"] != "ok", f"{form}: it ran, so nothing was shown")
    says(refused, "a launch was refused", (*words, "MiB, and the budget leaves"), problems)
    page = here.work / f"{form}.report.json"
    uncapped, reached = run(here, job.UNCAPPED, form), run(here, job.PRELOAD, form, cap, report=page)
    says(reached, "the blocks of one launch do not fit", words, problems)
    named = (job.read_json(page) or {}).get("reaching_kernels", [])
    problems.expect(any(kernel["bytes"] >= kernel["most_bytes"] > 0 for kernel in named), f"{form}: the report names {named}")
    problems.expect(reached.report and uncapped.report == reached.report, f"{form}: the run that reached gave other bits")


def main():
    args = harness.arguments(__doc__)
    problems = harness.Problems()
    here = harness.machine(args, "optimizer-refusal")
    cap = job.Cap(BUDGET, "256MiB", "none", {"gpu_memory": job.size_text(BUDGET)})
    of_lists(here, "foreach", ("_foreach_", "foreach=False"), cap, problems)
    of_lists(here, "fused", ("_fused_adamw_", "fused=False with foreach=False"), cap, problems)
    uncapped, plain = run(here, job.UNCAPPED, "plain"), run(here, job.PRELOAD, "plain", cap)
    for finished in (uncapped, plain):
        problems.expect(finished.keys["status"] == "ok", f"{finished.keys['mode']}: {finished.keys['status']}\n{finished.log[-2000:]}")
    if uncapped.report and plain.report:
        problems.expect(uncapped.report == plain.report, "the capped run gave other bits")
        problems.expect(plain.keys["fetched_bytes"] > 0, "everything fitted, so nothing was shown")
    problems.exit()


if __name__ == "__main__":
    main()
