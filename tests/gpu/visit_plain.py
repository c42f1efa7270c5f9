"""The job of a visit that needs no PyTorch (gpu_plain_job), the only one on a bare machine: with the driver's blocks, then with
Spillway's at half of what is live. Its first failure is run again, as that of the other jobs."""

import os
import sysconfig
from pathlib import Path

import visit_rows as rows
from visit_facts import Program
from visit_jobs import HANG, SHORTEST_CUT

GOOD = "every word is what the host foretells"
HALF, WHOLE = 50, 200  # memory for our blocks, in percent of what is live; with the second nothing has to leave
DISK_ROUNDS, DISK_PRODUCTS = 3, 1
DISK_PASSES = DISK_ROUNDS + DISK_PRODUCTS + 3  # over all blocks: filled, mixed, and checked twice
SMALLEST_MIB = 8  # of a block


def plain_job(args, table, jobs):
    """jobs: of the visit; it knows the disk, and which failures have been run again."""
    program = Program(args, table)
    plain = PlainJob(program, jobs.disk)
    with table.guarded("plain job: the driver's blocks"):
        ended, figures = plain.uncapped()
        program.judged("plain job: the driver's blocks", ended, GOOD)
        products(table, "the driver's blocks", figures)
    for disk in (False, True):
        words = "disk" if disk else "host memory"
        with table.guarded(f"plain job: 50 %, {words}"):
            capped, figures = plain.capped(f"plain job: 50 %, {words}", HALF, {"host_memory": "64MiB" if disk else plain.host(2)}, disk)
            problem = plain.problem(capped, figures, HALF)
            row = table.judge(f"plain job: 50 %, {words}", capped, rows.FAILED if problem else rows.PASSED, problem or GOOD,
                              figures=figures)  # fmt: skip
            good = products(table, f"50 %, {words}", figures)
            if row["status"] == rows.FAILED or not good:
                jobs.reruns.after(disk, lambda name, settings, words=words, disk=disk: plain.rerun(words, name, settings, disk))


class PlainJob:
    def __init__(self, program, disk):
        self.program, self.disk = program, disk
        self.count, self.mib = (24, 8) if program.args.size == "small" else (64, 64)
        folders = [*cublas_folders(), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        self.path = {} if program.simcuda else {"LD_LIBRARY_PATH": ":".join(folders)}
        self.seconds = 0.0  # of the run without Spillway

    def disk_mib(self):
        """Size of a block of the job that spills to disk. At worst each pass moves all out and in again."""
        fitting = self.disk.bytes_there_and_back() / DISK_PASSES / self.count / (1 << 20)
        return min(self.mib, max(SMALLEST_MIB, int(fitting)))

    def run(self, label, mib, *arguments, **more):
        sizes = ("--blocks", str(self.count), "--mib", str(mib))
        return self.program.run(label, "gpu_plain_job", *arguments, *sizes, **self.path, **more)

    def host(self, times):
        """So many times what is live, as a setting."""
        return f"{times * self.count * self.mib}MiB"

    def uncapped(self):
        ended, figures = self.run("plain job uncapped", self.mib, memory="4GiB")
        self.seconds = ended.seconds
        return ended, figures

    def capped(self, label, percent, spillway, disk=False, **more):
        """disk: with the sizes of the job that spills there."""
        mib = self.disk_mib() if disk else self.mib
        arguments = ("--rounds", str(DISK_ROUNDS), "--products", str(DISK_PRODUCTS)) if disk else ()
        budget = f"{self.count * mib * percent // 100}MiB"
        if self.program.simcuda:
            more["memory"] = budget
        else:
            spillway = {"gpu_memory": budget, **spillway}
        return self.run(label, mib, "--spillway", *arguments, limit=max(HANG * self.seconds, SHORTEST_CUT), spillway=spillway,
                        allowance=lambda metrics: self.disk.allowance(metrics, HANG), **more)  # fmt: skip

    def problem(self, ended, figures, percent):
        """What is wrong with a run; empty: nothing."""
        if ended.status != 0:
            return self.program.last_line(ended)
        if percent < 100 and not (figures or {}).get("spilled_bytes"):
            return "nothing was spilled"
        return ""

    def rerun(self, words, name, settings, disk):
        """One rerun with one thing changed. It is told, and judges nothing. Whether it passes so; None: there was no time."""
        table = self.program.table
        label = f"rerun of plain job, {words}: {name}"
        if table.left() < 1.3 * self.seconds + 5:
            table.add(label, rows.LEFT_OUT, "no time")
            return None
        # An audit unmaps what a launch does not name: it has memory enough for all.
        percent = WHOLE if name == "audit" else HALF
        options = ("--mode", "fault") if name == "audit" else ()
        variables = {"CUDA_LAUNCH_BLOCKING": "1"} if name == "blocking launches" else {}
        ended, figures = self.capped(label, percent, {"host_memory": self.host(2), **settings}, disk, options=options, **variables)
        problem = self.problem(ended, figures, percent) or product_words(figures)
        table.judge(label, ended, rows.MEASURED, problem or "it passes so", figures=figures)
        return not problem


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
