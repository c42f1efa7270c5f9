"""Whole stages of a session as on a machine with a GPU, over programs that stand in for those of the build: nothing of it needs one."""

import contextlib
import dataclasses
import importlib.metadata
import io
import json
import sys
import tarfile
import unittest
from pathlib import Path
from unittest import mock

from visit_test import Quiet  # (finds the modules of the session)

import host_memory
import visit
import visit_facts
import visit_jobs
import visit_rows
from visit_jobs_test import DOCTOR, finished
from write_profile_test import DRIVER

RATES = json.dumps({"path": "/var/tmp", "problem": None, **{side: {"late_bytes_per_second": 1e9} for side in ("write", "read")}})
# What is the same for all of them: the first word of the arguments chooses the answer.
PROGRAM = """#!{python}
import json, os, sys
answers = {answers!r}
with open({calls!r}, "a") as calls:
    print(os.path.basename(sys.argv[0]), *sys.argv[1:], file=calls)
if sys.argv[-1] == "--list":
    print("none\\ncuModuleLoadData" if sys.argv[1] == "stalls" else "cuFuncGetName of function\\ncuFuncGetName of null")
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
DEVICE = {"description": "a GPU", "free_bytes": 80 << 30, "total_bytes": 80 << 30}
ESSENTIALS = {"device": DEVICE, "placement": {"rows": [{"hint": 0, "result": 0, "start": 0x302000000}, {"hint": 0x6A, "result": 2}]},
              "layouts": {"kernel": {"parameters": [[0, 8]]}}, "tensor-map": {"word_0": 7, "address": 7}, "hash": {"gb_per_s": 900.0},
              "pinning": {"pin_gb_per_s": 4.0},
              "pointers": {"answers": {kind: {"MAPPED": {"bytes": 1, "result": 0}, "range": 7} for kind in ("mapped", "freed")}}}  # fmt: skip
HOST = {"bytes": 8 << 20, "host_numa": {"gb_per_s": {"kernel_reads": 50.0}, "swap_us": 90.0, "direct_read_errno": 14},
        "host": {"cuMemCreate": 801}}  # fmt: skip
FACTS = {"latency": {"rows": LAUNCHES}, "copies": COPIES, "loading": LOADING, "stalls": STALL, "handles": {"result": 0},
         "device": DEVICE, visit_facts.ESSENTIALS: ESSENTIALS, "host-handle": HOST, "two-mappings": {"second_map": 0},
         "reserve": {"rows": [{"bytes": 1 << 40, "result": 0, "us": 7.0}]}, "retain": {"plain": {"result": 0}}}  # fmt: skip
JOB = {"spilled_bytes": 7, "fetched_bytes": 7, "seconds": 1.0, "budget_bytes": 7, "launch_ns": 900.0,
       "products": {"differences": 0, "rounds": 3}}  # fmt: skip
PAUSED = {"pause_seconds": 2.0, "resume_seconds": 1.0, "copied_bytes": 8e9, "clean_bytes": 0, "released_bytes": 8e9}
PAUSES = {"pauses": {"bytes": 8e9, "plain_copy_seconds": 1.0, "first": PAUSED, "changed": PAUSED,
                     "unchanged": {**PAUSED, "pause_seconds": 0.1, "copied_bytes": 0}}}  # fmt: skip


class StageTest(Quiet):
    def setUp(self):
        super().setUp()
        said = {**FACTS, "--spillway": JOB, "--blocks": JOB, "--pauses": PAUSES}
        answers = {"": "", "doctor": DOCTOR % RATES, **{word: f"RESULT {json.dumps(figures)}" for word, figures in said.items()}}
        driver = {**DRIVER, "device": "NVIDIA H100 80GB HBM3"}
        text = PROGRAM.format(python=sys.executable, answers=answers, report=json.dumps(driver), calls=str(self.folder / "calls"))
        for name in ("bin/spillway", "bin/gpu_driver_bench", "tests/gpu_self_test", "tests/gpu_facts", "tests/gpu_plain_job"):
            path = self.folder / "build" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        (self.folder / "nvidia0").write_text("")

    def stage(self, stage, *arguments, serves=False):
        """Its rows by name, and its exit status."""
        home = self.folder / "home"
        command = ["visit.py", "--stage", stage, "--build", str(self.folder / "build"), "--out", str(home), *arguments]
        none = mock.Mock(side_effect=importlib.metadata.PackageNotFoundError)
        with mock.patch.object(sys, "argv", command), mock.patch.object(visit_jobs.job, "has_gpu", lambda: True), \
                mock.patch.object(visit, "device_files", lambda: [str(self.folder / "nvidia0")]), \
                mock.patch.object(host_memory, "figures", lambda: (64 << 30, 1 << 30)), \
                mock.patch.object(visit.Visit, "serves_pytorch", lambda _visit: serves), \
                mock.patch.object(importlib.metadata, "version", none), contextlib.redirect_stderr(io.StringIO()):  # fmt: skip
            status = visit.main()
        self.names = tarfile.open(home / f"{stage}.tar.gz").getnames()
        return {row["row"]: row for row in json.loads((home / f"{stage}.json").read_text())["rows"]}, status

    def calls(self):
        return (self.folder / "calls").read_text().splitlines()

    def test_the_first(self):
        rows, status = self.stage("first", "--spill", str(self.folder))
        self.assertEqual({name: row for name, row in rows.items() if row["status"] == visit_rows.FAILED}, {})
        self.assertEqual(status, 0)
        self.assertIn("large jobs", rows["device"]["words"])
        for words in ("free 81920 MiB", "0x0: 0x302000000, 0x6a: error 2", "hash 900 GB/s", "pinning 4.0 GB/s", "[[0, 8]]"):
            self.assertIn(words, rows["essentials"]["words"])
        self.assertIn("swap 90 us, GB/s: kernel_reads 50.0; direct read: errno 14; host: create 801",
                      rows["a handle in host memory"]["words"])  # fmt: skip
        self.assertIn("of 20000 launches", rows["launch latency beside remapping"]["words"])
        self.assertIn("900 ns, 0 more", rows["a launch"]["words"])
        self.assertEqual(rows["hardware profile"]["words"], "hardware-profile.json, the rest as h100's")
        self.assertEqual({row["status"] for name, row in rows.items() if name.startswith("plain job")}, {visit_rows.PASSED})
        self.assertIn("hardware-profile.json", self.names)
        self.assertRegex(self.calls()[1], r"spillway doctor --disk-seconds 2 --dirs \S*/visit-")
        self.assertEqual([call for call in self.calls() if "--small" in call or "simcuda" in call], [])
        self.assertEqual([path for path in self.folder.iterdir() if path.name.startswith("visit-")], [], "the spill folder is gone")

    def test_the_second_after_a_good_first(self):
        self.stage("first")
        rows, status = self.stage("second")
        self.assertEqual((status, rows["a full GPU, default budget"]["status"]), (0, visit_rows.PASSED))
        self.assertEqual(rows["pause and resume"]["words"],
                         "8.0 GB: out in 2.00 s, 0.50 of a plain copy's speed, back in 1.00 s; the first time 2.00 s; unchanged 0.10 s with "
                         "0.0 GB copied; every word right")  # fmt: skip
        self.assertEqual(rows["disk of the spill files"]["words"], "/var/tmp: writes 1000 MB/s, reads 1000 MB/s")
        self.assertTrue(any("--rounds 3 --products 1 --blocks 64 --mib 42" in call for call in self.calls()))

    def test_words_that_no_row_has_are_an_error(self):
        self.assertEqual(self.stage("rest", "--only", "no such row")[1], visit.WRONG_ARGUMENT)
        self.assertEqual(self.stage("rest", "--only", "no such row,wrong-kind")[1], 0)

    def test_the_rest(self):
        rows, status = self.stage("rest")
        self.assertEqual(status, 0)
        self.assertEqual(rows["wrong-kind handles"]["words"], "1 of 2 end the process: ['cuFuncGetName of null']")

    def test_the_second_looks_for_what_was_wrong_with_a_job(self):
        row = next(row for row in visit.stages.first("large") if hasattr(row, "case"))
        case, way = row.case, row.ways[0]
        self.stage("first")
        report = json.loads((self.folder / "home" / "first.json").read_text())
        bad = {"row": f"{case.name}: {way.words()}", "status": "failed", "case": case.name, "way": dataclasses.asdict(way)}
        keys = dict.fromkeys(visit_jobs.job.KEYS) | {"peak_bytes": 1 << 30}
        uncapped = {"row": f"{case.name}: uncapped", "status": "measured", "keys": keys}
        (self.folder / "build" / "visit" / "first.json").write_text(json.dumps({**report, "rows": [uncapped, bad]}))
        asked = []

        def once_more(_jobs, case, way, _reference, label, **more):
            asked.append((case.name, label, more.get("prefix")))
            return "other bits", visit_jobs.watch.Ended(1, 1.0, "========= Invalid __global__ write\n========= ERROR SUMMARY: 1")

        with mock.patch.object(visit_jobs.Jobs, "once_more", once_more), mock.patch.object(visit, "find_sanitizer", lambda: "checker"):
            rows, _ = self.stage("second", serves=True)
        self.assertEqual([label for _, label, _ in asked], [*(f"with {name}" for name in visit_jobs.LADDER), "compute-sanitizer"])
        self.assertEqual(asked[-1][2][0], "checker")
        self.assertIn("ERROR SUMMARY: 1", rows[f"{case.name}: what is wrong, by compute-sanitizer"]["words"])

    def test_a_row_name_is_one_case(self):
        """The uncapped run of a name is what all its ways are compared with."""
        for stage in visit.stages.STAGES:
            for size in ("large", "small"):
                cases = {}
                for row in visit.stages.STAGES[stage](size):
                    if hasattr(row, "case"):
                        self.assertEqual(cases.setdefault(row.name, row.case), row.case, f"{stage}, {size}")

    def table(self, *lacking, size="large"):
        """The stage over runs that are made up: peers need half of the native 64 GiB. lacking: their packages are not there."""
        ways = []

        def train(_jobs, _label, case, way=None, peak=None, **_more):
            peer = case.arguments[-1] if "--peer" in case.arguments else None
            ways.extend([(case.name, way.share, peak)] if way else [])
            size, seconds = (32 << 30, [9.0, 3.0]) if peer else (int(peak * way.share / 100), [9.0, 2.4]) if way else (64 << 30, [9.0, 2.0])
            run = finished(peak=size, budget=size, status="failed" if peer in lacking else "ok")
            run.report["step_seconds"] = seconds
            run.log = f"No module named '{peer}'" if peer in lacking else ""
            return run, visit_jobs.watch.Ended(0, 1.0, "")

        with mock.patch.object(visit_jobs.Jobs, "train", train):
            rows, status = self.stage("table", "--size", size, serves=True)
        return rows, status, ways, (self.folder / "home" / "table.md").read_text()

    def test_the_table_gives_spillway_what_each_peer_needed(self):
        for size in ("large", "small"):
            rows, status, ways, page = self.table(size=size)
            self.assertEqual((status, {row["status"] for row in rows.values()}),
                             (0, {visit_rows.MEASURED, visit_rows.PASSED, visit_rows.QUOTED}))  # fmt: skip
            self.assertEqual([(name, round(share)) for name, share, _ in ways],
                             [("Qwen3-0.6B", 69), ("ViT-giant 1.1B", 50), *[("decoder 1B", 50)] * 2,
                              *[("decoder 1B that keeps activations", 50)] * 2])  # fmt: skip
        for line in ("| ViT-giant 1.1B | native, uncapped | 2.000 | 1.00 | - | 64.00 GiB | 1.00 | - |",
                     "| ViT-giant 1.1B | torchao | 3.000 | 1.50 | - | 32.00 GiB | 0.50 | yes |",
                     "| ViT-giant 1.1B | Spillway, no code, as torchao | 2.400 | 1.20 | 0.80 | 32.00 GiB | 0.50 | yes |",
                     "| Qwen3-0.6B | NVIDIA's hybrid optimizer | 1.678 | 2.23 | - | 10.53 of 15.24 GiB | 0.69 | quoted: NVIDIA-NeMo/RL#3628",
                     "tests/gpu/visit.sh --stage table --build"):  # fmt: skip
            self.assertIn(line, page)

    def test_a_peer_that_is_not_there_leaves_the_share_that_was_published(self):
        rows, status, ways, page = self.table("torchao")
        self.assertEqual((status, rows["ViT-giant 1.1B: torchao"]["status"]), (0, visit_rows.MISSING))
        self.assertIn(("ViT-giant 1.1B", 53, 64 << 30), ways)
        self.assertIn("| ViT-giant 1.1B | torchao | - | - | - | - | - | missing: no Python package torchao", page)
        self.assertIn("Spillway, no code, as published", page)

    def test_a_build_without_its_programs_is_failed_rows(self):
        for path in (self.folder / "build").glob("*/*"):
            path.unlink()
        for stage in visit.stages.STAGES:
            rows, status = self.stage(stage, "--size", "large")
            self.assertEqual(status, 1)
            for row in rows.values():
                self.assertTrue(row["status"] != visit_rows.FAILED or "FileNotFoundError" in row["words"], row)
            self.assertFalse(any(name.startswith("stage ") for name in rows), "no row is lost by another's error")


if __name__ == "__main__":
    unittest.main()
