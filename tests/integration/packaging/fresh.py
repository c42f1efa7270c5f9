"""Fresh environments for tests of the wheel: made, given PyTorch or not, installed into, run in, removed.

A command can run with Debian's abseil hidden: in a mount namespace of its own, in which each of their files is
/dev/null. That needs root.
"""

import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "integration" / "packaging"), str(ROOT / "integration" / "quickstart")]
SKIPPED = 77
HIDDEN = "libabsl_*.so.*"
LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
# Each file becomes /dev/null, then the command takes the shell's place.
HIDE = 'while [ "$1" != -- ]; do mount --bind /dev/null "$1" || exit 125; shift; done; shift; exec "$@"'


def hidden_files():
    found = sorted(path for path in LIBRARIES.glob(HIDDEN) if not path.is_symlink())
    if not found:
        raise SystemExit(f"no abseil in {LIBRARIES}: nothing to hide")
    return found


def hiding_prefix():
    """What stands before a command that shall not find Debian's abseil."""
    return ("unshare", "--mount", "--propagation", "private", "sh", "-c", HIDE, "sh", *map(str, hidden_files()), "--")


def can_hide():
    return subprocess.run([*hiding_prefix(), "true"], capture_output=True, check=False).returncode == 0


def clean_variables(**more):
    kept = {k: v for k, v in os.environ.items() if not re.match(r"SPILLWAY(?!_DISK_RESERVE$)|SIMCUDA|PYTORCH_|PYTHON|LD_|PIP_NO", k)}
    return {**kept, **more}


class Environment:
    """A virtual environment of one Python. with Environment(...) as e: it is removed at the end."""

    def __init__(self, folder, python):
        self.folder, self.python = Path(folder), Path(folder) / "bin" / "python"
        subprocess.run([python, "-m", "venv", self.folder], check=True, env=clean_variables())
        self.site = Path(self.output("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *command, hidden=False, **variables):
        """A program of the environment by its name in bin/, with its output."""
        line = [self.folder / "bin" / command[0], *command[1:]]
        return subprocess.run([*(hiding_prefix() if hidden else ()), *map(str, line)], env=clean_variables(**variables),
                              capture_output=True, text=True, check=False, timeout=600)  # fmt: skip

    def output(self, *arguments):
        done = self.run("python", *arguments)
        if done.returncode:
            raise RuntimeError(f"{self.python} {arguments}: {done.stderr}")
        return done.stdout

    def pip(self, *arguments):
        self.output("-m", "pip", "--disable-pip-version-check", "-q", *arguments)

    def take_packages_of(self, python):
        """What is installed in another Python of the same minor can be imported here, without a copy."""
        code = "import sysconfig; print(sysconfig.get_path('purelib'))"
        other = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout
        # addsitedir would run that folder's start-up hooks, too, and one may be ours.
        (self.site / "packages_of_another.pth").write_text(other)

    def files(self):
        """What lies in it, but for what Python and pip write for themselves."""
        return {path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*")
                if "__pycache__" not in path.parts and path.is_file()}  # fmt: skip


def main():
    """unittest.main(), with a status of its own where a test was skipped: a part that was not tried has not passed."""
    result = unittest.main(module="__main__", exit=False).result
    sys.exit(1 if not result.wasSuccessful() else SKIPPED if result.skipped else 0)
