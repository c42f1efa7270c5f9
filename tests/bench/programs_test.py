"""The programs of bench/, each in its shortest form: that they still run, and give figures. No figure is judged here.

    programs_test.py --build BUILD
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import pair_builds

BUILD = None
LONGEST_SECONDS = 120
# A program of build/bin, what makes it short, and a figure that it measures. Each takes --json.
PROGRAMS = {
    "launch_scan_bench": (["--benchmark_repetitions=1", "--benchmark_min_time=0.001"], "gate_ns"),
    "motion_bench": (["--rounds", "1", "--dir", "{folder}"], "gb_per_s"),
    "victim_bench": (["--most", "1000"], "lru_us"),
    "plan_bench": (["--most", "3000"], "all_s"),
    "history_bench": (["--pairs", "1", "--faults", "20", "--most", "1000"], "ns"),
    "host_tier_bench": (["--gib", "1", "--scale", "2"], "out_seconds"),
    "hardware_bench": (
        ["--machines", "h200", "--forms", "wait", "--ends", "low", "--mib", "64", "--moved-mib", "256", "--scale", "1"], "share_of_plain_copy"),
}  # fmt: skip


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_SECONDS)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


class ProgramsTest(unittest.TestCase):
    def test_each_gives_figures(self):
        for program, (arguments, figure) in PROGRAMS.items():
            with self.subTest(program), tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
                report = Path(folder) / "report.json"
                run([BUILD / "bin" / program, *(a.format(folder=folder) for a in arguments), "--json", report])
                found = dict(pair_builds.figures(json.loads(report.read_text())))
                measured = [value for name, value in found.items() if name.split("/")[-1] == figure]
                self.assertTrue(measured, found)
                self.assertGreater(min(measured), 0)

    def test_the_spill_store_alone(self):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            self.assertIn("GB/s", run([BUILD / "bin/io_engine_bench", "--mib", "64", "--rounds", "1", "--dir", folder]))

    @unittest.skipUnless(shutil.which("fio"), "there is no fio to compare with: apt-get install fio")
    def test_the_spill_store_beside_fio(self):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            report = json.loads(run([BUILD / "bin/io_engine_bench", "--against-fio", "--json", "--mib", "64", "--rounds", "1", "--dir", folder]))
            self.assertEqual(os.listdir(folder), [])
        self.assertIn("fio-", report["fio"])
        rows = {row["what"]: row for row in report["rows"]}
        for direction in ("write", "read"):
            row, fio = rows[f"store, threads, {direction}"], rows[f"fio, threads, {direction}"]
            self.assertAlmostEqual(row["rate_to_fio"], row["gb_per_s"] / fio["gb_per_s"])
            if fio["cpu_s_per_gb"] > 0:  # a transfer that is shorter than a tick of the processor's counter has none
                self.assertAlmostEqual(row["cpu_to_fio"], row["cpu_s_per_gb"] / fio["cpu_s_per_gb"])
            else:
                self.assertNotIn("cpu_to_fio", row)
            self.assertNotIn("rate_to_fio", fio)

    def test_without_fio_the_comparison_says_what_to_install(self):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            done = subprocess.run([BUILD / "bin/io_engine_bench", "--against-fio", "--mib", "64", "--rounds", "1", "--dir", folder],
                                  capture_output=True, text=True, timeout=LONGEST_SECONDS, env={**os.environ, "PATH": folder})  # fmt: skip
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("apt-get install fio", done.stderr)

    def test_chunk_classes(self):
        self.assertIn("| h200 | high | 128 |", run([sys.executable, "-B", ROOT / "bench/chunk_classes.py", "--machines", "h200"]))


class PairsTest(unittest.TestCase):
    def test_rows_without_words_are_told_apart_by_their_place(self):
        rows = [{"freed": 100, "ns": 5.0}, {"freed": 10_000, "ns": 6.0}]
        self.assertEqual(dict(pair_builds.figures(rows)), {"0/freed": 100, "0/ns": 5.0, "1/freed": 10_000, "1/ns": 6.0})

    def test_rows_with_words_go_by_them(self):
        self.assertEqual(dict(pair_builds.figures([{"what": "disk out", "gb_per_s": 2.0}])), {"disk out/gb_per_s": 2.0})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True)
    args, rest = parser.parse_known_args()
    BUILD = args.build
    unittest.main(argv=[sys.argv[0], *rest])
