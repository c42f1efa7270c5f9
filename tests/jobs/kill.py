"""SIGKILL at a random moment while at least 64 MiB lie in spill files: nothing remains, and the space is back.

The parent looks from outside: at the process's open files in the spill directory, at the directory, and at the file
system's free space.
"""

import os
import random
import signal
import tempfile
import time
from pathlib import Path

import configurations
import harness
import job
import matrix
from harness import MIB

LEAST = 64 * MIB


def spill_bytes(pid, folder):
    """Bytes that the process's open files below `folder` take on disk; they have no name there any more."""
    total = 0
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if os.readlink(link).startswith(str(folder)):
                total += os.stat(link).st_blocks * 512
        except OSError:
            continue  # closed in the meantime
    return total


def written_bytes(pid):
    """Bytes that the process has sent to block devices."""
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["write_bytes"])


def wait_for_spill(child, folder, limit=180):
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline and child.poll() is None:
        try:
            if min(spill_bytes(child.pid, folder), written_bytes(child.pid)) >= LEAST:
                return True
        except OSError:
            pass
        time.sleep(0.02)
    return False


def space_came_back(folder, before, taken):
    """Other processes use the disk too, so three quarters of what the files took must be free again."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if harness.free_bytes(folder) >= before + taken * 3 // 4:
            return True
        time.sleep(0.1)
    return False


def kill_once(here, cap, folder, row, delay, problems):
    child = harness.start(here, job.PRELOAD, cap, job.TRAIN, *matrix.train_arguments(row, 1000))
    try:
        if not problems.expect(wait_for_spill(child, folder), "64 MiB never came into spill files"):
            return
        time.sleep(delay)
        taken, names = spill_bytes(child.pid, folder), os.listdir(folder)
        before = harness.free_bytes(folder)
        problems.expect(child.poll() is None, "the job ended before it was killed")
        problems.expect(taken >= LEAST, f"only {taken} bytes in spill files when killed")
        problems.expect(names == [], f"spill files have names while in use: {names}")
        child.send_signal(signal.SIGKILL)
        child.wait(timeout=30)
        print(f"killed {delay:.2f} s after the first 64 MiB, with {taken / MIB:.0f} MiB in spill files", flush=True)
        problems.expect(os.listdir(folder) == [], f"left behind: {os.listdir(folder)}")
        problems.expect(space_came_back(folder, before, taken), "the space of the spill files did not come back")
    finally:
        child.kill()
        output = child.communicate()[0]
        if problems.found:
            print(output[-2000:])


def main():
    args = harness.arguments(__doc__, ("--times", {"type": int, "default": 2}), ("--seed", {"type": int}))
    seed = args.seed if args.seed is not None else int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}")
    moments, problems = random.Random(seed), harness.Problems()
    here = harness.machine(args, "kill")
    row = configurations.Configuration("kill", 1, "foreach", "35", "ssd")
    uncapped = job.run_job(here, job.UNCAPPED, matrix.train_arguments(row, 1))
    if problems.expect(uncapped.keys["status"] == "ok", f"uncapped: {uncapped.keys['status']}\n{uncapped.log[-2000:]}"):
        peak = uncapped.keys["peak_bytes"]
        for _ in range(args.times):
            with tempfile.TemporaryDirectory(dir=here.work) as folder:
                cap = matrix.cap_of(row, peak * 35 // 100, peak, folder)
                kill_once(here, cap, Path(folder), row, moments.uniform(0, 3), problems)
    problems.exit()


if __name__ == "__main__":
    main()
