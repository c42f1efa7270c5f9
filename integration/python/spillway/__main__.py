"""`python -m spillway`: what is installed, and what a job on this machine would find."""

import argparse
import ctypes
import ctypes.util
import glob
import importlib.metadata
import importlib.util
import os
import platform
import resource
import shutil
import sys

import spillway
from spillway import start_up


def version():
    try:
        return importlib.metadata.version("spillway")
    except importlib.metadata.PackageNotFoundError:
        return "not installed with pip"


def torch_line():
    if importlib.util.find_spec("torch") is None:
        return "PyTorch", "not installed in this Python", False
    torch = importlib.metadata.version("torch")
    major, minor = torch.split(".")[:2]
    ours = f"libspillway_torch_{major}_{minor}.so"
    if os.path.isfile(os.path.join(spillway.library_dir(), ours)):
        return "PyTorch", f"{torch}, with {ours}", True
    return "PyTorch", f"{torch}, for which there is no {ours}: PyTorch would keep its own allocator", False


def library_line():
    path = spillway.library()
    return "library", path if os.path.isfile(path) else f"{path} is missing", os.path.isfile(path)


def engine_line():
    """Opens it as the preload does: what it needs of this machine is looked for now, not when a job starts."""
    path = os.path.join(spillway.library_dir(), "libspillway_engine.so")
    try:
        ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        return "engine", f"cannot be opened, jobs would run without Spillway: {error}", False
    return "engine", "can be opened", True


def machine_line():
    why = start_up.unserved_machine()
    return "machine", why or f"Linux {platform.machine()}", not why


def conf_line():
    named = [n for n in start_up.CONF_VARIABLES if start_up.names_our_backend(os.environ.get(n, ""))]
    if not named:
        return "configuration", "no variable names backend:spillway in this shell", True
    if start_up.switched_off():
        return "configuration", f"{named[0]} names it, but SPILLWAY switches it off", True
    loaded = start_up.already_loaded()
    return "configuration", f"{named[0]} names it; library {'loaded' if loaded else 'NOT loaded'} here", loaded


def driver_line():
    found = ctypes.util.find_library("cuda")
    devices = len(glob.glob("/dev/nvidia[0-9]*"))
    return "GPU driver", f"{found or 'no libcuda.so.1'}; {devices} device file(s)", bool(found and devices)


def memlock_line():
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return "locked memory", "no limit" if soft == resource.RLIM_INFINITY else f"limit {soft >> 20} MiB", True


def io_uring_line():
    try:
        with open("/proc/sys/kernel/io_uring_disabled", encoding="ascii") as file:
            state = file.read().strip()
    except OSError:
        state = "0"
    kernel = platform.release()
    words = "allowed" if state == "0" else "restricted by the kernel; threads are used instead"
    return "io_uring", f"{words} (Linux {kernel})", True


def disk_line():
    for folder in ("/var/tmp", os.environ.get("TMPDIR", ""), "/tmp"):
        if folder and os.access(folder, os.W_OK):
            return "spill folder", f"{folder}, {shutil.disk_usage(folder).free >> 30} GiB free", True
    return "spill folder", "none can be written; name one in SPILLWAY_DIRS", False


def main():
    parser = argparse.ArgumentParser(prog="python -m spillway", description=__doc__)
    parser.add_argument("--library", action="store_true", help="print only the path of libspillway.so, for LD_PRELOAD")
    if parser.parse_args().library:
        print(spillway.library())
        return 0
    print(f"spillway {version()}")
    needed = [machine_line(), library_line(), engine_line()]
    for name, words, good in [*needed, torch_line(), conf_line(), driver_line(), memlock_line(), io_uring_line(), disk_line()]:
        print(f"  {'ok' if good else '--'}  {name:14} {words}")
    return 0 if all(good for _, _, good in needed) else 1


if __name__ == "__main__":
    sys.exit(main())
