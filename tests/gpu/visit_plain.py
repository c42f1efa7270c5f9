"""The job of a GPU session that needs no PyTorch (gpu_plain_job): with the driver's blocks, then with Spillway's at half of what
is live; and what a launch costs that names one of its blocks."""

import os
import sysconfig
from pathlib import Path

import visit_rows as rows
from visit_jobs import HANG, SHORTEST_CUT

GOOD = "every word is what the host foretells"
DISK_ROUNDS, DISK_PRODUCTS = 3, 1
DISK_PASSES = DISK_ROUNDS + DISK_PRODUCTS + 3  # over all blocks: filled, mixed, and checked twice
SMALLEST_MIB = 8  # of a block
TURNS = 3  # of a launch without and with the hooks


class PlainJob:
    def __init__(self, program):
        self.program = program
        self.count, self.mib = (24, 8) if program.args.size == "small" else (64, 64)
        folders = [*cublas_folders(), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        self.path = {} if program.simcuda else {"LD_LIBRARY_PATH": ":".join(folders)}

    def run(self, label, mib, *arguments, **more):
        sizes = ("--blocks", str(self.count), "--mib", str(mib))
        return self.program.run(label, "gpu_plain_job", *arguments, *sizes, **self.path, **more)

    def capped(self, label, mib, host, *arguments, **more):
        """With half of what is live on the GPU."""
        budget, spillway = f"{self.count * mib // 2}MiB", {"host_memory": host}
        if self.program.simcuda:
            more["memory"] = budget
        else:
            spillway["gpu_memory"] = budget
        return self.run(label, mib, "--spillway", *arguments, spillway=spillway, **more)

    def judge(self, label, ended, figures):
        spilled = (figures or {}).get("spilled_bytes")
        if ended.status != 0 or not spilled:
            self.program.failed(label, ended, "" if ended.status != 0 else "nothing was spilled", figures=figures)
            return
        words = f"{GOOD}; out {spilled / 1e9:.2f} GB, in {figures['fetched_bytes'] / 1e9:.2f}, {figures['seconds']:.2f} s"
        self.program.table.judge(label, ended, rows.PASSED, words, figures=figures)
        products(self.program.table, label, figures)


def in_host_memory(program):
    plain = PlainJob(program)
    label = "plain job: the driver's blocks"
    uncapped, figures = plain.run(label, plain.mib, memory="4GiB", limit=SHORTEST_CUT)
    program.judged(label, uncapped, f"{GOOD}; {(figures or {}).get('seconds', 0):.2f} s")
    products(program.table, label, figures)
    label = "plain job: 50 %, host memory"
    ended, figures = plain.capped(label, plain.mib, f"{2 * plain.count * plain.mib}MiB",
                                  limit=max(HANG * uncapped.seconds, SHORTEST_CUT))  # fmt: skip
    plain.judge(label, ended, figures)


def on_disk(program, jobs):
    """jobs: of the session; it knows the disk. At worst each pass moves all blocks out and in again: they are as large as it allows."""
    plain = PlainJob(program)
    with program.table.guarded("disk of the spill files"):
        jobs.disk.measure()
    mib = min(plain.mib, max(SMALLEST_MIB, int(jobs.disk.bytes_there_and_back() / DISK_PASSES / plain.count / (1 << 20))))
    label = "plain job: 50 %, disk"
    ended, figures = plain.capped(label, mib, "64MiB", "--rounds", str(DISK_ROUNDS), "--products", str(DISK_PRODUCTS),
                                  limit=SHORTEST_CUT, allowance=lambda metrics: jobs.disk.allowance(metrics, HANG))  # fmt: skip
    plain.judge(label, ended, figures)


def launch_cost(program):
    """A launch that names a block: one of the driver's without the hooks, one of Spillway's with them, in turns."""
    alone, hooked, seconds = [], [], 0.0
    for turn in range(TURNS):
        for into, spillway in ((alone, None), (hooked, {"host_memory": "64MiB"})):
            ours = () if spillway is None else ("--spillway",)
            ended, figures = program.run(f"launch {turn}", "gpu_plain_job", *ours, "--blocks", "2", "--mib", "8", "--products", "0",
                                         "--rounds", "1", "--launches", "20000", memory="1GiB", spillway=spillway, limit=30)  # fmt: skip
            seconds += ended.seconds
            if ended.status != 0 or not figures:
                program.failed("a launch", ended)
                return
            into.append(figures["launch_ns"])
    figures = {"alone_ns": min(alone), "hooked_ns": min(hooked), "hook_ns": min(hooked) - min(alone)}
    program.figures("a launch", figures, seconds,
                    f"of a kernel that names a block: {figures['alone_ns']:.0f} ns, {figures['hook_ns']:.0f} more with the hooks")  # fmt: skip


def pauses(program):
    """Everything gives its memory up and takes it back, beside plain copies of the same blocks."""
    plain, label = PlainJob(program), "pause and resume"
    count, mib = (24, 8) if program.args.size == "small" else (320, 64)  # 20 GiB
    ended, figures = program.run(label, "gpu_plain_job", "--pauses", "--spillway", "--blocks", str(count), "--mib", str(mib), "--products",
                                 "0", "--rounds", "1", memory="1GiB", spillway={"host_memory": f"{count * mib * 5 // 4}MiB"},
                                 limit=SHORTEST_CUT, **plain.path)  # fmt: skip
    found = (figures or {}).get("pauses")
    if ended.status != 0 or not found:
        program.failed(label, ended, figures=figures)
        return
    first, same, changed = (found[when] for when in ("first", "unchanged", "changed"))
    words = (f"{found['bytes'] / 1e9:.1f} GB: out in {changed['pause_seconds']:.2f} s, {found['plain_copy_seconds'] / changed['pause_seconds']:.2f} "
             f"of a plain copy's speed, back in {changed['resume_seconds']:.2f} s; the first time {first['pause_seconds']:.2f} s; unchanged "
             f"{same['pause_seconds']:.2f} s with {same['copied_bytes'] / 1e9:.1f} GB copied; every word right")  # fmt: skip
    program.table.judge(label, ended, rows.MEASURED, words, figures=found)


def cublas_folders():
    """Where wheels put cuBLAS, for a job without PyTorch."""
    site = Path(sysconfig.get_paths()["purelib"])
    return [str(path.parent) for path in site.glob("nvidia/*/lib/libcublas.so.*")]


def products(table, where, figures):
    """The row of cuBLAS, called without PyTorch."""
    found = (figures or {}).get("products") or {}
    label = f"matrix products, {where}"
    if "needs" in found:
        table.add(label, rows.NEEDS_HARDWARE, found["needs"])
    elif "missing" in found:
        table.add(label, rows.MISSING, found["missing"])
    elif found:
        wrong = found["differences"]
        table.add(label, rows.FAILED if wrong else rows.PASSED, f"{wrong} of {found['rounds']} differ", figures=found)
