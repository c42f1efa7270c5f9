"""SIGKILL at a random moment while at least 64 MiB lie in spill files: nothing remains, and the space is back.

The parent looks from outside: at the process's open files in the spill directory, at the directory, and at the file
system's free space.
"""

import os
import random
import signal
import tempfile
from pathlib import Path

import configurations
import harness
import job
import matrix
from harness import MIB
from wait_until import wait_until

LEAST = 64 * MIB
MOST_MORE = 256 * MIB  # that are written after that until the process is killed


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


def has_spilled(child, folder, written):
    """Whether it has written so much, and 64 MiB lie in its files."""
    try:
        return spill_bytes(child.pid, folder) >= LEAST and written_bytes(child.pid) >= written
    except OSError:
        return False  # it ends


def space_came_back(folder, before, taken):
    """Other processes use the disk too, so three quarters of what the files took must be free again."""
    return wait_until(lambda: harness.free_bytes(folder) >= before + taken * 3 // 4)


def kill_once(here, cap, folder, row, more, problems):
    child = harness.start(here, job.PRELOAD, cap, job.TRAIN, *matrix.train_arguments(row, 1000))
    try:
        spilled = wait_until(lambda: has_spilled(child, folder, LEAST + more) or child.poll() is not None, 300)
        if not problems.expect(spilled and child.poll() is None, f"it never wrote {(LEAST + more) / MIB:.0f} MiB"):
            return
        taken, names = spill_bytes(child.pid, folder), os.listdir(folder)
        before = harness.free_bytes(folder)
        problems.expect(taken >= LEAST, f"only {taken} bytes in spill files when killed")
        problems.expect(names == [], f"spill files have names while in use: {names}")
        child.send_signal(signal.SIGKILL)
        child.wait(timeout=30)
        print(f"killed {more / MIB:.0f} MiB after the first 64 MiB, with {taken / MIB:.0f} MiB in spill files", flush=True)
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
                kill_once(here, cap, Path(folder), row, moments.randrange(MOST_MORE), problems)
    problems.exit()


if __name__ == "__main__":
    main()
