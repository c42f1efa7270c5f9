"""Runs one command of a GPU session: its output in a log, cut off after its time, and what a cut one was doing kept.

A command that does not end is looked at from outside: /proc has each thread's name, wait and system call, and its kernel
stack where that may be read; gdb, eu-stack or the CUDA toolkit's cuda-gdb, where the machine has one of them and it may
attach, the stacks of its C and C++. Then it is told to abort, on which Python prints the stacks of all its threads
(PYTHONFAULTHANDLER). Spillway's own lines about waits of 10 s and more are in the log by then, and its metrics file says which
waits are under way.

No wait here is without an end: a process that the kernel's driver holds outlives even SIGKILL, and is left behind.
"""

import contextlib
import dataclasses
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fakes"))

from wait_until import wait_until  # noqa: E402  (the path comes first)

GRACE = 10  # seconds from the abort to the kill, and from the kill on
STACKS = 30  # seconds for the native stacks of a command's processes: reading the symbols of PyTorch takes some of them
GDB = ("--batch", "--nx", "-ex", "set pagination off", "-ex", "thread apply all backtrace 60")
DEBUGGERS = {"gdb": GDB, "eu-stack": ("-n", "60"), "cuda-gdb": GDB}  # in the order of choice; each with its arguments
TOOLKITS = Path("/usr/local")  # where CUDA's lie
LEAST = 2  # seconds: with less of the session's time left nothing is begun


@dataclasses.dataclass
class Ended:
    """How a command ended."""

    status: int  # negative: the signal that ended it
    seconds: float
    text: str  # its output
    cut: bool = False  # it did not end by itself
    out_of_time: bool = False  # ... or was not begun, since the session's time was over: that says nothing about it


def read(path):
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        return f"({error.strerror})"


def family(pid):
    """The process and those that it started, theirs included."""
    found = [pid]
    for each in found:
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            found += [int(child) for child in read(children).split() if child.isdigit()]
    return found


def threads(pid):
    """What each thread of a process does, as the kernel sees it."""
    # Not its command line: that lies in its memory, and to read it waits for a lock that a hung driver call may hold.
    lines = [f"process {pid}: {read(f'/proc/{pid}/comm')}"]
    for task in sorted(Path(f"/proc/{pid}/task").glob("*"), key=lambda path: int(path.name)):
        state = [line for line in read(task / "status").splitlines() if line.startswith(("State", "voluntary"))]
        lines.append(f"  thread {task.name} {read(task / 'comm')}: {'; '.join(' '.join(line.split()) for line in state)}")
        lines.append(f"    waits in {read(task / 'wchan')}, system call {read(task / 'syscall')}")
        lines += [f"    {line}" for line in read(task / "stack").splitlines()]
    return lines


def find_debugger():
    """The path of the first of DEBUGGERS that this machine has; None without. CUDA's is often outside of PATH."""
    toolkits = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    toolkits += [TOOLKITS / "cuda", *sorted(TOOLKITS.glob("cuda-*"), reverse=True)]
    folders = os.pathsep.join([os.environ.get("PATH", os.defpath), *(str(toolkit / "bin") for toolkit in toolkits)])
    return next(filter(None, (shutil.which(name, path=folders) for name in DEBUGGERS)), None)


def native_stacks(pid, seconds):
    """The stacks of C and C++ of a process's threads, or why there are none."""
    if seconds < 1:
        return [f"process {pid}: no native stacks, since the time is over"]
    path = find_debugger()
    if path is None:
        return [f"process {pid}: no native stacks, since this machine has none of {', '.join(DEBUGGERS)}"]
    # Not subprocess.run, which waits without an end for what it has killed.
    command = ["timeout", "-k", "1", str(math.ceil(seconds)), path, *DEBUGGERS[Path(path).name], "-p", str(pid)]
    try:
        debugger = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                    start_new_session=True)  # fmt: skip
    except OSError as error:
        return [f"process {pid}: no native stacks: {error}"]
    try:
        text = debugger.communicate(timeout=seconds + 3)[0]
    except subprocess.TimeoutExpired:
        debugger.kill()
        text = b"it does not end"
    signal_to(pid, signal.SIGCONT)  # a debugger that was cut off leaves it stopped
    return [f"process {pid}, by {Path(path).name}:", text.decode(errors="replace").strip()]


