"""Runs the example job unchanged and notes, at the start of every step, how many bytes the device's copy engines have
moved in each direction. The figures are the stand-in driver's own, not Spillway's. STEP_PROBE_FILE names the file.
"""

import ctypes
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "integration" / "examples"))

import train_gpt  # noqa: E402  (the path comes first)

DEVICES, DIRECTIONS = 8, 4
HTOD, DTOH = 0, 1


class Stats(ctypes.Structure):
    """simcuda_stats of integration/simcuda/driver/simcuda.h."""

    _fields_ = [
        ("struct_bytes", ctypes.c_size_t),
        ("physical_bytes", ctypes.c_uint64 * DEVICES),
        ("peak_physical_bytes", ctypes.c_uint64 * DEVICES),
        ("missed_accesses", ctypes.c_uint64),
        ("misuses", ctypes.c_uint64),
        ("launches", ctypes.c_uint64),
        ("copies", ctypes.c_uint64),
        ("memsets", ctypes.c_uint64),
        ("copied_bytes", ctypes.c_uint64 * DIRECTIONS),
    ]


def stand_in_driver():
    """The driver that this process has loaded already, below Spillway if that is there too.

    Asked for by its name the driver would be Spillway's; the loader knows the same file under any other name.
    """
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split()[-1] for line in maps if "/simcuda/libcuda.so" in line}
    if len(paths) != 1:
        raise SystemExit(f"step_probe: expected one stand-in driver in this process, found {sorted(paths)}")
    with open(paths.pop(), "rb") as file:
        return ctypes.CDLL(f"/proc/self/fd/{file.fileno()}")


def read_stats(driver):
    stats = Stats(struct_bytes=ctypes.sizeof(Stats))
    if driver.simcuda_get_stats(ctypes.byref(stats)) != 0:
        raise SystemExit("step_probe: simcuda_get_stats failed")
    return {"htod_bytes": stats.copied_bytes[HTOD], "dtoh_bytes": stats.copied_bytes[DTOH], "launches": stats.launches}


def main():
    notes = []
    unobserved = train_gpt.train_step

    def observed(*arguments):
        # The loss of the step before has been read, so everything it launched has run.
        notes.append(read_stats(stand_in_driver()))
        return unobserved(*arguments)

    train_gpt.train_step = observed
    status = train_gpt.main()
    Path(os.environ["STEP_PROBE_FILE"]).write_text(json.dumps(notes), encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
