"""Rehearses a GPU session: the bundle, the commands and the paths of one, over simcuda's driver.

    rehearse.py [--build BUILD] [--python PATH] [--work DIR]

Each stage runs as on the machine that has the GPU: in a mount namespace with a /dev/nvidia0, with the bundle alone, no variable
of this environment, and simcuda's driver where the loader finds NVIDIA's, with the costs of an H100 and the memory of a small
device. The first and the second twice: as they are, and with a program that hangs, one that crashes and a kernel whose parameters
the driver does not tell. Shown: the stages end in their time, with their own exit status; the end of what they say tells the story;
nothing fails that the stand-in can do. Needs root; skipped (77) where the system lets nobody make such a namespace.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SKIPPED = 77
SECONDS = {"first": 540, "second": 175, "table": 480}  # of the command that a stage is
PARTS = {"plain": ("first", "second"), "faults": ("first", "second"), "table": ("table",)}
END_OF_OUTPUT = 12_000  # characters that are brought home
LARGEST_BUNDLE = 40  # MiB
SETTINGS = {"SIMCUDA_MEMORY": "4GiB", "SIMCUDA_HARDWARE": "h100", "SIMCUDA_POISON": "recycle"}
# Processes of the stand-in share no device: another one's memory is no matter there.
NOT_THERE = {"a full GPU, default budget"}
FAULTS = {"SIMCUDA_FAIL": "cuKernelGetParamInfo:20:2"}
HANGING = '#!/bin/sh\ncase "$*" in *ResidencyTest*) exec tail -f /dev/null ;; esac\nexec "$0.real" "$@"\n'
CRASHING = "#!/bin/sh\nkill -SEGV $$\n"

NAMESPACE = """
set -e
for folder in dev etc; do
  mkdir -p "$SCRATCH/$folder" "$SCRATCH/$folder.work"
  mount -t overlay overlay -o "lowerdir=/$folder,upperdir=$SCRATCH/$folder,workdir=$SCRATCH/$folder.work" "/$folder"
done
mount -t tmpfs tmpfs /dev/shm
: >/dev/nvidia0
printf '%s\\n' "$PRELOADS" >/etc/ld.so.preload
printf '%s\\n' "$SETTINGS" >/etc/simcuda.settings
unset SCRATCH PRELOADS SETTINGS
exec "$@"
"""


def inside(args, scratch, settings, command, **more):
    """Runs a command in the namespace; scratch: a folder for what it changes of /dev and /etc, on a disk of its own kind."""
    shutil.rmtree(scratch, ignore_errors=True)
    (scratch / "dev").mkdir(parents=True)
    simcuda = args.build / "lib" / "simcuda"
    preloads = [args.build / "lib" / "tests" / "libgpu_rehearsal_settings.so", simcuda / "libcudart.so.13"]
    environment = {"PATH": os.defpath + ":/usr/sbin:/sbin", "HOME": str(scratch), "LD_LIBRARY_PATH": str(simcuda), "SCRATCH": str(scratch),
                   "PRELOADS": "\n".join(map(str, preloads)), "SETTINGS": "\n".join(f"{key}={value}" for key, value in settings.items())}  # fmt: skip
    return subprocess.run(["unshare", "--mount", "bash", "-c", NAMESPACE, "namespace", *map(str, command)], env=environment, check=False, **more)


def plant(bundle):
    """A program of the bundle that hangs, and one that crashes."""
    tests = bundle / "tests"
    (tests / "gpu_self_test").rename(tests / "gpu_self_test.real")
    for name, text in (("gpu_self_test", HANGING), ("gpu_plain_job", CRASHING)):
        (tests / name).unlink(missing_ok=True)
        (tests / name).write_text(text)
        (tests / name).chmod(0o755)


def run_stage(args, work, bundle, stage, settings):
    """Exit status, output, report, and seconds."""
    command = [ROOT / "tests" / "gpu" / "visit.sh", "--stage", stage, "--python", args.python, "--build", bundle, "--work", work / "work",
               "--out", work / "home", "--spill", work / "spill"]  # fmt: skip
    start = time.monotonic()
    done = inside(args, work / "scratch", settings, command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(done.stdout, flush=True)
    return done.returncode, done.stdout, json.loads((work / "home" / f"{stage}.json").read_text()), time.monotonic() - start


def failed_rows(report):
    return {row["row"]: row.get("words", "") for row in report["rows"] if row["status"] == "failed"}


def problems_of(stage, status, output, report, seconds, expected):
    """What is wrong with a stage whose rows of these names must fail, and no others."""
    failed = failed_rows(report)
    found = [f"{row} fails: {words}" for row, words in failed.items() if row not in expected | NOT_THERE]
    found += [f"{row} has not failed" for row in expected - set(failed)]
    if status not in ((1,) if failed else (0, 3)):
        found.append(f"exit status {status}")
    if seconds >= SECONDS[stage]:
        found.append(f"it took {seconds:.0f} s of {SECONDS[stage]}")
    end = output[-END_OF_OUTPUT:]
    found += [f"the end of the output does not tell of {row}" for row in failed if f"PROBLEM  {row}" not in end]
    return [f"{stage}: {words}" for words in found]


def rehearse(args, part):
    """Problems of the stages of one part; and a line of figures."""
    work, faults = args.work / part, part == "faults"
    shutil.rmtree(work, ignore_errors=True)
    bundle = work / "gpu"
    subprocess.run([HERE / "bundle.sh", "--build", args.build, "--to", bundle, "--limit", str(LARGEST_BUNDLE)], check=True)
    expected = {stage: set() for stage in PARTS[part]}
    if faults:
        plant(bundle)
        expected["first"] = {"residency self-test", "plain job: the driver's blocks", "plain job: 50 %, host memory", "a launch"}
        expected["second"] = {"pause and resume", "plain job: 50 %, disk"}
    problems, times = [], []
    for stage in PARTS[part]:
        status, output, report, seconds = run_stage(args, work, bundle, stage, {**SETTINGS, **(FAULTS if faults else {})})
        problems += problems_of(stage, status, output, report, seconds, expected[stage])
        counts = [row["status"] for row in report["rows"]]
        times.append(f"{stage} {seconds:.0f} s of {SECONDS[stage]}, {len(counts)} rows, {counts.count('left out')} left out")
        if faults and stage == "first":
            problems += [f"no row again: {row}" for row in expected["first"] if f"again: {row}" not in {r["row"] for r in report["rows"]}]
    return problems, f"{part}: {'; '.join(times)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--work", type=Path, help="default: BUILD/rehearsal")
    parser.add_argument("--only", choices=PARTS)
    args = parser.parse_args()
    args.build = args.build.resolve()
    args.work = (args.work or args.build / "rehearsal").resolve()
    if inside(args, args.work / "scratch", SETTINGS, ["true"]).returncode != 0:
        print("this system allows no mount namespace with overlays")
        return SKIPPED
    problems, lines = [], []
    for part in [args.only] if args.only else PARTS:
        found, line = rehearse(args, part)
        problems += found
        lines.append(line)
    print("\n".join([*lines, *(f"PROBLEM  {words}" for words in problems)]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
