"""The jobs of a GPU session over runs that are made up: what passes, what fails, what cannot be compared, what is run again."""

import argparse
import json
import os
import sys
import unittest
from pathlib import Path
from unittest import mock

from visit_test import Quiet  # (finds the modules of the session)

import conf_python
import visit_disk
import visit_facts
import visit_jobs
import visit_rows
import visit_watch

MIB = 1 << 20
METRICS = {"spilled_bytes": 3e9, "fetched_bytes": 2e9, "lost_seconds": {"run_ahead": 0.0, "arrival": 0.25}, "launches": 9, "slow_launches": 1,
           "unknown_kernel_launches": 2, "unmatched_addresses": 3, "pinned_bytes_by_reason": {"graph": 5e6, "peer": 0}, "evictions_ended": "a call",
           "devices": [{"followed_launches": 4}]}  # fmt: skip
WAYS = (visit_jobs.Way(50), visit_jobs.Way(40))


def finished(losses="same", status="ok", peak=100 * MIB, budget=100 * MIB, spilled=1, seconds=1.0):
    keys = dict.fromkeys(visit_jobs.job.KEYS)
    keys.update(status=status, losses_sha256=losses, state_sha256="state", peak_bytes=peak, budget_bytes=budget,
                spilled_bytes=spilled, tokens_per_s=10.0)  # fmt: skip
    return visit_jobs.job.Run(keys, {"memory": {}}, METRICS, {}, "the log", seconds, 0)


class ConfPythonTest(Quiet):
    def test_an_environment_that_was_left_halfway_is_made_anew(self):
        build = self.folder / "build"
        (build / "python" / "spillway").mkdir(parents=True)
        with self.assertRaises(FileNotFoundError):  # the hook is not there
            conf_python.python_with_start_up(build, self.folder)
        (build / "python" / "spillway_start_up.pth").write_text("import os\n")
        python = Path(conf_python.python_with_start_up(build, self.folder))
        self.assertTrue(list(python.parents[1].glob("lib/python*/site-packages/spillway_start_up.pth")))

    def test_what_the_command_said_is_told(self):
        with self.assertRaisesRegex(RuntimeError, "ends with 3: no such module"):
            conf_python.output_of(sys.executable, "-c", "print('no such module'); raise SystemExit(3)")


class WithJobs(Quiet):
    def jobs(self, device="gpu", minutes=10):
        args = argparse.Namespace(device=device, work=self.folder, build=self.folder, spill=None, only=None, size="large")
        table = self.table(minutes)
        return visit_jobs.Jobs(args, table, visit_disk.Disk(visit_facts.Program(args, table)))


