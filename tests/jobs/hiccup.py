"""A drive that hiccups under a training job: its reads or writes fail for a time, or it is silent for longer than a request may
take, and then works again. The job has the bits of one with enough memory, and its directory is open at the end.
"""

import re
import tempfile

import harness
import job
from harness import MIB

TRAIN = ("--width", "384", "--layers", "4", "--heads", "4", "--sequence", "64", "--batch", "8", "--steps", "6", "--optimizer-form",
         "plain")  # fmt: skip
MEMORY_MIB = 112
COMPARED = "reads_long"  # the case in which the GPU compares what comes back, in the checksums' place
# Name, the fault (times from the directory's first request on), and what the log must say.
CASES = (
    ("reads", "read:EIO:300ms:30ms", ()),
    ("reads_long", "read:EIO:300ms:3s", ("it is tried again",)),
    ("writes", "write:EIO:300ms:1500ms", ("it is tried again",)),
    ("writes_long", "write:EIO:300ms:5s", ("a block stays on the GPU",)),
    ("silence", "all:silence:300ms:40s", ("does not answer and gets no new spill slots until it does", "answers again")),
)


def run(here, name, mode, cap=None, **variables):
    return job.run_job(here, mode, TRAIN, cap, name=name, show=lambda _: False, timeout=500, extra_environment=variables)


def main():
    args = harness.arguments(__doc__, ("--short", {"action": "store_true", "help": "the first three cases"}))
    problems = harness.Problems()
    here = harness.machine(args, "hiccup")
    whole = run(here, "whole", job.UNCAPPED)
    if not problems.expect(whole.report is not None, f"uncapped: status {whole.exit_status}\n{whole.log[-3000:]}"):
        problems.exit()
    for name, fault, lines in CASES[:3] if args.short else CASES:
        with tempfile.TemporaryDirectory(dir=here.work) as directory:
            cap = job.Cap(MEMORY_MIB * MIB, "0", directory, {"io_faults": fault, "disk_reserve": "1GiB"})
            compared = {"SPILLWAY_VERIFY": "on", "SPILLWAY_CHECKSUM": "off"} if name == COMPARED else {}
            seen = run(here, name, job.PRELOAD, cap, **compared)
        if not problems.expect(seen.report is not None, f"{name}: status {seen.exit_status}\n{seen.log[-3000:]}"):
            continue
        for key in ("losses_sha256", "state_sha256"):
            problems.expect(seen.keys[key] == whole.keys[key], f"{name}: {key} differs from the uncapped run")
        for line in ("the disk fails on purpose", *lines):
            problems.expect(line in seen.log, f"{name}: no line says '{line}'\n{seen.log[-2000:]}")
        ends = re.findall(r"gets no new spill slots|works again and gets|answers again", seen.log)
        problems.expect(not ends or ends[-1] != "gets no new spill slots", f"{name}: the directory is closed at the end")
        problems.expect((seen.keys["disk_written_bytes"] or 0) > 0, f"{name}: nothing was written, so nothing was shown")
        fetches = (seen.metrics or {}).get("verified_fetches"), (seen.metrics or {}).get("wrong_arrivals")
        problems.expect((fetches[0] > 0) == bool(compared) and fetches[1] == 0, f"{name}: verified, wrong: {fetches}")
        print(f"{name}: {fault}, {seen.keys['disk_written_bytes'] / MIB:.0f} MiB to disk, {seen.seconds:.1f} s", flush=True)
    problems.exit()


if __name__ == "__main__":
    main()
