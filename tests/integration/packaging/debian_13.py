"""The wheel on a bare Debian 13, nightly: a system of its own without Debian 12's libraries, Python 3.13, PyTorch from PyPI.

  debian_13.py --build build      as root; keeps the system in BUILD/debian-13 (6 GB)

In it, after PyTorch is installed: the wheel is installed, the doctor looks at the installation, and the example job trains on
the stand-in device with all its memory and, in three ways, with half of it, bit for bit. The first job that has outgrown its device must have ended
within three minutes of `pip install`.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

import environments
import fresh
import make_wheel

TORCH = "2.11.0"
MIRROR = "http://deb.debian.org/debian"
PACKAGES = "python3,python3-venv,ca-certificates,libgomp1"
SECONDS_TO_FIRST_JOB = 180
# The checkout lies where it does outside; names and certificates are the machine's.
ENTER = """
mount --bind "$2" "$1$2" && mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" &&
cp /etc/resolv.conf "$1/etc/" && cp /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/" && root=$1 && shift 2 && exec chroot "$root" "$@"
"""


def make_system(root):
    """A bare system; one that is there is used."""
    if (root / "usr" / "bin" / "python3").exists():
        return
    shutil.rmtree(root, ignore_errors=True)
    command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "trixie", root, MIRROR]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        shutil.rmtree(root, ignore_errors=True)
        raise environments.Skipped(f"debootstrap: {(done.stdout + done.stderr)[-500:]}")


def try_inside(build, wheel):
    """In the system: what a new user does, and the seconds until his first job has ended."""
    for library in Path("/usr/lib/x86_64-linux-gnu").glob("libabsl_*"):
        raise AssertionError(f"{library}: this is no bare system")
    folder = Path("/job")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    kept = Path("/pytorch")  # the environment with PyTorch, from one run to the next
    if not (kept / "done").exists():
        shutil.rmtree(kept, ignore_errors=True)
        environments.install_torch(fresh.Environment(kept, sys.executable), TORCH)
        (kept / "done").touch()
    place = fresh.Environment(kept, sys.executable)
    place.run("python", "-m", "pip", "uninstall", "-y", "-q", "spillway")
    start = time.monotonic()
    place.pip("install", "--no-index", "--no-deps", wheel)
    seconds = []
    runs = environments.run_ways(place, build, folder, ended=lambda name: seconds.append(time.monotonic() - start))
    environments.judge(runs)
    environments.expect(seconds[0] < SECONDS_TO_FIRST_JOB, f"the first job that outgrew its device had ended after {seconds[0]:.0f} s")
    return seconds[0], sum(run.keys["spilled_bytes"] for run in runs.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=fresh.ROOT / "build")
    parser.add_argument("--inside", type=Path, metavar="WHEEL", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    if arguments.inside:
        seconds, spilled = try_inside(build, arguments.inside)
        print(f"Debian {Path('/etc/debian_version').read_text().strip()}, Python {platform.python_version()}, PyTorch {TORCH}: "
              f"the first job past its device's memory {seconds:.0f} s after the wheel, three ways bit-equal, {spilled >> 20} MiB moved out")  # fmt: skip
        return 0
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        print("skipped: it needs root and debootstrap")
        return fresh.SKIPPED
    root = build / "debian-13"
    try:
        make_system(root)
    except environments.Skipped as why:
        print(f"skipped: {why}")
        return fresh.SKIPPED
    wheel = make_wheel.make(build, build / "wheels")
    (root / str(fresh.ROOT).lstrip("/")).mkdir(parents=True, exist_ok=True)
    inside = ["python3", "-B", __file__, "--build", build, "--inside", wheel]
    return subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER, "sh", root, fresh.ROOT, *inside], env=fresh.clean_variables(), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
