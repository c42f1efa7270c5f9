"""The jobs of a visit over runs that are made up: what passes, what fails, what cannot be compared, what is run again."""

import argparse
import json
import os
import unittest
from pathlib import Path
from unittest import mock

from visit_test import Quiet  # (finds the modules of the visit)

import visit_disk
import visit_facts
import visit_jobs
import visit_rows
import visit_watch
from run import SIZES

MIB = 1 << 20


def finished(losses="same", status="ok", peak=100 * MIB, budget=100 * MIB, spilled=1, seconds=1.0):
    keys = dict.fromkeys(visit_jobs.job.KEYS)
    keys.update(status=status, losses_sha256=losses, state_sha256="state", peak_bytes=peak, budget_bytes=budget,
                spilled_bytes=spilled, tokens_per_s=10.0)  # fmt: skip
    return visit_jobs.job.Run(keys, {"memory": {}}, {}, {}, "the log", seconds, 0)


class WithJobs(Quiet):
    def jobs(self, device="gpu", minutes=10):
        args = argparse.Namespace(device=device, work=self.folder, build=self.folder, spill=None, only=None, size="large")
        table = self.table(minutes)
        return visit_jobs.Jobs(args, table, visit_disk.Disk(visit_facts.Program(args, table)))


class JobsTest(WithJobs):
    """Jobs.compare over runs that are made up."""

    def compare(self, answer, device="gpu", feature=False, ways=(visit_jobs.Way(50),), minutes=10, again="same"):
        """again: the bits of a second uncapped run, or the error that it ends in."""
        jobs = self.jobs(device, minutes)
        table = jobs.rows
        self.calls = []

        def train(label, case, mode, cap=None, limit=None, extra=None):
            self.calls.append((label, mode, cap, limit, extra))
            if label == "uncapped again" and isinstance(again, Exception):
                raise again
            uncapped = finished(again if label == "uncapped again" else "same", budget=1000 * MIB, seconds=20.0)
            run = uncapped if mode == visit_jobs.job.UNCAPPED else answer(label)
            status = run.keys["status"]
            return run, visit_watch.Ended(0, run.seconds, run.log, status in ("cut", "late"), status == "late")

        jobs.train = train
        jobs.compare(visit_jobs.Case("case", Path("script"), (), feature=feature), ways)
        return table

    def test_the_same_bits_within_the_budget_pass(self):
        table = self.compare(lambda label: finished())
        self.assertEqual([row["status"] for row in table.rows], [visit_rows.PASSED])
        self.assertEqual(self.calls[1][3], visit_jobs.HANG * 20)

    def test_what_hardware_alone_answers_does_not_pass_on_the_stand_in(self):
        table = self.compare(lambda label: finished(), device="simcuda", feature=True)
        self.assertEqual([row["status"] for row in table.rows], [visit_rows.NEEDS_HARDWARE])
        table = self.compare(lambda label: finished(), device="gpu", feature=True)
        self.assertEqual([row["status"] for row in table.rows], [visit_rows.PASSED])

    def test_each_kind_of_failure_is_seen(self):
        for bad, words in ((finished(losses="other"), "other bits"), (finished(spilled=0), "nothing was spilled"),
                           (finished(peak=200 * MIB), "over its budget"), (finished(status="failed"), "failed"),
                           (finished(status="cut"), "cut off")):  # fmt: skip
            table = self.compare(lambda label, bad=bad: bad)
            row = next(row for row in table.rows if row["row"] == "case: 50 %, host memory")
            self.assertEqual(row["status"], visit_rows.FAILED, words)
            self.assertIn(words, row["words"])

    def test_a_run_that_the_end_of_the_visit_cuts_off_is_no_failure(self):
        table = self.compare(lambda label: finished(status="late"), ways=(visit_jobs.Way(50), visit_jobs.Way(35)))
        self.assertEqual([row["status"] for row in table.rows], [visit_rows.LEFT_OUT] * 2)
        self.assertEqual(len(self.calls), 3, "it is not run again in other ways")
        self.assertEqual(table.finish(), 3)

    def test_an_uncapped_run_without_time_is_left_out(self):
        jobs = self.jobs(minutes=0.02)
        case = visit_jobs.Case("case", Path("script"), ())
        self.assertIsNone(jobs.uncapped(case))
        jobs.repeats(case, finished())
        self.assertIsNone(jobs.same_bits[case])
        self.assertEqual([row["status"] for row in jobs.rows.rows], [visit_rows.LEFT_OUT] * 2)

    def test_the_first_failure_is_rerun_once_in_each_way(self):
        ways = (visit_jobs.Way(50), visit_jobs.Way(35))
        table = self.compare(lambda label: finished(losses="same" if "strict" in label else "other"), ways=ways)
        reruns = [row for row in table.rows if row["row"].startswith("rerun")]
        self.assertEqual([row["row"].rsplit(": ", 1)[1] for row in reruns], list(visit_jobs.LADDER))
        self.assertEqual([row["words"] == "it passes so" for row in reruns], [name == "strict" for name in visit_jobs.LADDER])
        self.assertEqual(len(table.with_status(visit_rows.FAILED)), 2, "reruns judge nothing")
        by_name = {call[0]: call for call in self.calls}
        self.assertEqual(by_name["rerun lru"][2].settings["policy"], "lru")
        self.assertEqual(by_name["rerun no disk"][2].settings["dirs"], "none")
        self.assertEqual(by_name["rerun blocking launches"][4], {"CUDA_LAUNCH_BLOCKING": "1"})

    def test_what_needs_a_disk_and_passes_without_is_not_run_again_with_it(self):
        on_disk, in_memory = visit_jobs.Way(35, host=0.05), visit_jobs.Way(50)
        table = self.compare(lambda label: finished("other" if "disk" in label and "no disk" not in label else "same"),
                             ways=(on_disk, on_disk, in_memory))  # fmt: skip
        self.assertEqual([row["row"] for row in table.rows if row["row"].startswith("rerun")], ["rerun of case: no disk"])
        by_name = {call[0]: call for call in self.calls}
        self.assertEqual(by_name["rerun no disk"][2].settings["dirs"], "none")
        self.assertEqual(by_name["rerun no disk"][2].host_memory, "125MiB", "all fits there")
        # A later failure without a disk is the first of its kind.
        table = self.compare(lambda label: finished("same" if "no disk" in label else "other"), ways=(on_disk, in_memory))
        names = [row["row"].rsplit(": ", 1)[1] for row in table.rows if row["row"].startswith("rerun")]
        self.assertEqual(names, ["no disk", *visit_jobs.LADDER])

    def test_what_fails_with_a_disk_and_without_is_run_again_without(self):
        table = self.compare(lambda label: finished("other"), ways=(visit_jobs.Way(35, host=0.05), visit_jobs.Way(50)))
        names = [row["row"].rsplit(": ", 1)[1] for row in table.rows if row["row"].startswith("rerun")]
        self.assertEqual(names, ["no disk", *(name for name in visit_jobs.LADDER if name != "no disk")])
        reruns = [cap for label, _, cap, _, _ in self.calls if label.startswith("rerun")]
        self.assertEqual({cap.settings["dirs"] for cap in reruns}, {"none"})

    def test_bits_are_judged_by_a_second_uncapped_run(self):
        for again, status, words in (("third", visit_rows.MEASURED, "not comparable: other bits"),
                                     ("same", visit_rows.FAILED, "other bits than uncapped: losses"),
                                     (OSError("no such program"), visit_rows.FAILED, "other bits")):  # fmt: skip
            table = self.compare(lambda label: finished("other"), again=again, ways=(visit_jobs.Way(50), visit_jobs.Way(40)))
            by_row = {row["row"]: row for row in table.rows}
            self.assertEqual([row for row in by_row if "again" in row], ["case: uncapped again"], "once for both ways")
            for row in ("case: 50 %, host memory", "case: 40 %, host memory"):
                self.assertEqual(by_row[row]["status"], status, again)
                self.assertIn(words, by_row[row]["words"])
            self.assertEqual(any(row.startswith("rerun") for row in by_row), status == visit_rows.FAILED)
        table = self.compare(lambda label: finished("other", spilled=0), again="third")
        self.assertIn("nothing was spilled", table.rows[0]["words"], "a failure that is no matter of bits")

    def test_a_case_that_must_repeat_its_bits_fails_where_it_does_not(self):
        jobs = self.jobs()
        jobs.train = lambda label, *_, **__: (finished(label), visit_watch.Ended(0, 1.0, ""))
        self.assertIsNotNone(jobs.first(visit_jobs.Case("case", Path("script"), ())))
        self.assertEqual([(row["row"], row["status"]) for row in jobs.rows.rows], [("case: uncapped again", visit_rows.FAILED)])

    def test_an_error_in_one_way_leaves_the_others(self):
        def answer(label):
            if "50 %" in label:
                raise FileNotFoundError("bin/python")
            return finished()

        table = self.compare(answer, ways=(visit_jobs.Way(50), visit_jobs.Way(40)))
        self.assertEqual([row["status"] for row in table.rows], [visit_rows.FAILED, visit_rows.PASSED])
        self.assertIn("FileNotFoundError", table.rows[0]["words"])

    def test_a_run_on_a_slow_disk_is_cut_by_its_bytes(self):
        """A command that moves bytes for longer than its limit, and one that has moved some and hangs."""
        jobs = self.jobs()
        jobs.disk.write = jobs.disk.read = 1e9
        allowance, fifo = jobs.disk.allowance, self.folder / "fifo"
        os.mkfifo(fifo)
        for name, moved, cut in (("moves", [25e6, 50e6, 1e12], False), ("hangs", [25e6, 25e6], True)):
            log = self.folder / f"{name}.log"

            def run_job(here, mode, arguments, cap, total, script, label, extra_environment, runner, log=log):
                runner(["cat", fifo], None, log)
                return finished()

            def moving(metrics, times, name=name, moved=moved):
                """What the command has moved whenever it is asked for; it ends when that is enough for any limit."""
                def more():
                    metrics.write_text(json.dumps({"disk_spilled_bytes": moved.pop(0), "disk_fetched_bytes": 0}))
                    if not moved and name == "moves":
                        fifo.write_text("")
                    return allowance(metrics, times)()

                return more

            with mock.patch.object(visit_jobs.job, "run_job", run_job), mock.patch.object(jobs.disk, "allowance", moving):
                case = visit_jobs.Case("case", self.folder / "script", ())
                _, ended = jobs.train(name, case, visit_jobs.job.PRELOAD, visit_jobs.job.Cap(1), limit=0.1)
            self.assertEqual((name, ended.cut, moved), (name, cut, []))

    def test_without_time_rows_are_left_out(self):
        table = self.compare(lambda label: finished(), minutes=0.2)
        self.assertEqual([row["status"] for row in table.rows], [visit_rows.LEFT_OUT])


