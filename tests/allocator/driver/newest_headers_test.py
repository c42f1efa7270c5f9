"""The tables of driver functions against the newest headers that PyPI has. Nightly: what it reports missing is to be added
as docs/contributing.md says, and the list beside driver_tables_test is to be written anew.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

SOURCE = pathlib.Path(os.environ["DRIVER_TABLES_SOURCE"])
PACKAGE = "nvidia-cuda-runtime"  # the one with cuda.h
PYTHON = os.environ.get("DRIVER_TABLES_PYTHON") or sys.executable
SKIPPED = 77


def download(folder):
    """The newest release of the package in `folder`; its file, or None with the reason."""
    command = [PYTHON, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", folder, PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(pathlib.Path(folder).glob("*.whl"))
    return (wheels[0] if wheels else None), done.stderr.strip()


def main():
    with tempfile.TemporaryDirectory() as folder:
        wheel, why = download(folder)
        if wheel is None:
            print(f"skipped: {PACKAGE} cannot be had here: {why.splitlines()[-1] if why else 'pip found nothing'}")
            return SKIPPED
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        headers = list(pathlib.Path(folder).glob("nvidia/*/include/cuda.h"))
        if not headers:
            print(f"{wheel.name} has no cuda.h: the headers are in another package now")
            return 1
        print(f"headers of {wheel.name}")
        driver = SOURCE / "allocator/driver"
        command = [sys.executable, driver / "make_driver_functions.py", "--check", driver / "driver_functions.def", headers[0].parent]
        return subprocess.run([str(word) for word in command], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