def stop(child, log, stacks=STACKS):
    """Writes down what a command that does not end is doing, and ends it. `stacks`: seconds for native stacks."""
    stacks_end = time.monotonic() + stacks
    members = family(child.pid)
    with log.open("a", encoding="utf-8") as out:
        out.write("\n==== cut off: it has not ended in its time; what its threads do\n")
        for pid in members:
            out.write("\n".join(threads(pid)) + "\n")
            out.flush()
        for pid in members:
            out.write("\n".join(native_stacks(pid, stacks_end - time.monotonic())) + "\n")
            out.flush()
        out.write("==== and by its own account\n")
    for pid in reversed(members):
        signal_to(pid, signal.SIGABRT)
    until = time.monotonic() + GRACE  # long enough for Python to print its stacks
    wait(child, GRACE)
    # The command's own children outlive it.
    wait_until(lambda: not any(lives(pid) for pid in members), until - time.monotonic())
    for pid in reversed(members):
        signal_to(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)  # where /proc does not tell of children
    wait(child, GRACE)


def signal_to(pid, number):
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def lives(pid):
    state = re.search(r"^State:\s*(\S)", read(f"/proc/{pid}/status"), re.MULTILINE)
    return state is not None and state[1] not in "ZX"


def wait(child, seconds):
    """Whether it ended in that time."""
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def end(child, seconds):
    """Waits for a process that has been told to end, then kills it."""
    if not wait(child, seconds):
        child.kill()
        wait(child, GRACE)


def wait_while(child, limit, left, more):
    """Waits for its end for limit + more() seconds, asked anew when they are over, but not longer than `left`. Whether it ended,
    and the limit as it was at last."""
    start = time.monotonic()
    while True:
        allowed = limit + more()
        over = min(allowed, left) - (time.monotonic() - start)
        if over <= 0:
            return False, allowed
        if wait(child, over):
            return True, allowed


@contextlib.contextmanager
def held(paths, log):
    """The device's files stay open meanwhile: where nothing else has them open, the driver may set the GPU up for each process
    anew, for seconds. In a process of its own, since an open may hang."""
    if not paths:
        yield None
        return
    script = 'for path; do exec {held}<>"$path"; done; echo held; exec cat'
    with log.open("w", encoding="utf-8") as out:
        holder = subprocess.Popen(["bash", "-c", script, "hold", *paths], stdin=subprocess.PIPE, stdout=out, stderr=out)
    try:
        yield holder
    finally:
        holder.stdin.close()
        end(holder, 2)


def run(command, log, limit, environment=None, stdin=None, left=math.inf, more=lambda: 0.0):
    """Runs it to its end, or for `limit` seconds and those that more() gives by then, or for those that are `left` of the session."""
    env = {**(os.environ if environment is None else environment), "PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1"}
    start = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    if left < LEAST:
        log.write_text("not begun: the session's time is over\n", encoding="utf-8")
        return Ended(-signal.SIGKILL, 0.0, "", cut=True, out_of_time=True)
    with log.open("a", encoding="utf-8") as out:  # appended to: what is kept of a hang goes between its lines
        child = subprocess.Popen([str(part) for part in command], env=env, stdin=stdin or subprocess.DEVNULL, stdout=out,
                                 stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
    try:
        done, limit = wait_while(child, limit, left, more)
        if not done:
            stop(child, log, min(STACKS, left - limit))  # what the session's own end cuts off is no hang
    except BaseException:
        stop(child, log, stacks=0)
        raise
    status = -signal.SIGKILL if child.returncode is None else child.returncode
    return Ended(status, time.monotonic() - start, read(log), not done, not done and left < limit)