DOCTOR = """spillway: /nvme0: writing ...
spillway: /nvme0: reading: 381.50 MiB in 0.4 s
{
  "format": 1,
  "directories": [
    %s
  ],
  "findings": []
}"""


class DiskTest(WithJobs):
    def disk(self, directory, status=0, spill=None):
        args = argparse.Namespace(device="gpu", work=self.folder, build=self.folder, spill=spill, size="large")
        disk = visit_disk.Disk(visit_facts.Program(args, self.table()))
        ended = visit_watch.Ended(status, 5.0, DOCTOR % directory if directory is not None else "there is no doctor")
        with mock.patch.object(visit_facts.Program, "run", lambda *asked, **__: (self.asked.append(asked), (ended, None))[1]):
            disk.measure()
        return disk

    def setUp(self):
        super().setUp()
        self.asked = []

    def test_the_doctor_says_how_fast_it_is(self):
        rates = {side: {"late_bytes_per_second": rate, "bytes_per_second": 9e9} for side, rate in (("write", 1e9), ("read", 2e9))}
        disk = self.disk(json.dumps({"path": "/nvme0", "problem": None, "rate_problem": None, **rates}), spill=Path("/nvme0"))
        self.assertEqual((disk.write, disk.read), (1e9, 2e9))
        self.assertEqual(disk.program.table.rows[0]["words"], "/nvme0: writes 1000 MB/s, reads 2000 MB/s")
        self.assertEqual(self.asked[0][-2:], ("--dirs", "/nvme0"))
        self.assertEqual(disk.seconds(2e9, 2e9), 3)
        self.assertEqual(disk.seconds(disk.bytes_there_and_back(), disk.bytes_there_and_back()), visit_disk.ROW_SECONDS)

    def test_a_rate_that_is_not_known_is_assumed(self):
        for directory, why in ((None, "there is no doctor"), ('{"problem": "read-only"}', "read-only"), ("", "exit status 0"),
                               ('{"problem": null, "rate_problem": "no space", "write": null, "read": null}', "no space")):  # fmt: skip
            disk = self.disk(directory)
            self.assertEqual((disk.write, disk.read), (visit_disk.ASSUMED,) * 2)
            self.assertIn(why, disk.program.table.rows[0]["words"])
            self.assertEqual(disk.program.table.rows[0]["status"], visit_rows.MEASURED)

    def test_bytes_that_were_moved_give_time_and_no_bytes_none(self):
        disk, metrics = self.disk(None), self.folder / "a.metrics.json"
        more = disk.allowance(metrics, 4)
        self.assertEqual(more(), 0)
        for text, seconds in (("{", 0), ("{}", 0), ('{"disk_spilled_bytes": 0, "disk_fetched_bytes": 0}', 0),
                              ('{"disk_spilled_bytes": 2e8, "disk_fetched_bytes": 4e8}', 12),
                              ('{"disk_spilled_bytes": 1e15, "disk_fetched_bytes": 0}', 4 * visit_disk.ROW_SECONDS)):  # fmt: skip
            metrics.write_text(text)
            self.assertEqual(more(), seconds, text)

    SIZES = ("--layers", "99", *SIZES["large"]["gpt"].split())

    def test_a_job_is_as_large_as_its_disk_allows(self):
        case, peak = visit_jobs.Case("gpt", Path("train"), self.SIZES), 21e9
        disk, found = self.disk(None), []
        for rate in (20e6, 200e6, 500e6, 1e9, 2e9, 4e9, 8e9):
            for moved in (1.3 * peak, 11 * peak):  # each iteration a third, or nearly three times of it
                disk.write = disk.read = rate
                fitted = visit_jobs.fitted_to_disk(disk, case, peak, moved, 2)
                if moved <= disk.bytes_there_and_back():
                    self.assertIs(fitted, case)
                    continue
                self.assertEqual(fitted.arguments[: len(self.SIZES)], self.SIZES)
                sizes = {name: visit_jobs.value_of(fitted, name) for name in ("--width", "--layers", "--heads", "--sequence", "--batch")}
                self.assertEqual((sizes["--width"] // sizes["--heads"], visit_jobs.value_of(fitted, "--steps")), (64, 2))
                self.assertGreaterEqual(sizes["--layers"], visit_jobs.FEWEST_LAYERS)
                part = visit_jobs.gpt_size(sizes) / visit_jobs.gpt_size(
                    {name: visit_jobs.value_of(case, name) for name in sizes})  # fmt: skip
                self.assertGreaterEqual(part * peak, visit_jobs.LEAST_PEAK)
                # What is larger than the row has time for is little more than the least.
                seconds = disk.seconds(part * moved / 2, part * moved / 2)
                self.assertTrue(seconds <= visit_disk.ROW_SECONDS or part * peak < 1.3 * visit_jobs.LEAST_PEAK, (rate, moved))
                found.append(part)
        self.assertGreater(len(set(found)), 4, "the disk decides the size")

    def test_a_small_job_is_made_no_smaller(self):
        disk = self.disk(None)
        disk.write = disk.read = 1e6
        case = visit_jobs.Case("gpt", Path("train"), self.SIZES)
        self.assertIs(visit_jobs.fitted_to_disk(disk, case, 200e6, 1e9, 2), case)

    def test_what_was_moved_without_a_disk_is_expected_with_it(self):
        """4000 MB of peak, 2000 too few, 8000 moved: 2600 too few move 10,400. The disk takes 8,000 in the time of a row."""
        jobs = self.jobs()
        jobs.disk.write = jobs.disk.read = 8000 * MIB * 2 / visit_disk.ROW_SECONDS
        case, cases = visit_jobs.Case("gpt", Path("train"), self.SIZES), []
        jobs.train = lambda label, case, *_, **__: (cases.append(case), (
            finished(spilled=8000 * MIB, peak=4000 * MIB, budget=4000 * MIB), visit_watch.Ended(0, 1.0, "")))[1]  # fmt: skip
        reference = finished(peak=4000 * MIB)
        jobs.compare(case, (visit_jobs.Way(50),), reference)
        for share, smaller in ((35, True), (50, False)):
            jobs.compare_on_disk(case, visit_jobs.Way(share, host=0.05), reference, steps=2)
            self.assertEqual(cases[-1] != case, smaller)
        self.assertEqual(len(cases), 4, "a smaller job is run uncapped, too")


if __name__ == "__main__":
    unittest.main()
