"""tests/gpu/run.py and bench/gpu/run.py: a program that hangs or cannot be started, and an error of their own, lose no report."""

import contextlib
import importlib.util
import io
import json
import os
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "gpu"))

import conf_python
import run


def load(path):
    spec = importlib.util.spec_from_file_location("bench_run", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class RunTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.has_gpu, self.grown = True, []
        out = contextlib.redirect_stdout(io.StringIO())
        self.out = out.__enter__()
        self.addCleanup(out.__exit__, None, None, None)

    def program(self, name, text):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def report(self, module, only):
        """What it wrote, and its exit status."""
        command = ["run.py", "--build", str(self.folder), "--only", only, "--json", str(self.folder / "report.json")]
        with mock.patch.object(sys, "argv", command), mock.patch.object(run, "machine_words", lambda _: ["a machine"]), \
                mock.patch.object(run.job, "has_gpu", lambda: self.has_gpu), \
                mock.patch.object(run.host_memory, "grow", lambda: self.grown.append(1)), contextlib.redirect_stderr(io.StringIO()):  # fmt: skip
            status = module.main()
        return json.loads((self.folder / "report.json").read_text()), status

    def test_a_program_that_hangs_loses_no_report(self):
        bench = load(ROOT / "bench" / "gpu" / "run.py")
        self.program("bin/gpu_driver_bench", "echo has begun; exec tail -f /dev/null")
        start = time.monotonic()
        with mock.patch.object(bench, "SECONDS", 0.5):
            report, status = self.report(bench, "driver,launch")
        self.assertLess(time.monotonic() - start, 50)
        self.assertEqual((status, report["driver"]), (1, None))
        self.assertIn("timed out after 0.5 seconds", report["problems"][0])
        self.assertIn("has begun", self.out.getvalue())
        self.assertNotIn("launch", report)

    def test_a_program_that_cannot_be_started_loses_no_report(self):
        report, status = self.report(run, "self-test")
        self.assertEqual((status, len(report["problems"])), (1, 2))
        self.assertIn("No such file", report["problems"][0])

    def test_a_machine_without_a_device_is_told_and_its_memory_is_left_alone(self):
        self.program("tests/gpu_self_test", "exit 2")
        for self.has_gpu in (True, False):
            with self.assertRaises(SystemExit) as end:
                self.report(run, "self-test")
            self.assertEqual(end.exception.code, run.NO_DEVICE)
        self.assertEqual(len(self.grown), 1)

    def test_an_error_in_one_part_leaves_the_others(self):
        self.program("tests/gpu_self_test", "exit 0")
        with mock.patch.object(run, "audit", lambda _: 1 / 0), mock.patch.object(run, "llama", lambda it: it.expect(False, "seen")):
            report, status = self.report(run, "self-test,audit,llama")
        self.assertEqual((status, report["problems"]), (1, ["audit: ZeroDivisionError: division by zero", "seen"]))

    def test_the_self_test_spills_where_it_is_told(self):
        self.program("tests/gpu_self_test", 'test "$SPILLWAY_GPU_TEST_DIR$SPILLWAY_TRUST" = /nvme0')
        with mock.patch.dict(os.environ, {"SPILLWAY_GPU_TEST_DIR": "/nvme0", "SPILLWAY_TRUST": "strict"}):
            self.assertEqual(self.report(run, "self-test")[1], 0)


class ConfPythonTest(unittest.TestCase):
    def test_an_environment_that_was_left_halfway_is_made_anew(self):
        with tempfile.TemporaryDirectory() as folder:
            build = Path(folder) / "build"
            (build / "python" / "spillway").mkdir(parents=True)
            with self.assertRaises(FileNotFoundError):  # the hook is not there
                conf_python.python_with_start_up(build, Path(folder))
            (build / "python" / "spillway_start_up.pth").write_text("import os\n")
            python = Path(conf_python.python_with_start_up(build, Path(folder)))
            self.assertTrue(list(python.parents[1].glob("lib/python*/site-packages/spillway_start_up.pth")))

    def test_what_the_command_said_is_told(self):
        with self.assertRaisesRegex(RuntimeError, "ends with 3: no such module"):
            conf_python.output_of(sys.executable, "-c", "print('no such module'); raise SystemExit(3)")


if __name__ == "__main__":
    unittest.main()
