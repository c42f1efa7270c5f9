"""A Python that has Spillway's start-up hook without anything being installed or downloaded.

The hook is a .pth file, which only a site-packages folder can hold: so a virtual environment is made that holds it, and
that finds everything else where the running Python does.
"""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path


SECONDS = 120  # for each of its two commands: a file system may be slow at first


def output_of(*command):
    done = subprocess.run(command, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ends with {done.returncode}: {done.stdout[-300:]}")
    return done.stdout


def python_with_start_up(build, work):
    """The interpreter of the environment, made at the first call. `build` holds lib/, and python/ from the bundle."""
    if (Path(sysconfig.get_paths()["purelib"]) / "spillway_start_up.pth").exists():
        return sys.executable
    home = work / "conf-python"
    interpreter, finished = home / "bin" / "python", home / "finished"
    source = build / "python"
    if not source.exists():
        source = Path(__file__).resolve().parents[2] / "integration" / "python"
    if not finished.exists():  # nor is what an earlier call left halfway
        shutil.rmtree(home, ignore_errors=True)
        output_of(sys.executable, "-m", "venv", "--without-pip", str(home))
        site = Path(output_of(str(interpreter), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip())
        parents = dict.fromkeys((sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"]))
        (site / "parents.pth").write_text("\n".join(parents) + "\n", encoding="utf-8")
        (site / "spillway").symlink_to(source / "spillway")
        (site / "spillway_start_up.pth").write_text((source / "spillway_start_up.pth").read_text(encoding="utf-8"), encoding="utf-8")
        finished.touch()
    return str(interpreter)
