"""What a refused launch or copy raises, in whole processes: PyTorch on a device that is too small for one launch. The table
in docs/limits-integration.md ("What a refused call raises") has a test here for each row that runs on the stand-in
device."""

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BUILD = os.environ["SPILLWAY_BUILD"]
PYTHON = os.environ["SPILLWAY_TEST_PYTHON"]
CHECKED_CALLS = os.environ["CHECKED_CALLS"]

SETTINGS = {"gpu_memory": "100MiB", "host_memory": "600MiB", "dirs": "none", "reach": "off"}

# A launch that names a, b and c does not fit, nor does a copy from b to a while others hold memory.
PRELUDE = """
import ctypes, json, os, sys, threading
import torch, spillway
MIB = 1 << 20
def tensor(mib): return torch.zeros(mib * MIB // 4, device="cuda")
def attempt(body):
    try:
        body()
    except Exception as error:
        return {"types": [t.__name__ for t in type(error).__mro__], "arguments": list(error.args), "text": str(error)}
    return None
a, b, c = tensor(40), tensor(40), tensor(40)
torch.cuda.synchronize()
def others():
    with torch.cuda.use_mem_pool(spillway.unmanaged_pool()):
        return tensor(50)
def last_cuda_error(): return ctypes.CDLL("libcudart.so.13").cudaPeekAtLastError()
def answer(**what):
    torch.cuda.synchronize()
    print(json.dumps(what))
"""

EXTENSION = """
held = others()
calls = ctypes.CDLL(os.environ["CHECKED_CALLS"])
COPY = (a.data_ptr(), b.data_ptr(), a.nbytes)
def call(name, *arguments):
    function = getattr(calls, name)
    function.restype = ctypes.c_char_p
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t][: len(arguments)]
    kind, text = function(*arguments).decode().split("|", 1)
    return {"kind": kind, "text": text}
calls.unchecked.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
"""


def run(code, by="preload"):
    names = ("SPILLWAY", "PYTORCH_", "LD_PRELOAD")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(names)}
    environment.update(PYTHONPATH=str(ROOT / "integration" / "python"), OMP_NUM_THREADS="1", CHECKED_CALLS=CHECKED_CALLS)
    if by == "preload":
        environment.update({f"SPILLWAY_{name.upper()}": value for name, value in SETTINGS.items()})
        environment["LD_PRELOAD"] = f"{BUILD}/lib/libspillway.so"
    else:  # as the hook of the installed package does at the interpreter's start
        environment["SPILLWAY_LIBRARY_DIR"] = f"{BUILD}/lib"
        environment["PYTORCH_CUDA_ALLOC_CONF"] = ",".join(["backend:spillway", *(f"{k}:{v}" for k, v in SETTINGS.items())])
        code = "import spillway.start_up\nspillway.start_up.run()\n" + code
    command = [f"{BUILD}/bin/simcuda-run", "--memory", "256MiB", "--", PYTHON, "-B", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250)
    if done.returncode != 0:
        raise AssertionError(f"exit {done.returncode}\n{done.stdout[-500:]}\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1]), done.stderr


class RefusedCallsTest(unittest.TestCase):
    def expect_out_of_memory(self, error, words):
        self.assertIsNotNone(error, "it was not refused, so nothing was shown")
        self.assertEqual(error["types"][0], "OutOfMemoryError", error)
        self.assertIn("RuntimeError", error["types"])
        self.assertEqual(len(error["arguments"]), 1)
        self.assertTrue(error["text"].startswith("CUDA out of memory. "), error["text"])
        self.assertEqual(error["text"].count("Spillway:"), 1, error["text"])
        self.assertIn(words, error["text"])

    def test_a_launch_and_a_copy(self):
        code = PRELUDE + (
            "launch = attempt(lambda: torch.add(a, b, out=c)); said = spillway.last_error(); left = last_cuda_error()\n"
            "again = attempt(lambda: a.add_(1)); held = others()\n"
            "copy = attempt(lambda: a.copy_(b)); said_of_copy = spillway.last_error()\n"
            "answer(launch=launch, said=said, left=left, again=again, copy=copy, said_of_copy=said_of_copy,"
            " sum=b.sum().item())"
        )
        for by in ("preload", "conf"):
            with self.subTest(by=by):
                found, errors = run(code, by)
                self.expect_out_of_memory(found["launch"], "names 3 blocks of together 120 MiB")
                self.expect_out_of_memory(found["copy"], "names 2 blocks of together 80 MiB")
                self.assertTrue(found["launch"]["text"].endswith("\nSpillway: " + found["said"]), found)
                self.assertTrue(found["copy"]["text"].endswith("\nSpillway: " + found["said_of_copy"]), found)
                self.assertEqual((found["left"], found["again"], found["sum"]), (0, None, 0.0))
                self.assertEqual(errors.count("a launch was refused with out-of-memory"), 2, errors)

    def test_another_thread_raises_its_own(self):
        code = PRELUDE + (
            "seen = []\n"
            "def work(): seen.append(attempt(lambda: torch.add(a, b, out=c)))\n"
            "threads = [threading.Thread(target=work) for _ in range(3)]\n"
            "for thread in threads: thread.start()\n"
            "for thread in threads: thread.join()\n"
            "answer(seen=seen)"
        )
        found, _ = run(code)
        for error in found["seen"]:
            self.expect_out_of_memory(error, "names 3 blocks")

    def test_a_refused_kernel_of_the_backward_pass(self):
        code = PRELUDE + (
            "x = torch.ones(4, device='cuda', requires_grad=True)\n"
            "class Three(torch.autograd.Function):\n"
            "    @staticmethod\n"
            "    def forward(ctx, x): return x.view_as(x)\n"
            "    @staticmethod\n"
            "    def backward(ctx, grad): return torch.add(a, b, out=c)\n"
            "answer(error=attempt(lambda: Three.apply(x).sum().backward()))\n"
            # PyTorch's backward thread may still hold the exception: to take the GIL for its end while Python shuts down
            # would end the process ("terminate called without an active exception").
            "sys.stdout.flush()\n"
            "os._exit(0)"
        )
        found, _ = run(code)
        self.expect_out_of_memory(found["error"], "names ")

    def test_other_errors_are_pytorchs(self):
        code = PRELUDE + EXTENSION + (
            "pinned = lambda: torch.empty(1 << 45, dtype=torch.uint8, pin_memory=True)\n"
            "before = attempt(pinned)\n"
            "refused = calls.unchecked(*COPY)  # goes unseen; the next allocation ends what is known of it\n"
            "attempt(lambda: tensor(2))\n"
            "after = attempt(pinned)\n"
            "answer(before=before, refused=refused, after=after, assert_=call('check_of', 710), none=call('check_of', 0),"
            " memory=call('check_of', 2))"
        )
        found, _ = run(code)
        self.assertEqual(found["refused"], 2)
        for error in (found["before"], found["after"]):
            self.assertEqual(error["types"][0], "AcceleratorError", error)
            self.assertNotIn("Spillway", error["text"])
        self.assertEqual([found[k]["kind"] for k in ("assert_", "none", "memory")], ["AcceleratorError", "nothing", "AcceleratorError"])
        self.assertIn("device-side assert", found["assert_"]["text"])

    def test_a_batch_is_halved_until_it_fits(self):
        code = PRELUDE + (
            "del a, b, c\n"
            "tried = []\n"
            "def step(mib):\n"
            "    tried.append(mib)\n"
            "    x, y = tensor(mib), tensor(mib)\n"
            "    torch.cuda.synchronize()\n"
            "    torch.add(x, y, out=torch.empty_like(x))\n"
            "    torch.cuda.synchronize()\n"
            "mib = 40\n"
            "while True:\n"
            "    try:\n"
            "        step(mib)\n"
            "        break\n"
            "    except torch.cuda.OutOfMemoryError:\n"
            "        mib //= 2\n"
            "answer(tried=tried)"
        )
        found, _ = run(code)
        self.assertEqual(found["tried"], [40, 20])

    def test_accelerates_batch_finder(self):
        look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('accelerate') is None)"
        if subprocess.run([PYTHON, "-c", look]).returncode != 0:
            self.skipTest("accelerate is not installed")
        code = PRELUDE + (
            "from accelerate.utils import find_executable_batch_size\n"
            "del a, b, c\n"
            "tried = []\n"
            "@find_executable_batch_size(starting_batch_size=40)\n"
            "def train(batch_size):\n"
            "    tried.append(batch_size)\n"
            "    x, y = tensor(batch_size), tensor(batch_size)\n"
            "    torch.cuda.synchronize()\n"
            "    torch.add(x, y, out=torch.empty_like(x))\n"
            "    torch.cuda.synchronize()\n"
            "train()\n"
            "answer(tried=tried)"
        )
        found, errors = run(code)
        self.assertEqual(found["tried"][0], 40)
        self.assertLess(found["tried"][-1], 33, errors)
        self.assertGreater(len(found["tried"]), 1)


