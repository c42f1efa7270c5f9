"""When the stand-in runtime opens PyTorch's operators: at the first successful count in a process with libtorch_cuda,
once, from its own folder, and only for the PyTorch that they were built for. Everything but the runtime and the driver
is a fake, in a folder of the test's own.

  runtime_operators_test.py RUNTIME FAKE_OPERATORS DRIVER_DIRECTORY
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

RUNTIME, FAKE, DRIVER_DIRECTORY = sys.argv[1:4]

CALLS = """
import ctypes, sys
runtime = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
count = ctypes.c_int()
def ask():
    assert runtime.cudaGetDeviceCount(ctypes.byref(count)) == 0 and count.value > 0
ask()
print("loading", flush=True)
ctypes.CDLL(sys.argv[2])
ask()
ask()
"""


def run(version, minor="2_11", **environment):
    """Standard output and error of a process that loads torch after its first count; operators are there for `minor`."""
    with tempfile.TemporaryDirectory() as folder:
        own, torch = pathlib.Path(folder, "own"), pathlib.Path(folder, "torch")
        own.mkdir()
        (torch / "lib").mkdir(parents=True)
        shutil.copy(RUNTIME, own / "libcudart.so.13")
        shutil.copy(FAKE, own / f"libsimcuda_torch_{minor}.so")
        shutil.copy(FAKE, torch / "lib" / "libtorch_cuda.so")
        if version is not None:
            (torch / "version.py").write_text(f"__all__ = ['x']\n__version__ = '{version}'\ncuda = '13.0'\n")
        full = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        full.update(environment, LD_LIBRARY_PATH=DRIVER_DIRECTORY)
        result = subprocess.run(
            [sys.executable, "-c", CALLS, own / "libcudart.so.13", torch / "lib" / "libtorch_cuda.so"],
            env=full, capture_output=True, text=True, timeout=60)
        if result.returncode != 0:
            sys.exit(f"FAILED: {result.stdout} {result.stderr}")
        return result.stdout.splitlines(), [line for line in result.stderr.splitlines() if "operators" in line]


def check(outcome, output, error):
    lines, errors = outcome
    fits = lines == output and (len(errors) == 1 and error in errors[0] if error else not errors)
    if not fits:
        sys.exit(f"FAILED: expected {output}, {error!r}; got {lines}, {errors}")


STARTED = ["loading", "started, error 0"]
check(run("2.11.0", FAKE_BUILT_FOR="2.11.0+cu130"), STARTED, None)
check(run("2.15.0", minor="2_15", FAKE_BUILT_FOR="2.15.0+cu132"), STARTED, None)
check(run(None, FAKE_BUILT_FOR="2.11.0"), ["loading"], "no version of PyTorch in version.py")
check(run("2.11.1+cu130", FAKE_BUILT_FOR="2.11.0+cu130"), ["loading"],
      "was built for PyTorch 2.11.0+cu130, this is 2.11.1+cu130")
check(run("2.11.0", minor="2_15"), ["loading"], "libsimcuda_torch_2_11.so: cannot open shared object file")
check(run("2.11.0", FAKE_BUILT_FOR="2.11.0", FAKE_FAILS="1"), STARTED, "did not start")
print("ok")
