"""Runs tests of a PyTorch source tree one by one, each in a child of its own that is forked from here.

    server.py TREE       commands on standard input, one JSON object a line; an answer for each on standard output

This process has imported what every test imports, but has not begun with CUDA: there is no context, no thread and no
block yet, and Spillway, where it is preloaded, has not opened its engine. So a child starts as clean as a new Python,
2 s of processor time earlier. Where an import has begun with CUDA after all, the server ends.

  {"list": FILE, "to": PATH}                              writes [[test, reason to skip or null], ...] to PATH
  {"run": FILE, "test": ID, "log": PATH, "seconds": N}    runs it as `python FILE -v ID` would

The answer has status (negative: the signal that ended the child), seconds, and timed_out.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import sys
import tempfile
import time
import unittest
from pathlib import Path

# What the tests and torch.testing import that does not ask for a device.
IMPORTED = (
    "numpy", "psutil", "expecttest", "hypothesis", "sympy", "tabulate", "torch", "torchvision", "torch._dynamo", "torch._decomp",
    "torch._refs", "torch._prims", "torch.export", "torch._functorch.aot_autograd", "torch._inductor.config",
    "torch.distributed", "setuptools", "pkg_resources", "torch.onnx", "torch.utils.viz._cycles", "torch.profiler",
)  # fmt: skip
# Libraries that are opened when CUDA begins.
BEGUN = ("libspillway_engine.so", "libsimcuda_torch")


def has_begun():
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    return [name for name in BEGUN if name in maps]


def test_cases(names):
    """Each test of a module's classes as Class.method, with the reason of a decorator that skips it, or None."""
    loader = unittest.TestLoader()
    classes = {kind for kind in names.values() if isinstance(kind, type) and issubclass(kind, unittest.TestCase)}
    for kind in sorted(classes, key=lambda kind: kind.__name__):
        for method in loader.getTestCaseNames(kind):
            marked = [what for what in (kind, getattr(kind, method)) if getattr(what, "__unittest_skip__", False)]
            yield f"{kind.__name__}.{method}", marked[0].__unittest_skip_why__ if marked else None


def in_child(order, tree):
    """What a child does; it ends as Python does after it."""
    file = tree / "test" / (order.get("list") or order["run"])
    sys.path[0] = str(file.parent)
    # PyTorch's list of tests that are disabled at the time is fetched otherwise: none is.
    Path(".pytorch-disabled-tests.json").write_text("{}", encoding="utf-8")
    if "list" in order:
        sys.argv = [str(file)]
        found = list(test_cases(runpy.run_path(str(file), run_name="listed")))
        Path(order["to"]).write_text(json.dumps(found), encoding="utf-8")
    else:
        sys.argv = [str(file), "-v", order["test"]]
        runpy.run_path(str(file), run_name="__main__")


def redirect(log):
    """The child's standard files: nothing to read, everything written to the log."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(out, 1)
    os.dup2(out, 2)


def await_end(child, seconds):
    """(status, whether it was killed for its time). Its own children end with it."""
    watch = os.pidfd_open(child)
    try:
        in_time = bool(select.select([watch], [], [], seconds)[0])
    finally:  # an interrupted server leaves no test behind, either
        os.close(watch)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), not in_time


def serve(orders, answer):
    """Yields in a child what it has to do; in the server it never yields."""
    for line in orders:
        order = json.loads(line)
        folder = tempfile.mkdtemp(prefix="pytorch-test-")
        begin = time.monotonic()
        child = os.fork()
        if child == 0:
            os.setsid()
            os.chdir(folder)
            redirect(order.get("log", os.devnull))
            return order
        status, timed_out = await_end(child, order.get("seconds", 300))
        shutil.rmtree(folder, ignore_errors=True)
        answer.write(json.dumps({"status": status, "timed_out": timed_out, "seconds": round(time.monotonic() - begin, 2)}) + "\n")
        answer.flush()
    return None


def main():
    tree = Path(sys.argv[1]).resolve()
    for name in IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if has_begun():
        sys.exit(f"an import has begun with CUDA: {' '.join(has_begun())}")
    gc.freeze()  # a child's collections leave alone what it shares with this process
    # The answers go to a file that children do not have as their standard output.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answer:
        os.set_inheritable(answer.fileno(), False)
        order = serve(sys.stdin, answer)
    if order is not None:
        in_child(order, tree)


if __name__ == "__main__":
    main()
