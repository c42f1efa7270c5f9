"""The visit's job without PyTorch, over runs that are made up: what passes, what fails, and the reruns of the first failure."""

import argparse
import unittest
from unittest import mock

from visit_test import Quiet  # (finds the modules of the visit)

import visit_disk
import visit_facts
import visit_jobs
import visit_plain
import visit_rows
import visit_watch


class PlainJobTest(Quiet):
    def plain(self, answer, device="gpu", minutes=10, climbed=False, size="small", rate=visit_disk.ASSUMED):
        table = self.table(minutes)
        args = argparse.Namespace(device=device, work=self.folder, build=self.folder, spill=None, size=size)
        disk = visit_disk.Disk(visit_facts.Program(args, table))
        disk.write = disk.read = rate
        jobs = argparse.Namespace(reruns=visit_jobs.Reruns(), disk=disk)
        jobs.reruns.climbed = climbed
        self.calls, self.arguments = {}, {}

        def run(_program, label, _name, *arguments, **more):
            self.calls[label], self.arguments[label] = more, " ".join(arguments)
            if "uncapped" in label:
                return visit_watch.Ended(0, 20.0, ""), {"products": {"differences": 0, "rounds": 3}}
            return answer(label)

        with mock.patch.object(visit_facts.Program, "run", run):
            visit_plain.plain_job(args, table, jobs)
        return table

    def reruns(self, table):
        return [row for row in table.rows if row["row"].startswith("rerun")]

    @staticmethod
    def good(_label):
        return visit_watch.Ended(0, 1.0, ""), {"spilled_bytes": 1, "products": {"differences": 0, "rounds": 3}}

    def test_a_good_one_passes_and_is_not_run_again(self):
        table = self.plain(self.good)
        self.assertEqual([row["status"] for row in table.rows], [visit_rows.PASSED] * 6)
        self.assertEqual(len(self.calls), 3)
        self.assertEqual(self.calls["plain job: 50 %, disk"]["limit"], visit_jobs.HANG * 20)

    def test_the_first_failure_is_rerun_once_in_each_way(self):
        bad = visit_watch.Ended(1, 1.0, "a word is wrong"), None
        table = self.plain(lambda label: self.good(label) if "strict" in label else bad)
        reruns = self.reruns(table)
        self.assertEqual([row["row"].rsplit(": ", 1)[1] for row in reruns], list(visit_jobs.LADDER))
        self.assertEqual([row["words"] == "it passes so" for row in reruns], [name == "strict" for name in visit_jobs.LADDER])
        self.assertEqual(len(table.with_status(visit_rows.FAILED)), 2, "reruns judge nothing")
        made = {label.rsplit(": ", 1)[1]: more for label, more in self.calls.items() if label.startswith("rerun")}
        self.assertEqual(made["lru"]["spillway"], {"gpu_memory": "96MiB", "host_memory": "384MiB", "policy": "lru"})
        self.assertEqual(made["no disk"]["spillway"]["dirs"], "none")
        self.assertEqual(made["strict"]["spillway"]["trust"], "strict")
        self.assertEqual(made["blocking launches"]["CUDA_LAUNCH_BLOCKING"], "1")
        self.assertEqual((made["audit"]["spillway"]["audit"], made["audit"]["spillway"]["gpu_memory"]), ("on", "384MiB"))

    def test_each_kind_of_failure_is_seen(self):
        for figures, failed in (({"spilled_bytes": 0}, "nothing was spilled"),
                                ({"spilled_bytes": 1, "products": {"differences": 1, "rounds": 3}}, "1 of 3 differ")):  # fmt: skip
            table = self.plain(lambda _, figures=figures: (visit_watch.Ended(0, 1.0, ""), figures))
            self.assertEqual({row["words"] for row in table.with_status(visit_rows.FAILED)}, {failed})
            self.assertEqual(len(self.reruns(table)), len(visit_jobs.LADDER))

    def test_what_is_no_failure_or_not_the_first_is_not_run_again(self):
        late = visit_watch.Ended(-9, 1.0, "", True, True), None
        table = self.plain(lambda _: late)
        self.assertEqual([row["status"] for row in table.rows[2:]], [visit_rows.LEFT_OUT] * 2)
        table = self.plain(lambda _: (visit_watch.Ended(1, 1.0, "wrong"), None), climbed=True)
        self.assertEqual(self.reruns(table), [])
        table = self.plain(lambda _: (visit_watch.Ended(1, 1.0, "wrong"), None), minutes=0.2)
        self.assertEqual({row["status"] for row in self.reruns(table)}, {visit_rows.LEFT_OUT})

    def test_the_job_on_a_disk_is_as_large_as_the_disk_allows(self):
        for rate, mib, most in ((100e6, 8, 80), (200e6, 8, 40), (1e9, 42, 40), (2e9, 64, 40)):
            self.plain(self.good, size="large", rate=rate)
            self.assertIn(f"--rounds 3 --products 1 --blocks 64 --mib {mib}", self.arguments["plain job: 50 %, disk"])
            self.assertEqual(self.calls["plain job: 50 %, disk"]["spillway"]["gpu_memory"], f"{32 * mib}MiB")
            self.assertIn("--blocks 64 --mib 64", self.arguments["plain job: 50 %, host memory"])
            self.assertLess(2 * visit_plain.DISK_PASSES * 64 * mib * (1 << 20) / rate, most, "seconds, all out and in each time")
        more = self.calls["plain job: 50 %, disk"]["allowance"](self.folder / "plain.metrics.json")
        self.assertEqual(more(), 0)
        (self.folder / "plain.metrics.json").write_text('{"disk_spilled_bytes": 2e9, "disk_fetched_bytes": 2e9}')
        self.assertEqual(more(), visit_jobs.HANG * 2)

    def test_what_fails_on_the_disk_alone_is_tried_without_it(self):
        bad = visit_watch.Ended(1, 1.0, "a word is wrong"), None
        table = self.plain(lambda label: bad if "disk" in label and "no disk" not in label else self.good(label))
        self.assertEqual([(row["row"], row["words"]) for row in self.reruns(table)],
                         [("rerun of plain job, disk: no disk", "it passes so")])  # fmt: skip

    def test_an_error_in_one_part_leaves_the_others(self):
        def answer(label):
            if "host memory" in label:
                raise FileNotFoundError(label)
            return self.good(label)

        table = self.plain(answer)
        self.assertEqual([row["status"] for row in table.rows[2:]], [visit_rows.FAILED, *[visit_rows.PASSED] * 2])

    def test_the_stand_in_takes_the_budget_as_its_memory_and_audits_by_faults(self):
        self.plain(lambda _: (visit_watch.Ended(1, 1.0, "wrong"), None), device="simcuda")
        made = {label.rsplit(": ", 1)[1]: more for label, more in self.calls.items() if label.startswith("rerun")}
        self.assertEqual((made["lru"]["memory"], made["audit"]["memory"]), ("96MiB", "384MiB"))
        self.assertEqual(made["audit"]["options"], ("--mode", "fault"))


if __name__ == "__main__":
    unittest.main()
