"""Whole stages of a visit as on a machine with a GPU, over programs that stand in for those of the build: nothing of it needs one."""

import contextlib
import importlib.metadata
import io
import json
import sys
import tarfile
import unittest
from pathlib import Path
from unittest import mock

from visit_test import Quiet  # (finds the modules of the visit)

import host_memory
import visit
import visit_device
import visit_jobs
import visit_rows
from visit_jobs_test import DOCTOR
from write_profile_test import REPORT

RATES = json.dumps({"path": "/var/tmp", "problem": None, **{side: {"late_bytes_per_second": 1e9} for side in ("write", "read")}})
# What is the same for all of them: the first word of the arguments chooses the answer.
PROGRAM = """#!{python}
import json, os, sys
answers = {answers!r}
with open({calls!r}, "a") as calls:
    print(os.path.basename(sys.argv[0]), *sys.argv[1:], file=calls)
if sys.argv[1:2] == ["--list"]:
    print("cuFuncGetName of function\\ncuFuncGetName of null")
elif "--list" in sys.argv:
    print("none\\ncuModuleLoadData")
elif "cuFuncGetName of null" in sys.argv:
    os.abort()
elif sys.argv[1:2] == ["full"]:
    print("taken 7", flush=True)
    sys.stdin.read()
elif sys.argv[-2] == "--json":
    open(sys.argv[-1], "w").write({report!r})
else:
    word = next((word for word in sys.argv[1:] if word in answers), "")
    print(answers[word])
"""
STALL = {call: {"calls": 3, "inside_us": 200_000, "longest_us": 9} for call in ("cuEventQuery", "cuLaunchKernel", "remap")}
LAUNCHES = [{"memory_bound_kernel": busy, "handle_bytes": handle, "launches": 20_000, "p50_us": 3, "p99_us": 4}
            for busy in (False, True) for handle in (0, 2 << 20, 64 << 20)]  # fmt: skip
LOADING = {"rows": [{"device_busy": busy, "load_us": 100, "find_us": 1, "first_launch_us": 9} for busy in (False, True)]}
COPIES = {"rows": [{"bytes": 1 << 20, **dict.fromkeys(
    ("out_gb_per_s", "in_gb_per_s", "out_beside_in_gb_per_s", "in_beside_out_gb_per_s"), 50.0)}]}  # fmt: skip
FACTS = {"latency": {"rows": LAUNCHES}, "copies": COPIES, "loading": LOADING, "stalls": STALL, "handles": {"result": 0},
         "tensor-map": {"word_0": 7, "address": 7}, "two-mappings": {"second_map": 0}, "pointers": {"answers": {}},
         "reserve": {"rows": [{"bytes": 1 << 40, "result": 0, "us": 7.0}]}, "retain": {"plain": {"result": 0}}}  # fmt: skip
JOB = {"spilled_bytes": 7, "budget_bytes": 7, "products": {"differences": 0, "rounds": 3}}


class StageTest(Quiet):
    def setUp(self):
        super().setUp()
        said = {**FACTS, "--spillway": JOB, "--blocks": JOB}
        answers = {"": "", "doctor": DOCTOR % RATES, **{word: f"RESULT {json.dumps(figures)}" for word, figures in said.items()}}
        driver = {**REPORT["driver"], "device": "NVIDIA H100 80GB HBM3"}
        text = PROGRAM.format(python=sys.executable, answers=answers, report=json.dumps(driver), calls=str(self.folder / "calls"))
        for name in ("bin/spillway", "bin/gpu_driver_bench", "tests/gpu_self_test", "tests/gpu_facts", "tests/gpu_plain_job"):
            path = self.folder / "build" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        (self.folder / "nvidia0").write_text("")

    def stage(self, number, *arguments):
        """Its rows by name, and its exit status."""
        home = self.folder / "home"
        command = ["visit.py", "--stage", str(number), "--build", str(self.folder / "build"), "--json", str(home / "report.json"),
                   "--archive", str(home / "all.tar.gz"), *arguments]  # fmt: skip
        none = mock.Mock(side_effect=importlib.metadata.PackageNotFoundError)
        with mock.patch.object(sys, "argv", command), mock.patch.object(visit_jobs.job, "has_gpu", lambda: True), \
                mock.patch.object(visit_device, "device_files", lambda: [str(self.folder / "nvidia0")]), \
                mock.patch.object(host_memory, "figures", lambda: (64 << 30, 1 << 30)), \
                mock.patch.object(importlib.metadata, "version", none), contextlib.redirect_stderr(io.StringIO()):  # fmt: skip
            status = visit.main()
        self.names = tarfile.open(home / "all.tar.gz").getnames()
        return {row["row"]: row for row in json.loads((home / "report.json").read_text())["rows"]}, status

    def test_the_facts(self):
        rows, status = self.stage(1, "--spill", str(self.folder))
        self.assertEqual({name: row for name, row in rows.items() if row["status"] == visit_rows.FAILED}, {})
        self.assertEqual((status, len(rows)), (0, 17))
        self.assertIn("of 20000 launches", rows["launch latency beside remapping"]["words"])
        self.assertIn("another form", rows["pointer attributes"]["words"])
        self.assertEqual(rows["wrong-kind handles"]["words"], "1 of 2 end the process: ['cuFuncGetName of null']")
        self.assertEqual(rows["hardware profile"]["words"], "hardware-profile.json, the rest as h100's")
        self.assertEqual(rows["a full GPU, default budget"]["status"], visit_rows.PASSED)
        self.assertIn("hardware-profile.json", self.names)
        calls = (self.folder / "calls").read_text().splitlines()
        self.assertRegex(calls[0], r"spillway doctor --dirs \S*/visit-")
        self.assertEqual([call for call in calls if "--small" in call or "simcuda" in call], [])

    def test_the_truth_without_pytorch(self):
        rows, status = self.stage(2, "--spill", str(self.folder / "not" / "there" / "yet"))
        self.assertEqual((status, rows["jobs of PyTorch"]["status"]), (0, visit_rows.MISSING))
        self.assertEqual({row["status"] for name, row in rows.items() if name.startswith("plain job")}, {visit_rows.PASSED})
        self.assertEqual(rows["disk of the spill files"]["words"], "/var/tmp: writes 1000 MB/s, reads 1000 MB/s")
        calls = (self.folder / "calls").read_text()
        self.assertIn("--rounds 3 --products 1 --blocks 64 --mib 42", calls)
        self.assertRegex(calls, r"spillway doctor --json --disk-seconds 4 --dirs \S*/yet/visit-")
        self.assertEqual(list((self.folder / "not" / "there" / "yet").iterdir()), [], "the spill folder is gone")

    def test_a_build_without_its_programs_is_failed_rows(self):
        for path in (self.folder / "build").glob("*/*"):
            path.unlink()
        for number in (1, 2, 4):
            rows, status = self.stage(number)
            self.assertEqual(status, 1)
            self.assertTrue(all("FileNotFoundError" in row["words"] for row in rows.values() if row["status"] == visit_rows.FAILED))
            self.assertFalse(any(name.startswith("stage ") for name in rows), "no row is lost by another's error")
        self.assertEqual(rows["a launch"]["status"], visit_rows.FAILED)


if __name__ == "__main__":
    unittest.main()
