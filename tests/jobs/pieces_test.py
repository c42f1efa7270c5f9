"""The parts of the end-to-end tests that need no device: pairs covered, judgements that can fail, log arithmetic."""

import contextlib
import dataclasses
import io
import itertools
import os
import tempfile
import unittest
from pathlib import Path

import configurations
import device_log
import harness
import job
import kill
import matrix

ROW = configurations.Configuration("x", 1, "foreach", "35", "both")


class ConfigurationsTest(unittest.TestCase):
    def test_nine_rows_cover_all_pairs(self):
        rows = [(r.seed, r.form, r.budget, r.tiers) for r in configurations.all_configurations()]
        levels = [configurations.SEEDS, configurations.FORMS, configurations.BUDGETS, configurations.TIERS]
        self.assertEqual(len(set(rows)), 9)
        for first, second in itertools.combinations(range(4), 2):
            found = {(row[first], row[second]) for row in rows}
            self.assertEqual(found, set(itertools.product(levels[first], levels[second])))

    def test_ci_has_every_level(self):
        rows = [dataclasses.astuple(row)[1:] for row in configurations.ci_configurations()]
        self.assertEqual([len(set(column)) for column in zip(*rows)], [3, 3, 2, 3])


class JudgementTest(unittest.TestCase):
    def judge(self, notes=None, **changes):
        """The number of problems found in a capped run that is good but for the changes."""
        keys = dict(mode=job.CONF, status="ok", losses_sha256="a", state_sha256="b", peak_bytes=90, budget_bytes=100,
                    host_spilled_bytes=1, ssd_written_bytes=1, fetched_bytes=1)  # fmt: skip
        run = job.Run({**keys, **changes}, {}, {}, {}, "", 1.0)
        uncapped = job.Run(dict(losses_sha256="a", state_sha256="b", peak_bytes=300), {}, {}, {}, "", 1.0)
        good = [{"dtoh_bytes": 100 * i, "htod_bytes": 100 * i} for i in range(matrix.STEPS)]
        problems = harness.Problems()
        with contextlib.redirect_stdout(io.StringIO()):
            matrix.capped_problems(ROW, run, uncapped, good if notes is None else notes, problems)
        return len(problems.found)

    def test_good_run_has_none(self):
        self.assertEqual(self.judge(), 0)

    def test_each_bad_run_has_one(self):
        for change in ({"status": "failed"}, {"losses_sha256": "c"}, {"state_sha256": "c"}, {"peak_bytes": 101},
                       {"host_spilled_bytes": 0}, {"ssd_written_bytes": None}):  # fmt: skip
            self.assertEqual(self.judge(**change), 1, change)

    def test_a_step_without_traffic_is_found(self):
        last = matrix.STEPS - 2  # nothing is fetched in the last step that is seen to its end
        notes = [{"dtoh_bytes": 100 * i, "htod_bytes": 100 * min(i, last)} for i in range(matrix.STEPS)]
        self.assertEqual(self.judge(notes), 1)
        self.assertGreaterEqual(self.judge([]), 1)

    def test_missing_steps_are_found(self):
        self.assertEqual(self.judge([{"dtoh_bytes": 0, "htod_bytes": 0}] * 3), 1)


class KillTest(unittest.TestCase):
    def test_counts_unlinked_files_only_below_the_folder(self):
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
            for place in (folder, other):
                file = self.enter_file(place)
                os.posix_fallocate(file.fileno(), 0, 1 << 20)
            self.assertGreaterEqual(kill.spill_bytes(os.getpid(), Path(folder)), 1 << 20)
            self.assertLess(kill.spill_bytes(os.getpid(), Path(folder)), 2 << 20)
            self.assertEqual(os.listdir(folder), [])

    def enter_file(self, folder):
        file = tempfile.TemporaryFile(dir=folder)
        self.addCleanup(file.close)
        return file

    def test_space_that_does_not_come_back_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            free = harness.free_bytes(folder)
            self.assertTrue(kill.space_came_back(folder, free - (256 << 20), 256 << 20))


class DeviceLogTest(unittest.TestCase):
    def test_reads_lines_and_finds_steps(self):
        with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
            file.write("kind\tstream\tdevice\tstart\tend\tbytes\tdirection\tname\n")
            for step in range(3):
                file.write(f"kernel\t1\t0\t{step * 100}\t{step * 100 + 50}\t0\t-\taten::nll_loss_forward\n")
                file.write(f"copy\t2\t0\t{step * 100 + 40}\t{step * 100 + 60}\t{2 << 20}\tdtoh\t-\n")
                file.write(f"copy\t1\t0\t{step * 100 + 10}\t{step * 100 + 20}\t8\tdtoh\t-\n")
            file.flush()
            lines = device_log.read_log(file.name)
        self.assertEqual((len(lines), len(device_log.kernels(lines)), len(device_log.transfers(lines))), (9, 3, 3))
        self.assertEqual(len(device_log.from_step(lines, 2)), 6)
        with self.assertRaises(ValueError):
            device_log.from_step(lines, 4)
        copying, computing = device_log.busy(device_log.transfers(lines)), device_log.busy(device_log.kernels(lines))
        self.assertEqual(device_log.overlap(copying, computing) / device_log.total(copying), 0.5)

    def test_overlapping_intervals_count_once(self):
        lines = [device_log.Line("kernel", s, e, 0, "-", "") for s, e in ((5, 9), (0, 6), (20, 21))]
        self.assertEqual(device_log.busy(lines), [[0, 9], [20, 21]])
        self.assertEqual(device_log.overlap([[0, 9]], [[3, 4], [8, 20]]), 2)


if __name__ == "__main__":
    unittest.main()
