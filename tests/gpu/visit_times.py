"""All four stages of a visit on simcuda, and how long they take: each in less than 9 minutes, together in less than 20.

    visit_times.py [--build BUILD] [--python PATH] [--work DIR]

On a machine with a GPU a stage must end within one loan of it, and here the whole must stay short enough to be run every night.
What other processes take of the processors meanwhile is taken off, evenly over all processors: a stage fails that is too long
even so. That is less than it takes on a machine of its own, since it does not want all processors all the time. So one that is
too long by the clock alone is a warning: the night of a quiet machine decides, where both times are the same.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
STAGES = (1, 2, 3, 4)
STAGE_MINUTES, ALL_MINUTES = 9, 20
CUT_MINUTES = 30  # of a stage, on the busiest machine


def busy_seconds(text):
    """Seconds that the processors had work since the machine's start; text: /proc/stat."""
    user, nice, system, _idle, _waiting, irq, softirq, steal = (int(word) for word in text.splitlines()[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    """Processor time of the children that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def alone_seconds(wall, busy, own, processors):
    """What `wall` seconds would have been without other processes: busy, all that the processors did; own, our part of it."""
    return max(0.0, wall - max(0.0, busy - own) / processors)


def too_long(times):
    """What took too long, in words. times: stage -> minutes."""
    found = [f"stage {stage} took {minutes:.1f} minutes, not less than {STAGE_MINUTES}"
             for stage, minutes in times.items() if minutes >= STAGE_MINUTES]  # fmt: skip
    if sum(times.values()) >= ALL_MINUTES:
        found.append(f"all stages took {sum(times.values()):.1f} minutes, not less than {ALL_MINUTES}")
    return found


def judged(walls, alone):
    """Problems and warnings of two times of each stage: by the clock, and without what others took."""
    problems = too_long(alone)
    return problems, [] if problems else [f"{words}, beside others: not judged" for words in too_long(walls)]


def stage_problem(status, report):
    """What is wrong with how a stage ended; empty: nothing. It ends with 3 where rows were left out."""
    left_out = [row["row"] for row in report["rows"] if row["status"] == "left out"]
    return "" if status == 0 else f"ended with {status}" + (f", left out: {left_out}" if left_out else "")


def run_stage(args, stage):
    """Exit status, report, and minutes: of the wall, and without what others took."""
    work = args.work / f"stage-{stage}"
    command = [HERE / "visit.sh", "--stage", str(stage), "--simcuda", "--size", "small", "--python", args.python, "--build", args.build,
               "--work", work, "--minutes", str(CUT_MINUTES)]  # fmt: skip
    start, busy, own = time.monotonic(), busy_seconds(Path("/proc/stat").read_text()), own_seconds()
    status = subprocess.run([str(word) for word in command], check=False).returncode
    wall = time.monotonic() - start
    alone = alone_seconds(wall, busy_seconds(Path("/proc/stat").read_text()) - busy, own_seconds() - own, os.cpu_count())
    return status, json.loads((work / f"stage-{stage}.json").read_text(encoding="utf-8")), wall / 60, alone / 60


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--work", type=Path, help="logs and reports (default: BUILD/visit)")
    args = parser.parse_args()
    args.work = (args.work or args.build / "visit").resolve()
    walls, alone, problems, lines = {}, {}, [], []
    for stage in STAGES:
        status, report, walls[stage], alone[stage] = run_stage(args, stage)
        lines.append(f"stage {stage}: {walls[stage]:.1f} minutes, {alone[stage]:.1f} without what others took")
        problems += [f"stage {stage} {words}" for words in [stage_problem(status, report)] if words]
    long, warnings = judged(walls, alone)
    problems += long
    lines.append(f"together: {sum(walls.values()):.1f} minutes, {sum(alone.values()):.1f} without others, on {os.cpu_count()} processors")
    print("\n".join([*lines, *(f"WARNING  {words}" for words in warnings), *(f"PROBLEM  {words}" for words in problems)]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
