"""Imports PyTorch and the example job once, then runs the job in a forked child for each line on standard input.

A line is "FOLDER LOG": the child's SPILLWAY_DIRS and the file for its output. The answers on standard output are
"started PID" and "ended PID STATUS" (of waitpid). Nothing here touches CUDA before the fork, so each child is to
Spillway what a new process is. The arguments are those of train_gpt.py.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "integration" / "examples"))

import train_gpt  # noqa: E402  (the path comes first)

WITH_HANDLER = "handler"  # the child says what it does at SIGTERM, so that the parent knows that it listens


class Planted(Exception):
    """What the parent asks for with SIGUSR2."""


def install_ends():
    """SIGUSR2 raises an exception where the job is; with a second word in the line SIGTERM ends it by sys.exit."""
    wanted = []

    def raise_it():
        raise SystemExit(3) if wanted[0] == signal.SIGTERM else Planted("planted by the test")

    def on_signal(number, frame):
        wanted.append(number)
        raise_it()

    unguarded = train_gpt.train_step

    def guarded(*arguments):
        if wanted:  # raised inside a destructor or a callback, Python drops an exception
            raise_it()
        return unguarded(*arguments)

    train_gpt.train_step = guarded
    return on_signal


def die_with_parent():
    """A test that is stopped leaves no job that goes on for ever."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def become_job(folder, log, ends):
    die_with_parent()
    os.setpgid(0, 0)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ["SPILLWAY_DIRS"] = folder
    on_signal = install_ends()
    signal.signal(signal.SIGUSR2, on_signal)
    if ends == WITH_HANDLER:
        signal.signal(signal.SIGTERM, on_signal)


def serve():
    """Returns in each child; in the parent, at the end of the input."""
    for line in sys.stdin:
        folder, log, ends = line.split()
        child = os.fork()
        if child == 0:
            become_job(folder, log, ends)
            return True
        print(f"started {child}", flush=True)
        _, status = os.waitpid(child, 0)
        print(f"ended {child} {status}", flush=True)
    return False


if __name__ == "__main__":
    die_with_parent()
    if serve():
        sys.exit(train_gpt.main())
