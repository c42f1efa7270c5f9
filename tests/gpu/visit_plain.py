"""The job of a visit that needs no PyTorch (gpu_plain_job), the only one on a bare machine: with the driver's blocks, then with
Spillway's at half of what is live. Its first failure is run again, as that of the other jobs."""

import os
import sysconfig
from pathlib import Path

import visit_rows as rows
from visit_facts import Program
from visit_jobs import HANG, LADDER, SHORTEST_CUT

GOOD = "every word is what the host foretells"
HALF, WHOLE = 50, 200  # memory for our blocks, in percent of what is live; with the second nothing has to leave


def plain_job(args, table, jobs):
    """jobs: of the visit; knows whether another failure has been run again, and is told of this one."""
    program = Program(args, table)
    plain = PlainJob(program)
    ended, figures = plain.uncapped()
    program.judged("plain job: the driver's blocks", ended, GOOD)
    products(table, "the driver's blocks", figures)
    for words, host in (("host memory", plain.host(2)), ("disk", "64MiB")):
        capped, figures = plain.capped(f"plain job: 50 %, {words}", HALF, {"host_memory": host})
        problem = plain.problem(capped, figures, HALF)
        row = table.judge(f"plain job: 50 %, {words}", capped, rows.FAILED if problem else rows.PASSED, problem or GOOD, figures=figures)
        good = products(table, f"50 %, {words}", figures)
        if (row["status"] == rows.FAILED or not good) and not jobs.climbed:
            jobs.climbed = True
            plain.climb(words, host)


class PlainJob:
    def __init__(self, program):
        self.program = program
        self.count, self.mib = (24, 8) if program.args.size == "small" else (64, 64)
        folders = [*cublas_folders(), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        self.path = {} if program.simcuda else {"LD_LIBRARY_PATH": ":".join(folders)}
        self.seconds = 0.0  # of the run without Spillway

    def run(self, label, *arguments, **more):
        sizes = ("--blocks", str(self.count), "--mib", str(self.mib))
        return self.program.run(label, "gpu_plain_job", *arguments, *sizes, **self.path, **more)

    def host(self, times):
        """So many times what is live, as a setting."""
        return f"{times * self.count * self.mib}MiB"

    def uncapped(self):
        ended, figures = self.run("plain job uncapped", memory="4GiB")
        self.seconds = ended.seconds
        return ended, figures

    def capped(self, label, percent, spillway, **more):
        budget = f"{self.count * self.mib * percent // 100}MiB"
        if self.program.simcuda:
            more["memory"] = budget
        else:
            spillway = {"gpu_memory": budget, **spillway}
        return self.run(label, "--spillway", limit=max(HANG * self.seconds, SHORTEST_CUT), spillway=spillway, **more)

    def problem(self, ended, figures, percent):
        """What is wrong with a run; empty: nothing."""
        if ended.status != 0:
            return self.program.last_line(ended)
        if percent < 100 and not (figures or {}).get("spilled_bytes"):
            return "nothing was spilled"
        return ""

    def climb(self, words, host):
        """Reruns with one thing changed in each. They are told, and judge nothing."""
        table = self.program.table
        for name, settings in LADDER.items():
            label = f"rerun of plain job, {words}: {name}"
            if table.left() < 1.3 * self.seconds + 5:
                table.add(label, rows.LEFT_OUT, "no time")
                continue
            # An audit unmaps what a launch does not name: it has memory enough for all.
            percent = WHOLE if name == "audit" else HALF
            options = ("--mode", "fault") if name == "audit" else ()
            variables = {"CUDA_LAUNCH_BLOCKING": "1"} if name == "blocking launches" else {}
            memory = {"host_memory": self.host(2) if name == "no disk" else host}
            ended, figures = self.capped(label, percent, {**memory, **settings}, options=options, **variables)
            problem = self.problem(ended, figures, percent)
            differ = product_words(figures)
            table.judge(label, ended, rows.MEASURED, problem or differ or "it passes so", figures=figures)


def cublas_folders():
    """Where wheels put cuBLAS, for a job without PyTorch."""
    site = Path(sysconfig.get_paths()["purelib"])
    return [str(path.parent) for path in site.glob("nvidia/*/lib/libcublas.so.*")]


def product_words(figures):
    """How many matrix products differ; empty: none, or there were none."""
    found = (figures or {}).get("products") or {}
    return f"{found['differences']} of {found['rounds']} differ" if found.get("differences") else ""


def products(table, where, figures):
    """The row of cuBLAS, called without PyTorch. Whether nothing was wrong."""
    found = (figures or {}).get("products") or {}
    label = f"plain job: matrix products, {where}"
    if "needs" in found:
        table.add(label, rows.NEEDS_HARDWARE, found["needs"])
    elif "missing" in found:
        table.add(label, rows.MISSING, found["missing"])
    elif found:
        wrong = product_words(figures)
        table.add(label, rows.FAILED if wrong else rows.PASSED, wrong or f"0 of {found['rounds']} differ", figures=found)
        return not wrong
    return True
