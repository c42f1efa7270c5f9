"""How the stand-in runtime reaches the driver, seen from the driver's side, and that it stays away until then.

  runtime_lookup_test.py LIBRARY ENTRIES LOOKUP_DRIVER_DIRECTORY
LOOKUP_DRIVER_DIRECTORY holds a libcuda.so.1 that logs each look-up and has no device.
"""

import ctypes.util
import os
import re
import subprocess
import sys

LIBRARY, ENTRIES, DRIVER_DIRECTORY = sys.argv[1:4]

CALLS = """
import ctypes, sys
runtime = ctypes.CDLL(sys.argv[1])
runtime.cudaGetErrorName.restype = ctypes.c_char_p
count = ctypes.c_int(7)
{calls}
"""


def run(command, **environment):
    full = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
    full.update(environment)
    return subprocess.run(command, env=full, capture_output=True, text=True, timeout=60)


def run_calls(calls, **environment):
    return run([sys.executable, "-c", CALLS.format(calls=calls), LIBRARY], **environment)


def check(condition, text):
    if not condition:
        sys.exit(f"FAILED: {text}")


def look_ups_are_as_nvidias():
    result = run_calls("""
for _ in range(2):
    error = runtime.cudaGetDeviceCount(ctypes.byref(count))
    print(error, count.value, runtime.cudaGetErrorName(error).decode())
version = ctypes.c_int()
print(runtime.cudaDriverGetVersion(ctypes.byref(version)), version.value)
""", LD_LIBRARY_PATH=DRIVER_DIRECTORY)
    check(result.stdout.splitlines() == ["100 0 cudaErrorNoDevice"] * 2 + ["0 13000"],
          f"answers of the runtime: {result.stdout!r} {result.stderr[-500:]!r}")
    log = result.stderr.splitlines()
    check(log[0] == "look-up cuGetProcAddress 12000 0", f"first look-up: {log[0]}")
    check("direct cuInit" not in log, "cuInit was not taken from cuGetProcAddress")
    check(log.count("call cuInit 0") == 1, "cuInit is called once")
    with open(ENTRIES) as file:
        rows = re.findall(r"^DRIVER_ENTRY\((\w+), (\d+), (\d+)\)", file.read(), re.M)
    expected = {f"look-up cu{name} {version} 0" for name, version, _ in rows}
    expected |= {f"look-up cu{name} {version} 2" for name, _, version in rows if version != "0"}
    seen = {line for line in log if line.startswith("look-up") and "cuGetProcAddress" not in line}
    check(len(rows) > 90 and seen == expected, f"look-ups differ: {sorted(seen ^ expected)[:5]}")


def without_a_driver():
    if ctypes.util.find_library("cuda"):
        print("this machine has a driver: the case without one is left out")
        return
    result = run_calls("""
print(runtime.cudaGetDeviceCount(ctypes.byref(count)), count.value)
print(runtime.cudaPeekAtLastError(), runtime.cudaGetLastError(), runtime.cudaGetLastError())
version = ctypes.c_int(7)
print(runtime.cudaDriverGetVersion(ctypes.byref(version)), version.value)
""")
    check(result.stdout.split("\n")[:3] == ["35 0", "35 35 0", "0 0"], f"without a driver: {result.stdout!r}")


def a_process_without_cuda_sees_nothing():
    result = run(["bash", "-c", "cat /proc/$$/maps; echo threads $(ls /proc/$$/task | wc -l)"],
                 LD_PRELOAD=LIBRARY, LD_LIBRARY_PATH=DRIVER_DIRECTORY)
    check(LIBRARY.rsplit("/", 1)[1] in result.stdout, "the preload was not loaded")
    check("libcuda.so.1" not in result.stdout, "the driver was opened in a process without CUDA")
    check("threads 1" in result.stdout, "a thread was started")
    check(result.stderr == "", f"output in a process without CUDA: {result.stderr!r}")


look_ups_are_as_nvidias()
without_a_driver()
a_process_without_cuda_sees_nothing()
print("ok")
