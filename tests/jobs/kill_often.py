"""Ends the job in every way at random moments after spilling began: SIGKILL, SIGTERM without and with a handler, an
exception. Nothing may be left behind: no file in the spill directory, none in /dev/shm, no process. A job that ends by
itself prints the summary and is gone within 5 s.

--times gives the number of SIGKILLs; there are half as many SIGTERMs and exceptions, but ten of each when there are ten
SIGKILLs. The moments come from --seed.
"""

import dataclasses
import os
import random
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import harness
import job
from wait_until import wait_until

SERVER = harness.HERE / "kill_server.py"
# Half a second until it spills, and two steps a second or more from then on; its matrices are of 1.2 and 1.6 MiB.
MODEL = ("--width", "320", "--layers", "4", "--heads", "4", "--sequence", "64", "--batch", "8", "--steps", "100000",
         "--log-every", "100000")  # fmt: skip
BUDGET = "72MiB"
SOON = 0.05  # seconds after the first eviction, while what it starts is starting; half of the moments
LONGEST_DELAY = 1.0  # some steps
EXIT_SECONDS = 5  # of a processor that the job has for itself
SPILLING = "spillway: spilling starts"
SUMMARY = "spillway: summary: peak"


@dataclasses.dataclass(frozen=True)
class Way:
    """How a job is ended, and what must be seen then."""

    name: str
    number: int  # the signal that is sent
    handler: str  # what the child does at SIGTERM, as kill_server.py names it
    ended: tuple  # (signal, exit status) that it must show
    orderly: bool  # it prints the summary, and is gone within EXIT_SECONDS


KILL = Way("SIGKILL", signal.SIGKILL, "none", (signal.SIGKILL, 0), False)
TERM = Way("SIGTERM", signal.SIGTERM, "none", (signal.SIGTERM, 0), False)
TERM_HANDLED = Way("SIGTERM with a handler", signal.SIGTERM, "handler", (0, 3), True)
EXCEPTION = Way("exception", signal.SIGUSR2, "none", (0, 1), True)


def ways(times, moments):
    fewer = max(times // 2, min(times, 10))
    every = [KILL] * times + [TERM] * (fewer - fewer // 2) + [TERM_HANDLED] * (fewer // 2) + [EXCEPTION] * fewer
    moments.shuffle(every)
    return every


def start_server(args):
    args.work.mkdir(parents=True, exist_ok=True)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SPILLWAY", "SIMCUDA", "PYTORCH_", "LD_PRELOAD"))}
    env.update(OMP_NUM_THREADS="1", LD_PRELOAD=str(args.build / "lib" / "libspillway.so"), SPILLWAY_HOST_MEMORY="24MiB",
               SPILLWAY_GPU_MEMORY=BUDGET, SPILLWAY_DISK_RESERVE="0")  # fmt: skip
    command = [str(args.build / "bin" / "simcuda-run"), "--memory", "1GiB", "--", job.sys.executable, "-B", str(SERVER), *MODEL]
    return subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def has_said(text, log):
    return log.is_file() and text in log.read_text(errors="replace")


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def group_members(group):
    """Processes of a group; a child of the job is in its group."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[2]) == group:
            found.append(int(entry.name))
    return found


def shared_memory(pid):
    """Named files in /dev/shm that the process has open or mapped."""
    found = {line.split(maxsplit=5)[-1].rstrip() for line in Path(f"/proc/{pid}/maps").read_text().splitlines()}
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.add(os.readlink(link))
        except OSError:
            continue  # closed in the meantime
    return {name for name in found if name.startswith("/dev/shm/") and not name.endswith(" (deleted)")}


def segments(pid):
    """System V segments that the process made."""
    rows = [line.split() for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
    return [row[1] for row in rows if int(row[4]) == pid]


def end_once(server, way, delay, folder, log, problems):
    """Returns the seconds from the signal to the end of the process, or None."""
    log.unlink(missing_ok=True)
    print(folder, log, way.handler, file=server.stdin, flush=True)
    words = server.stdout.readline().split()
    if not problems.expect(words[:1] == ["started"], f"the server answered {words}"):
        return None
    pid = int(words[1])
    wait_until(lambda: has_said(SPILLING, log) or not is_running(pid))
    if not problems.expect(has_said(SPILLING, log), f"{way.name}: no spilling"):
        os.kill(pid, signal.SIGKILL)
    time.sleep(delay)
    problems.expect(is_running(pid), f"{way.name}: the job ended by itself")
    problems.expect(os.listdir(folder) == [], f"spill files have names while in use: {os.listdir(folder)}")
    shared = shared_memory(pid)
    start = time.monotonic()
    os.kill(pid, way.number)
    status = int(server.stdout.readline().split()[2])
    seconds = time.monotonic() - start
    text = log.read_text(errors="replace")
    ended = (status & 0x7F, status >> 8)
    problems.expect(ended == way.ended, f"{way.name} {delay:.3f} s after spilling began: ended by {ended}\n{text[-2000:]}")
    if way.orderly:
        problems.expect(text.count(SUMMARY) == 1, f"{way.name}: {text.count(SUMMARY)} summaries\n{text[-2000:]}")
        problems.expect(harness.in_time(seconds, EXIT_SECONDS), f"{way.name}: {seconds:.1f} s until it was gone\n{text[-2000:]}")
    problems.expect(os.listdir(folder) == [], f"{way.name}: left in the spill directory: {os.listdir(folder)}")
    shared = {name for name in shared if os.path.exists(name)}
    problems.expect(not shared and not segments(pid), f"{way.name}: shared memory left: {shared or segments(pid)}")
    problems.expect(group_members(pid) == [], f"{way.name}: processes left: {group_members(pid)}")
    return seconds


def main():
    args = harness.arguments(__doc__, ("--times", {"type": int, "default": 10}), ("--seed", {"type": int}))
    args.work = args.work / "kill_often"
    seed = args.seed if args.seed is not None else int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}", flush=True)
    moments, problems, slowest = random.Random(seed), harness.Problems(), {}
    server = start_server(args)
    with tempfile.TemporaryDirectory(dir=args.work) as folder:
        try:
            for way in ways(args.times, moments):
                seconds = end_once(server, way, moments.uniform(0, moments.choice((SOON, LONGEST_DELAY))), folder, args.work / "job.log", problems)
                count, longest = slowest.get(way.name, (0, 0))
                slowest[way.name] = (count + 1, max(longest, seconds or 0))
                if len(problems.found) > 5:
                    break
        finally:
            server.stdin.close()
            problems.expect(server.wait(timeout=60) == 0, "the server failed")
    for name, (count, longest) in sorted(slowest.items()):
        print(f"{count:4} x {name:24} gone after {longest:.2f} s at most", flush=True)
    problems.exit()


if __name__ == "__main__":
    main()
