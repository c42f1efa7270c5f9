"""The visit's job without PyTorch, over runs that are made up: what passes, what fails, and the reruns of the first failure."""

import argparse
import unittest
from unittest import mock

from visit_test import Quiet  # (finds the modules of the visit)

import visit_facts
import visit_jobs
import visit_plain
import visit_rows
import visit_watch


class PlainJobTest(Quiet):
    def plain(self, answer, device="gpu", minutes=10, climbed=False):
        table = self.table(minutes)
        args = argparse.Namespace(device=device, work=self.folder, build=self.folder, spill=None, size="small")
        jobs = argparse.Namespace(climbed=climbed)
        self.calls = {}

        def run(_program, label, _name, *_, **more):
            self.calls[label] = more
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

    def test_the_stand_in_takes_the_budget_as_its_memory_and_audits_by_faults(self):
        self.plain(lambda _: (visit_watch.Ended(1, 1.0, "wrong"), None), device="simcuda")
        made = {label.rsplit(": ", 1)[1]: more for label, more in self.calls.items() if label.startswith("rerun")}
        self.assertEqual((made["lru"]["memory"], made["audit"]["memory"]), ("96MiB", "384MiB"))
        self.assertEqual(made["audit"]["options"], ("--mode", "fault"))


if __name__ == "__main__":
    unittest.main()
