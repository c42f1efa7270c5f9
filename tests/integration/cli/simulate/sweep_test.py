"""`spillway simulate --sweep`: each row is what a single run says, in the table, in the JSON and in the page."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from report_helpers import PROGRAM, ReportPage  # noqa: E402
from simulate_helpers import MIB, layered, result_of, simulate  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "fakes"))
from wait_until import wait_until  # noqa: E402

GIB = 2**30
CPU_TIMES = ("plan_first_s", "plan_best_s", "bound_s")
EXTRA = ("runs", "option", "value", "setting")


def threads_named(process, name):
    """Whether the process has a thread of that name."""
    try:
        return any((task / "comm").read_text().strip() == name[:15] for task in Path(f"/proc/{process}/task").iterdir())
    except FileNotFoundError:
        return False


class SweepTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.trace = layered(os.path.join(cls.scratch.name, "<layers> & co"))
        cls.page = os.path.join(cls.scratch.name, "page.html")

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def swept(self, *options):
        run = simulate(self.trace, *options, "--json")
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)["sweep"]

    def assert_same_as_alone(self, row, *options):
        alone = result_of(self.trace, *options)
        for key, value in row.items():
            if key not in CPU_TIMES + EXTRA:
                self.assertEqual(value, alone[key], (row["setting"], key))
        self.assertLessEqual(set(alone) - {"options"}, set(row))

    def test_rows_are_single_runs(self):
        rows = self.swept("--sweep", "gpu-memory=128MiB:320MiB:64MiB", "--host-memory", "100MiB")
        self.assertEqual([row["value"] for row in rows], [size * MIB for size in (128, 192, 256, 320)])
        self.assertEqual(rows[0]["setting"], "gpu-memory=128MiB")
        for row in rows:
            self.assert_same_as_alone(row, "--gpu-memory", int(row["value"]), "--host-memory", "100MiB")
        self.assertLess(rows[0]["percent_of_ideal"], rows[-1]["percent_of_ideal"])  # or the sweep shows nothing

    def test_every_option_that_can_be_swept(self):
        base = ("--gpu-memory", "192MiB", "--host-memory", "40MiB")
        for name, values, flags in (
            ("host-memory", "0:64MiB:32MiB", ["--host-memory"]),
            ("host", "0:64MiB:64MiB", ["--host-memory"]),
            ("ssd", "1e9:2e9:0.5e9", ["--ssd-read", "--ssd-write"]),
            ("ssd-read", "1e9:2e9:1e9", ["--ssd-read"]),
            ("ssd-write", "1e9:2e9:1e9", ["--ssd-write"]),
            ("pcie", "4e9:8e9:4e9", ["--pcie"]),
            ("pcie-in", "4e9:8e9:4e9", ["--pcie-in"]),
            ("pcie-out", "4e9:8e9:4e9", ["--pcie-out"]),
        ):
            rows = self.swept(*base, "--sweep", f"{name}={values}")
            self.assertGreaterEqual(len(rows), 2)
            row = rows[-1]
            kept = list(base) if not name.startswith("host") else list(base[:2])
            self.assert_same_as_alone(row, *kept, *(part for flag in flags for part in (flag, int(row["value"]))))

    def test_a_setting_can_be_given_to_its_option(self):
        for sweep in ("gpu-memory=200000001:320000000:40000003", "ssd-read=1234567890:2e9:0.3e9", "gpu=0.2GB:0.25GB:0.05GB"):
            for row in self.swept("--sweep", sweep):
                option, value = row["setting"].split("=")
                self.assert_same_as_alone(row, "--" + option, value)

    def test_the_last_value_is_there_in_spite_of_rounding(self):
        rows = self.swept("--gpu-memory", "192MiB", "--sweep", "ssd=0.1e9:0.7e9:0.1e9")
        self.assertEqual(len(rows), 7)

    def test_rows_are_the_same_on_any_number_of_threads(self):
        options = ("--sweep", "gpu-memory=16MiB:316MiB:20MiB", "--sweep", "ssd=1e9:3e9:0.5e9", "--host-memory", "64MiB")
        texts = {simulate(self.trace, *options, "--threads", str(threads)).stdout for threads in (1, 2, 5)}
        self.assertEqual(len(texts), 1)
        self.assertEqual(len(texts.pop().splitlines()), 1 + 16 + 5)
        rows = [[{key: value for key, value in row.items() if key not in CPU_TIMES}
                 for row in self.swept(*options, "--threads", str(threads))] for threads in (1, 3)]  # fmt: skip
        self.assertEqual(*rows)
        self.assertEqual(simulate(self.trace, *options, "--threads", "0").returncode, 2)

    def test_ctrl_c_ends_a_sweep_and_leaves_nothing(self):
        page = os.path.join(self.scratch.name, "cancelled.html")
        command = [PROGRAM, "simulate", "--trace", "llama3-8b:batch=4", "--sweep", "gpu=20GB:90GB:0.1GB", "--html", page]
        sweep = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_until(lambda: threads_named(sweep.pid, "spillway-work"))
        sweep.send_signal(signal.SIGINT)
        out, err = sweep.communicate(timeout=60)
        self.assertEqual((sweep.returncode, out, err), (-signal.SIGINT, b"", b""))
        self.assertFalse([name for name in os.listdir(self.scratch.name) if name.startswith("cancelled")])

    def test_what_cannot_run_is_a_row_with_its_reason(self):
        rows = self.swept("--sweep", "gpu-memory=16MiB:216MiB:100MiB")
        self.assertEqual([row["runs"] for row in rows], [False, True, True])
        self.assertIn("exceed the GPU's memory", rows[0]["problem"])
        self.assertNotIn("percent_of_ideal", rows[0])
        run = simulate(self.trace, "--sweep", "gpu-memory=16MiB:216MiB:100MiB")
        self.assertEqual(run.returncode, 0)
        self.assertRegex(run.stdout, "gpu-memory=16MiB +cannot run: kernel")
        self.assertEqual(simulate(self.trace, "--sweep", "gpu=1MiB:2MiB:1MiB").returncode, 1)

    def test_the_table_and_the_page_say_what_the_json_says(self):
        options = ("--sweep", "gpu-memory=16MiB:216MiB:100MiB", "--sweep", "ssd=1e9:3e9:1e9", "--host-memory", "64MiB")
        rows = self.swept(*options)
        run = simulate(self.trace, *options, "--html", self.page)
        self.assertEqual(run.returncode, 0, run.stderr)
        page = ReportPage(self.page)
        self.assertEqual(page.charts, ["sweep_0_speed", "sweep_0_moved", "sweep_1_speed", "sweep_1_moved"])
        self.assertEqual(list(page.tables), ["sweep_0", "sweep_1", "options"])
        cells = [row for key in ("sweep_0", "sweep_1") for row in page.tables[key][1:]]
        lines = run.stdout.splitlines()[1:]
        self.assertEqual((len(cells), len(lines), len(page.data["sweep"])), (len(rows),) * 3)
        for row, cell, line, data in zip(rows, cells, lines, page.data["sweep"]):
            self.assertEqual({k: v for k, v in row.items() if k not in CPU_TIMES},
                             {k: v for k, v in data.items() if k not in CPU_TIMES})
            self.assertEqual(cell[0], row["setting"])
            self.assertTrue(line.startswith(row["setting"]), line)
            if not row["runs"]:
                self.assertEqual(cell[1:], ["cannot run"])
                self.assertIn(f"{row['setting']} cannot run: {row['problem']}", page.text)
                continue
            percents = [f"{row['percent_of_ideal']:.2f}", f"{row['percent_of_bound']:.2f}"]
            seconds = [f"{row[key] / 1e6:.3f}" for key in ("iteration_us", "read_wait_us", "memory_wait_us")]
            moved = [row[key] / GIB for key in ("host_to_gpu_bytes", "ssd_to_gpu_bytes", "gpu_to_host_bytes", "gpu_to_ssd_bytes")]
            self.assertEqual(cell[1:], [*percents, *seconds, *(f"{value:.2f}" for value in [*moved, row["peak_host_bytes"] / GIB])])
            self.assertEqual(line.split()[1:], [*percents, *seconds, f"{moved[0] + moved[1]:.2f}", f"{moved[2] + moved[3]:.2f}"])

    def test_the_table_says_whether_the_share_of_the_bound_is_known(self):
        sweep = ("--sweep", "gpu-memory=160MiB:224MiB:32MiB", "--host-memory", "40MiB")
        self.assertIn(">= % of bound", simulate(self.trace, *sweep).stdout.splitlines()[0])
        head = simulate(self.trace, *sweep, "--bound", "coarse-one-tier").stdout.splitlines()[0]
        self.assertIn("% of bound", head)
        self.assertNotIn(">=", head)

    def test_a_machine_that_cannot_run_is_a_gap_with_a_cross(self):
        rows = self.swept("--sweep", "gpu-memory=16MiB:216MiB:100MiB")
        simulate(self.trace, "--sweep", "gpu-memory=16MiB:216MiB:100MiB", "--html", self.page)
        chart = ReportPage(self.page).specs["sweep_0_speed"]
        for name, key in (("percent of ideal", "percent_of_ideal"), ("percent of bound", "percent_of_bound")):
            drawn = [point["v"] for point in chart["data"]["values"] if point["name"] == name]
            self.assertIsNone(drawn[0])
            for value, row in zip(drawn[1:], rows[1:]):
                self.assertAlmostEqual(value, row[key], delta=1e-3)
        self.assertEqual([point["x"] for point in chart["layer"][2]["data"]["values"]], [0.015625])

    def test_without_the_drawing_library_the_page_is_refused(self):
        alone = os.path.join(self.scratch.name, "bin")
        os.makedirs(alone, exist_ok=True)
        program = shutil.copy(PROGRAM, alone)
        page = self.page + ".none"
        for command in (("simulate", "--trace", "/no/trace", "--sweep", "gpu=1GiB:2GiB:1GiB", "--html", page),
                        ("estimate", "/no/model", "--sweep", page)):  # fmt: skip
            run = subprocess.run([program, *command], capture_output=True, text=True, check=False, timeout=100)
            self.assertEqual((run.returncode, run.stdout), (2, ""), command)
            self.assertIn("vega.js is missing, so no page can be drawn", run.stderr, "before the input is read")
            self.assertFalse(os.path.exists(page))

    def test_the_page_names_units_options_and_the_trace(self):
        simulate(self.trace, "--sweep", "gpu=128MiB:256MiB:64MiB", "--ssd-shared", "--html", self.page)
        page = ReportPage(self.page)
        speed, moved = (page.specs[f"sweep_0_{name}"] for name in ("speed", "moved"))
        for chart, unit in ((speed, "percent"), (moved, "GiB")):
            axes = chart["layer"][0]["encoding"]
            self.assertEqual((axes["x"]["title"], axes["y"]["title"]), ("gpu-memory, GiB", unit))
        self.assertEqual({point["name"] for point in speed["data"]["values"]}, {"percent of ideal", "percent of bound"})
        used = {row[0]: row[1] for row in page.tables["options"][1:]}
        self.assertEqual(used["--trace"], self.trace)  # with the <, > and & of its name
        self.assertEqual((used["--ssd-shared"], used["--pcie-in"], used["--policy"]), ("true", "15.754e9", "plan"))

    def test_wrong_sweeps_say_what_is_accepted(self):
        for sweep, words in (
            ("colour=1:2:1", "'colour' cannot be swept"),
            ("gpu-memory", "first value, a last one and a step"),
            ("gpu-memory=1GiB:2GiB", "first value, a last one and a step"),
            ("gpu-memory=a:2GiB:1GiB", "'a' is not a size"),
            ("gpu-memory=2GiB:1GiB:1GiB", "less than the first"),
            ("gpu-memory=1GiB:2GiB:0", "more than 0"),
            ("gpu-memory=1GiB:2GiB:1MB", "more than 1000 values"),
            ("pcie=0:2e9:1e9", "pcie-in=0GB/s is invalid"),
        ):
            run = simulate(self.trace, "--sweep", sweep)
            self.assertEqual(run.returncode, 2, sweep)
            self.assertIn(words, run.stderr)
            self.assertIn("expected: ", run.stderr)
            self.assertEqual(run.stdout, "")

    def test_options_that_do_not_go_together(self):
        run = simulate(self.trace, "--html", self.page + ".none")
        self.assertEqual(run.returncode, 2)
        self.assertIn("--sweep", run.stderr)
        self.assertFalse(os.path.exists(self.page + ".none"))
        run = simulate(self.trace, "--sweep", "gpu=1GiB:2GiB:1GiB", "--schedule", self.page + ".csv")
        self.assertEqual(run.returncode, 2)
        self.assertIn("--schedule", run.stderr)
        run = simulate(self.trace, "--sweep", "gpu=1GiB:2GiB:1GiB", "--html", os.path.join(self.scratch.name, "no", "page"))
        self.assertEqual(run.returncode, 2)
        self.assertIn("No such file", run.stderr)


if __name__ == "__main__":
    unittest.main()
