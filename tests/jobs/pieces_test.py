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
import nccl
import scene_table
import scenes
import shared_disk

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
                    host_spilled_bytes=1, disk_written_bytes=1, fetched_bytes=1)  # fmt: skip
        metrics = {"devices": [{"peak_live_bytes": changes.pop("held", 104), "peak_requested_bytes": 100}]}
        run = job.Run({**keys, **changes}, {}, metrics, {}, "", 1.0)
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
                       {"host_spilled_bytes": 0}, {"disk_written_bytes": None}, {"held": 106}):  # fmt: skip
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


class ScenesTest(unittest.TestCase):
    """The judge of scenes.py: nothing to say of equal reports, one problem for each difference."""

    SCENE = scene_table.Scene("x")

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def judge(self, status=0, scene=SCENE, left=(), metrics=(), **page):
        entry = {"seen": [1, "OutOfMemoryError"], "hashes": {"model": "a"}, "figures": {"seconds": 0.5, "ending_seconds": 0.5}}
        figures = {"spilled_bytes": 1, "fetched_bytes": 1, "peak_bytes": 1, "budget_bytes": 2, **dict(metrics)}
        native = job.Run({}, {"pages": {"x": entry}}, None, {}, "", 1.0, 0)
        ours = job.Run({}, {"pages": {"x": {**entry, **page}}}, figures, {}, "", 1.0, status)
        for name in left:
            (Path(self.folder.name) / name).touch()
        problems = harness.Problems()
        with contextlib.redirect_stdout(io.StringIO()):
            good = scenes.judge("x", scene, native, ours, Path(self.folder.name), problems)
        self.assertEqual(good, problems.found == [])
        return len(problems.found)

    def test_equal_reports_are_good(self):
        self.assertEqual(self.judge(), 0)

    def test_each_difference_is_found(self):
        for change in ({"status": 1}, {"seen": [1]}, {"seen": [1, "AcceleratorError"]}, {"hashes": {"model": "b"}}, {"hashes": {}},
                       {"left_by": "RuntimeError"}, {"metrics": {"spilled_bytes": 0}}, {"metrics": {"peak_bytes": 3}}):  # fmt: skip
            self.assertEqual(self.judge(**change), 1, change)

    def test_files_left_are_found(self):
        self.assertEqual(self.judge(left=["spill"]), 1)

    def test_traffic_where_nothing_can_be_spilled_is_found(self):
        scene = scene_table.Scene("x", spills=False)
        self.assertEqual(self.judge(scene=scene, metrics={"spilled_bytes": 0, "fetched_bytes": 0}), 0)
        self.assertEqual(self.judge(scene=scene), 1)

    def test_slow_and_unpressed_phases_are_found(self):
        scene = scene_table.Scene("x", script=scene_table.ERRORS)
        fast = {"seconds": 1.0, "ending_seconds": 1.0, "figures": {"evictions": 3}}
        self.assertEqual(self.judge(scene=scene, figures=fast), 0)
        for change in ({"seconds": 99.0}, {"seconds": None}, {"ending_seconds": 99.0}, {"figures": {"evictions": 0}}):
            self.assertEqual(self.judge(scene=scene, figures={**fast, **change}), 1, change)

    def test_every_scene_has_its_pages_once(self):
        names = [scene.name for scene in scene_table.SCENES]
        self.assertEqual(len(names), len(set(names)))
        pages = {path.stem for path in (harness.HERE / "scenes").glob("*.py")}
        used = {word for scene in scene_table.SCENES if scene.script == scene_table.PAGES for word in scene.words()}
        self.assertEqual(used, pages - {"small"})


class SharedDiskTest(unittest.TestCase):
    def test_the_filler_takes_what_is_free(self):
        """On the disk of the test that would be much, so its loop is run with a limit of file size."""
        with tempfile.TemporaryDirectory() as folder:
            command = f"import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)); import sys; sys.argv = ['', '{folder}/x']"
            shared_disk.subprocess.run([job.sys.executable, "-c", command + shared_disk.FILL], check=True)
            self.assertEqual((Path(folder) / "x").stat().st_size, 1 << 20)


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


class CollectivesTest(unittest.TestCase):
    def test_each_collective_needs_evictions_before_and_after_it(self):
        def notes(*pairs):
            return [{"evictions": pair} for pair in pairs]

        self.assertEqual(nccl.without_evictions(notes((2, 3), (5, 5), (6, 8)), 9), ([], []))
        self.assertEqual(nccl.without_evictions(notes((0, 3), (5, 5), (5, 8)), 8), ([0, 2], [1, 2]))
        self.assertEqual(nccl.without_evictions(notes((1, 4)), 4), ([], [0]))


class InTimeTest(unittest.TestCase):
    def test_a_busy_machine_gets_more_and_not_any_time(self):
        self.assertTrue(harness.in_time(2.9, 3))
        self.assertFalse(harness.in_time(3000, 3))


if __name__ == "__main__":
    unittest.main()