class TableTest(unittest.TestCase):
    """The rows of the table: who checks, what is raised, and what its text holds."""

    ROWS = (
        ("checked_by_pytorch", "OutOfMemoryError", "CUDA out of memory. "),
        ("checked_as_a_launch", "OutOfMemoryError", "CUDA out of memory. "),
        ("checked_by_itself", "Error", "copy failed: out of memory"),
    )

    def test_rows(self):
        code = PRELUDE + EXTENSION + (
            f"rows = {{name: call(name, *COPY) for name in {[row[0] for row in self.ROWS]!r}}}\n"
            "answer(rows=rows, driver=calls.unchecked(*COPY), said=spillway.last_error())"
        )
        for by in ("preload", "conf"):
            found, errors = run(code, by)
            for name, kind, text in self.ROWS:
                with self.subTest(by=by, row=name):
                    row = found["rows"][name]
                    self.assertEqual(row["kind"], kind, row)
                    self.assertIn(text, row["text"])
                    self.assertEqual(row["text"].count("Spillway:"), 1 if kind == "OutOfMemoryError" else 0, row)
            self.assertEqual(found["driver"], 2)  # CUDA_ERROR_OUT_OF_MEMORY, for whoever calls the driver itself
            self.assertIn("names 2 blocks", found["said"])
            self.assertEqual(errors.count("a launch was refused with out-of-memory"), 4, errors)

    def test_the_row_of_cublas(self):
        code = PRELUDE + EXTENSION + "answer(row=call('checked_as_cublas') if hasattr(calls, 'checked_as_cublas') else None)\n"
        for by in ("preload", "conf"):
            row = run(code, by)[0]["row"]
            if row is None:
                self.skipTest("no nv/target beside this PyTorch's CUDA headers, so cuBLAS's header cannot be compiled")
            self.assertEqual(row["kind"], "Error")
            self.assertIn("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling", row["text"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
