"""What the tests of PyTorch's allocator share: loading the fake engine, and runs of this file without it."""

import ctypes
import json
import os
import subprocess
import sys
import unittest

import torch

MIB = 1 << 20
BUDGET = 256 * MIB


class FakeEngine:
    """The C++ stand-in behind spillway.h; installed before CUDA starts in this process."""

    def __init__(self, budget=BUDGET, release=torch.__version__):
        self.library = ctypes.CDLL(os.environ["FAKE_ENGINE"])
        self.library.fake_install.restype = ctypes.c_char_p
        self.library.fake_install.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint64]
        self.library.fake_count.restype = ctypes.c_uint64
        self.library.fake_count.argtypes = [ctypes.c_char_p]
        self.library.fake_owns.argtypes = [ctypes.c_uint64]
        self.error = self.library.fake_install(os.environ["ALLOCATOR_LIBRARY"].encode(), release.encode(), budget).decode()

    def count(self, what):
        return self.library.fake_count(what.encode())

    def owns(self, tensor):
        return bool(self.library.fake_owns(tensor.untyped_storage().data_ptr()))

    def fail(self, result):
        """What allocations and empty_cache answer from now on; 0: they work."""
        self.library.fake_fail(result)

    def end(self):
        self.library.fake_end()


_engine = None


def engine():
    """The process's fake engine; the first call installs it."""
    global _engine
    if _engine is None:
        _engine = FakeEngine()
        if _engine.error:
            raise RuntimeError(_engine.error)
    return _engine


def block(mib, **options):
    """A CUDA tensor of that many MiB."""
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device="cuda", **options)


def figure(name):
    return torch.cuda.memory_stats()[name]


class TorchTest(unittest.TestCase):
    """Starts from an allocator without blocks of the test before, and with fresh peaks."""

    def setUp(self):
        self.engine = engine()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.reset_accumulated_memory_stats()


def run_python(code, variables=None, fake=True):
    """Runs `code` in a fresh process and returns (exit status, standard output, standard error)."""
    prelude = "import support, torch, json\n" + ("support.engine()\n" if fake else "")
    environment = dict(os.environ, PYTHONPATH=os.path.dirname(os.path.abspath(__file__)), **(variables or {}))
    done = subprocess.run(
        [sys.executable, "-c", prelude + code], env=environment, capture_output=True, text=True, timeout=200
    )
    return done.returncode, done.stdout, done.stderr


def answer_of(code, variables=None, fake=True):
    """The JSON that `code` prints as its last line, in a fresh process that must succeed."""
    status, output, errors = run_python(code, variables, fake)
    if status != 0:
        raise AssertionError(f"exit {status}\n{output[-300:]}\n{errors[-3000:]}")
    return json.loads(output.strip().splitlines()[-1])