class JobsTest(WithJobs):
    """Jobs over runs that are made up."""

    def compare(self, answer, device="gpu", feature=False, ways=(visit_jobs.Way(50),), minutes=10, again="same", twice=False):
        """again: the bits of a second uncapped run, or the error that it ends in."""
        jobs = self.made = self.jobs(device, minutes)
        table = jobs.rows
        self.calls = []

        def train(label, case, way=None, peak=None, limit=None, extra=None, prefix=()):
            self.calls.append((label, way, limit, extra))
            if label == "uncapped again" and isinstance(again, Exception):
                raise again
            uncapped = finished(again if label == "uncapped again" else "same", budget=1000 * MIB, seconds=20.0)
            run = uncapped if way is None else answer(label)
            status = run.keys["status"]
            return run, visit_watch.Ended(0, run.seconds, run.log, status in ("cut", "late"), status == "late")

        jobs.train = train
        case = visit_jobs.Case("case", Path("script"), (), feature=feature)
        jobs.reference(case, again=twice)
        for way in ways:
            jobs.compare(case, way)
        return table

    @staticmethod
    def statuses(table):
        return [row["status"] for row in table.rows if "uncapped" not in row["row"]]

    def test_the_same_bits_within_the_budget_pass(self):
        table = self.compare(lambda label: finished())
        self.assertEqual([row["status"] for row in table.rows], [visit_rows.MEASURED, visit_rows.PASSED])
        self.assertEqual(self.calls[1][2], visit_jobs.HANG * 20)
        words = table.rows[1]["words"]
        for figure in ("ratio 1.000", "out 3.00 GB, in 2.00", "lost s: arrival 0.25", "9 launches, 1 slow, 2 unknown", "3 numbers like addresses",
                       "held by graph 5 MB", "4 by a plan", "evictions ended: a call"):  # fmt: skip
            self.assertIn(figure, words)

    def test_what_hardware_alone_answers_does_not_pass_on_the_stand_in(self):
        for device, status in (("simcuda", visit_rows.NEEDS_HARDWARE), ("gpu", visit_rows.PASSED)):
            self.assertEqual(self.statuses(self.compare(lambda label: finished(), device=device, feature=True)), [status])

    def test_each_kind_of_failure_is_seen(self):
        for bad, words in ((finished(losses="other"), "other bits"), (finished(spilled=0), "nothing was spilled"),
                           (finished(peak=200 * MIB), "over its budget"), (finished(status="failed"), "failed"),
                           (finished(status="cut"), "cut off")):  # fmt: skip
            table = self.compare(lambda label, bad=bad: bad)
            row = next(row for row in table.rows if row["row"] == "case: 50 %, host memory")
            self.assertEqual(row["status"], visit_rows.FAILED, words)
            self.assertIn(words, row["words"])

    def test_a_run_that_the_end_of_the_session_cuts_off_is_no_failure(self):
        table = self.compare(lambda label: finished(status="late"), ways=WAYS)
        self.assertEqual(self.statuses(table), [visit_rows.LEFT_OUT] * 2)
        table.repeat()
        self.assertEqual(len(self.calls), 3, "it is not run again")
        self.assertEqual(table.finish(), 3)

    def test_an_uncapped_run_without_time_is_left_out(self):
        jobs = self.jobs(minutes=0.02)
        case = visit_jobs.Case("case", Path("script"), ())
        self.assertIsNone(jobs.reference(case))
        jobs.repeats(case, finished())
        self.assertIsNone(jobs.same_bits[case.name])
        self.assertEqual([row["status"] for row in jobs.rows.rows], [visit_rows.LEFT_OUT] * 2)
        jobs.compare(case, visit_jobs.Way(50))
        self.assertEqual(len(jobs.rows.rows), 2, "without it there is nothing to compare with")

    def test_failures_are_run_again_at_the_end(self):
        answers = {"50 %, host memory": "other", "40 %, host memory": "other", "again": "same"}
        table = self.compare(lambda label: finished(answers[label]), ways=WAYS)
        self.assertNotIn("again", [call[0] for call in self.calls], "not before the rows behind it")
        table.repeat()
        again = [row for row in table.rows if row["row"].startswith("again: ")]
        self.assertEqual([(row["status"], row["words"]) for row in again], [(visit_rows.MEASURED, "it passes now")] * 2)
        self.assertEqual(table.finish(), 1, "it has failed all the same")
        answers["again"] = "other"
        table.repeat()
        self.assertIn("other bits", table.rows[-1]["words"])

    def test_a_failure_is_tried_with_one_thing_changed_in_each_run(self):
        table = self.compare(lambda label: finished("same" if "strict" in label else "other"), ways=())
        case, way = visit_jobs.Case("case", Path("script"), ()), visit_jobs.Way(50, mode=visit_jobs.job.CONF)
        self.made.climb(case, way, self.made.reference(case))
        rungs = {row["row"].rsplit("with ", 1)[1]: row for row in table.rows if ", with " in row["row"]}
        self.assertEqual(list(rungs), list(visit_jobs.LADDER))
        self.assertEqual([row["words"] == "it passes so" for row in rungs.values()], [name == "strict" for name in rungs])
        self.assertEqual(table.with_status(visit_rows.FAILED), [], "they judge nothing")
        ways = {label.removeprefix("with "): (way, extra) for label, way, _, extra in self.calls if label.startswith("with ")}
        self.assertEqual({way.mode for way, _ in ways.values()}, {visit_jobs.job.PRELOAD})
        self.assertEqual(dict(ways["lru"][0].settings), {"policy": "lru"})
        self.assertEqual((dict(ways["no disk"][0].settings), ways["no disk"][0].host), ({"dirs": "none"}, visit_jobs.NO_DISK_HOST))
        self.assertEqual(ways["blocking launches"][1], {"CUDA_LAUNCH_BLOCKING": "1"})
        self.assertGreater(ways["audit"][0].share, 100)

    def test_bits_are_judged_by_a_second_uncapped_run(self):
        for again, status, words in (("third", visit_rows.MEASURED, "not comparable: other bits"),
                                     ("same", visit_rows.FAILED, "other bits than uncapped: losses"),
                                     (OSError("no such program"), visit_rows.FAILED, "other bits")):  # fmt: skip
            table = self.compare(lambda label: finished("other"), again=again, ways=WAYS)
            by_row = {row["row"]: row for row in table.rows}
            self.assertEqual([row for row in by_row if "again" in row], ["case: uncapped again"], "once for both ways")
            for row in ("case: 50 %, host memory", "case: 40 %, host memory"):
                self.assertEqual(by_row[row]["status"], status, again)
                self.assertIn(words, by_row[row]["words"])
        table = self.compare(lambda label: finished("other", spilled=0), again="third")
        self.assertIn("nothing was spilled", table.rows[1]["words"], "a failure that is no matter of bits")

    def test_a_case_that_must_repeat_its_bits_fails_where_it_does_not(self):
        table = self.compare(lambda label: finished(), again="third", twice=True, ways=())
        self.assertEqual([(row["row"], row["status"]) for row in table.rows],
                         [("case: uncapped", visit_rows.MEASURED), ("case: uncapped again", visit_rows.FAILED)])  # fmt: skip

    def test_an_error_in_one_way_leaves_the_others(self):
        def answer(label):
            if "50 %" in label:
                raise FileNotFoundError("bin/python")
            return finished()

        table = self.compare(answer, ways=WAYS)
        self.assertEqual(self.statuses(table), [visit_rows.FAILED, visit_rows.PASSED])
        self.assertIn("FileNotFoundError", table.rows[1]["words"])

    def test_a_run_on_a_slow_disk_is_cut_by_its_bytes(self):
        """A command that moves bytes for longer than its limit, and one that has moved some and hangs."""
        jobs = self.jobs()
        jobs.disk.write = jobs.disk.read = 1e9
        allowance, fifo = jobs.disk.allowance, self.folder / "fifo"
        os.mkfifo(fifo)
        for name, moved, cut in (("moves", [25e6, 50e6, 1e12], False), ("hangs", [25e6, 25e6], True)):
            log = self.folder / f"{name}.log"

            def run_job(here, mode, arguments, cap, total, script, label, extra_environment, prefix, runner, log=log):
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
                _, ended = jobs.train(name, case, visit_jobs.Way(50), 100 * MIB, limit=0.1)
            self.assertEqual((name, ended.cut, moved), (name, cut, []))

    def test_an_iteration_takes_the_median_of_the_last_half(self):
        run = finished()
        self.assertNotIn("iteration_s", visit_jobs.figures(run))
        run.report.update(step_seconds=[9.0, 7.0, 1.0, 3.0, 2.0], memory={"max_allocated_bytes": 5})
        figures = visit_jobs.figures(run)
        self.assertEqual((figures["iteration_s"], figures["allocated_bytes"]), (2.0, 5))
        self.assertTrue(visit_jobs.explained(run, finished()).startswith("2.000 s an iteration, ratio 1.000"))

    def test_a_peer_has_the_wheels_and_tells_its_peak(self):
        wheel = self.folder / "wheels" / "peer-1-py3-none-any.whl"
        wheel.parent.mkdir()
        wheel.write_text("")
        beside, case = (visit_jobs.Case(name, Path("script"), ()) for name in ("case", "case: peer"))
        lacking = finished(status="failed", losses="other")
        lacking.log = "ModuleNotFoundError: No module named 'peer'"
        for run, peak, status in ((finished(peak=7 * MIB), 7 * MIB, visit_rows.MEASURED), (lacking, None, visit_rows.MISSING),
                                  (finished(status="failed"), None, visit_rows.FAILED)):  # fmt: skip
            jobs, extras = self.jobs(), []
            jobs.references["case"] = finished()
            jobs.train = lambda *_, extra=None, run=run, **__: (extras.append(extra), (run, visit_watch.Ended(0, 1.0, run.log)))[1]
            with mock.patch.dict("os.environ", {"PYTHONPATH": "/mine"}):
                self.assertEqual(jobs.peer(case, beside), peak)
            self.assertEqual(extras, [{"PYTHONPATH": f"{wheel}:/mine"}])
            self.assertEqual([row["status"] for row in jobs.rows.rows], [status])
        self.assertIsNone(self.jobs().peer(case, beside), "nothing to stand beside")

    def test_without_time_rows_are_left_out(self):
        table = self.compare(lambda label: finished(), minutes=0.2)
        self.assertEqual(self.statuses(table), [visit_rows.LEFT_OUT])


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


if __name__ == "__main__":
    unittest.main()
