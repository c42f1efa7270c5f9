"""The parts of the third-party jobs that need no device: hashes that see every bit, judgements that can fail."""

import contextlib
import dataclasses
import io
import json
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

import estimates
import held
import observe
import run
import torch
from run import MIB, harness, job

PAGE = run.Page("page", 4, held.Waste(0.25, "1.6 in 2"), same=("one", "other"))


class HashTest(unittest.TestCase):
    def test_sees_one_bit(self):
        value = torch.arange(1000, dtype=torch.float32)
        changed = value.clone()
        changed.view(torch.int32)[500] ^= 1
        self.assertNotEqual(observe.sha256({"a": value}), observe.sha256({"a": changed}))

    def test_sees_sign_of_zero_and_dtype_and_shape_and_name(self):
        zero = torch.zeros(4)
        others = [-zero, zero.half(), zero.reshape(2, 2), zero.to(torch.int32)]
        hashes = [observe.sha256({"a": one}) for one in (zero, *others)] + [observe.sha256({"b": zero})]
        self.assertEqual(len(set(hashes)), len(hashes))

    def test_follows_modules_and_optimizers(self):
        torch.manual_seed(1)
        model = torch.nn.Linear(3, 3)
        optimizer = torch.optim.Adam(model.parameters())
        before = observe.sha256(optimizer), observe.sha256(model)
        model(torch.ones(3)).sum().backward()
        optimizer.step()
        self.assertEqual([a != b for a, b in zip(before, (observe.sha256(optimizer), observe.sha256(model)))], [True, True])

    def test_is_the_same_for_other_strides_and_order_of_keys(self):
        value = torch.randn(4, 6)
        self.assertEqual(observe.sha256({"a": value, "b": 1}), observe.sha256({"b": 1, "a": value.t().contiguous().t()}))


def finished(**changes):
    """A run that is good but for the changes."""
    keys = dict(mode=job.PRELOAD, status="ok", losses_sha256="l", state_sha256="s", peak_bytes=90 * MIB,
                budget_bytes=100 * MIB, spilled_bytes=1, host_spilled_bytes=1, disk_written_bytes=0, fetched_bytes=1,
                tokens_per_s=2.0)  # fmt: skip
    report = {"losses": ["0x1p+0", "0x1p+1"], "state_hashes": {"one": "h", "other": "h", "model": "m"},
              "memory": {"max_allocated_large_bytes": 90, "max_allocated_bytes": 100}}  # fmt: skip
    metrics = {"devices": [{"peak_live_bytes": 126, "peak_requested_bytes": 100}], "pinned_bytes_by_reason": {"denied": 0}}
    one = SimpleNamespace(keys=keys, report=report, metrics=metrics, log=changes.pop("log", ""), seconds=1.0)
    for name, value in changes.items():
        places = (keys, report["state_hashes"], report["memory"], report, metrics["devices"][0], metrics["pinned_bytes_by_reason"])
        place = next(p for p in places if name in p)
        place[name] = value
    return one


class EstimatesTest(unittest.TestCase):
    def chosen(self, *cases, **more):
        args = SimpleNamespace(cases=cases, ci=False, clock="wall", peaks=False, **more)
        shaped = estimates.chosen(args, estimates.SHAPED)
        return [page.name for page in estimates.pages_for(args, shaped)], shaped

    def test_a_chosen_case_brings_the_page_whose_config_it_takes(self):
        pages, shaped = self.chosen("Shaped/gpt2")
        self.assertEqual(pages, ["gpt2"])
        self.assertTrue(shaped)
        self.assertEqual(self.chosen("Page/lora"), (["lora"], []))
        self.assertEqual(self.chosen()[0], [page.name for page in estimates.PAGES])

    def test_changes_make_a_config_file_of_their_own(self):
        with tempfile.TemporaryDirectory() as folder:
            bench = estimates.Bench(SimpleNamespace(work=Path(folder)))
            bench.configs["gpt2"].write_text('{"n_embd": 64, "activation_function": "gelu_new"}', encoding="utf-8")
            plain = estimates.Shaped("gpt2", "--batch 1")
            self.assertEqual(bench.config_of(plain, 0), bench.configs["gpt2"])
            changed = estimates.Shaped("gpt2", "--batch 1", changes=(("activation_function", "relu"),))
            self.assertEqual(json.loads(bench.config_of(changed, 1).read_text(encoding="utf-8")),
                             {"n_embd": 64, "activation_function": "relu"})  # fmt: skip
            self.assertIn("gelu_new", bench.configs["gpt2"].read_text(encoding="utf-8"))


class JudgementTest(unittest.TestCase):
    def problems(self, judge, *runs):
        problems = harness.Problems()
        with contextlib.redirect_stdout(io.StringIO()):
            judge(PAGE, *runs, problems)
        return len(problems.found)

    def test_a_good_row_has_none(self):
        self.assertEqual(self.problems(run.judge_uncapped, finished()), 0)
        self.assertEqual(self.problems(run.judge_plain, finished(status="out_of_memory")), 0)
        self.assertEqual(self.problems(run.judge_capped, finished(), finished()), 0)

    def test_each_fault_is_found(self):
        for changes in ({"status": "failed"}, {"losses": ["0x1p+0", "0x1p+0"]}, {"peak_bytes": 0},
                        {"max_allocated_large_bytes": 79}):  # fmt: skip
            self.assertEqual(self.problems(run.judge_uncapped, finished(**changes)), 1, changes)
        for status in ("ok", "failed"):
            self.assertEqual(self.problems(run.judge_plain, finished(status=status)), 1, status)
        for changes in ({"status": "failed"}, {"losses_sha256": "x"}, {"state_sha256": "x", "model": "x"},
                        {"spilled_bytes": 0}, {"fetched_bytes": None}, {"peak_bytes": 101 * MIB}, {"one": "x"},
                        {"peak_live_bytes": 127}, {"peak_requested_bytes": 0}, {"denied": 1}, {"log": f"x {held.DENIED[0]}: y"}, {"log": f"x {held.DENIED[1]}: y"}):  # fmt: skip
            self.assertEqual(self.problems(run.judge_capped, finished(**changes), finished()), 1, changes)

    def test_a_device_whose_waste_was_not_measured_is_not_judged_by_it(self):
        page = dataclasses.replace(PAGE, waste=None)
        for changes, found in (({"peak_live_bytes": 500}, 0), ({"denied": 1}, 1)):
            problems = harness.Problems()
            with contextlib.redirect_stdout(io.StringIO()):
                run.judge_capped(page, finished(**changes), finished(), problems)
            self.assertEqual(len(problems.found), found)

    def test_the_row_says_no_when_a_bit_differs(self):
        good, plain = finished(), finished(status="out_of_memory", mode=job.PLAIN)
        self.assertEqual(run.row_of(PAGE, 4, good, plain, finished())["equal"], True)
        row = run.row_of(PAGE, 4, good, plain, finished(state_sha256="x"))
        self.assertEqual(row["equal"], False)
        self.assertIn("NO", run.table([row])[1])
        self.assertIn("26.0 %", run.table([row])[1])

    def test_the_waste_of_a_job_is_that_of_its_worst_device(self):
        def rank(*pinned_bytes):
            return {"devices": [{"peak_live_bytes": size, "peak_requested_bytes": 100} for size in pinned_bytes]}

        self.assertAlmostEqual(harness.largest_waste([rank(105, 120), None, rank(101)]), 0.2)
        self.assertIsNone(harness.largest_waste([None, {"devices": []}]))


if __name__ == "__main__":
    unittest.main()
