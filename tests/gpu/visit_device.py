"""Keeps the GPU set up between the processes of a visit.

Where nothing else has the device's files open, the driver sets the GPU up for each process anew, for seconds. Stage 1 starts some
60 processes. To hold the files open changes no setting, and ends with the visit.
"""

import contextlib
import glob
import subprocess
import sys

import visit_watch as watch

HOLD = """
import os, sys
for path in sys.argv[1:]:
    try:
        os.open(path, os.O_RDWR)
    except OSError as error:
        print(path, error, flush=True)
print("held", flush=True)
sys.stdin.read()
"""


def device_files():
    return sorted([*glob.glob("/dev/nvidiactl"), *glob.glob("/dev/nvidia[0-9]*")])


@contextlib.contextmanager
def held(paths, log):
    """The files stay open meanwhile, in a process of its own: an open may hang, and the visit must not."""
    if not paths:
        yield None
        return
    with log.open("w", encoding="utf-8") as out:
        holder = subprocess.Popen([sys.executable, "-c", HOLD, *paths], stdin=subprocess.PIPE, stdout=out, stderr=out)
    try:
        yield holder
    finally:
        holder.stdin.close()
        watch.end(holder, 2)
