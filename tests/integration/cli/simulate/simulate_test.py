"""`spillway simulate` on one machine: what it prints, its files, and what it says to wrong use."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from simulate_helpers import MIB, PROGRAM, layered, result_of, simulate, without_lp, write_csv  # noqa: E402

KEYS = {
    "policy", "kernels", "tensors", "percent_of_ideal", "percent_of_bound", "share_is_known", "iteration_us", "ideal_us", "bound_kind",
    "bound_us", "bound_s", "quick_bound_us", "host_to_gpu_bytes", "gpu_to_host_bytes", "ssd_to_gpu_bytes",
    "gpu_to_ssd_bytes", "ssd_to_host_bytes", "stall_us", "read_wait_us", "memory_wait_us", "ssd_read_wait_us", "ssd_memory_wait_us",
    "peak_gpu_bytes", "peak_host_bytes", "peak_live_bytes", "evictions_in_need", "plan_first_s", "plan_best_s",
    "plan_trials", "options",
}  # fmt: skip
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "..")
TIGHT = ("--gpu-memory", "128MiB", "--host-memory", "60MiB", "--ssd-read", "2e9", "--ssd-write", "2e9", "--pcie", "8e9")


class Simulate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.trace = layered(cls.path("layers"))

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    @classmethod
    def path(cls, *names):
        return os.path.join(cls.scratch.name, *names)

    def refused(self, words, *options, trace=None, status=2):
        run = simulate(trace or self.trace, *options)
        self.assertEqual(run.returncode, status, (options, run.stdout, run.stderr))
        self.assertRegex(run.stderr, words)
        self.assertEqual(run.stdout, "")


class Results(Simulate):
    def test_json_has_every_key_and_they_agree(self):
        own = result_of(self.trace, *TIGHT)
        self.assertEqual(set(own), KEYS)
        self.assertAlmostEqual(own["percent_of_ideal"], 100 * own["ideal_us"] / own["iteration_us"], places=6)
        self.assertAlmostEqual(own["percent_of_bound"], 100 * own["bound_us"] / own["iteration_us"], places=6)
        self.assertAlmostEqual(own["stall_us"], own["read_wait_us"] + own["memory_wait_us"], delta=0.01)
        self.assertAlmostEqual(own["iteration_us"] - own["ideal_us"], own["stall_us"], delta=0.01)
        self.assertLessEqual(own["ssd_read_wait_us"], own["read_wait_us"])
        self.assertLessEqual(own["ssd_memory_wait_us"], own["memory_wait_us"])
        self.assertGreater(own["stall_us"], 0)
        self.assertGreater(own["gpu_to_ssd_bytes"], 0)
        self.assertLessEqual(own["peak_gpu_bytes"], 128 * MIB)
        self.assertLessEqual(own["peak_host_bytes"], 60 * MIB)
        self.assertEqual(own["ideal_us"], (1 + 12 + 2 * 12) * 2000)

    def test_the_text_says_the_same_with_units(self):
        own = result_of(self.trace, *TIGHT)
        text = simulate(self.trace, *TIGHT).stdout
        at_least = "" if own["share_is_known"] else "at least "
        for words in (
            f"{own['kernels']} kernels, {own['tensors']} tensors",
            f"{own['percent_of_ideal']:.2f} % of ideal, {at_least}{own['percent_of_bound']:.2f} % of bound (quick)",
            f"iteration {own['iteration_us'] / 1e6:.3f} s, ideal {own['ideal_us'] / 1e6:.3f} s",
            f"GPU to SSD {own['gpu_to_ssd_bytes'] / 2**30:.2f}",
            f"for bytes {own['read_wait_us'] / 1e6:.3f} (from the SSD {own['ssd_read_wait_us'] / 1e6:.3f})",
            f"peak memory, GiB: GPU {own['peak_gpu_bytes'] / 2**30:.2f}, host {own['peak_host_bytes'] / 2**30:.2f}",
        ):
            self.assertIn(words, text)

    def test_waits_for_the_host_are_none_for_the_ssd(self):
        own = result_of(self.trace, "--gpu-memory", "128MiB", "--pcie", "1e9")
        self.assertGreater(own["stall_us"], 0)
        self.assertEqual((own["ssd_read_wait_us"], own["ssd_memory_wait_us"], own["ssd_to_gpu_bytes"]), (0, 0, 0))
        alone = result_of(self.trace, "--gpu-memory", "128MiB", "--pcie", "64e9", "--host-memory", 0, "--ssd-read", "1e9",
                          "--ssd-write", "1e9")  # fmt: skip
        self.assertGreater(alone["stall_us"], 0)
        self.assertEqual(alone["ssd_read_wait_us"], alone["read_wait_us"])
        self.assertEqual((alone["host_to_gpu_bytes"], alone["peak_host_bytes"]), (0, 0))

    def test_each_option_of_the_machine_tells(self):
        base = result_of(self.trace, *TIGHT)
        self.assertEqual(base["options"]["pcie-in"], "8e9")
        for options in (
            ["--gpu-memory", "160MiB"],
            ["--host-memory", "200MiB"],
            ["--pcie-in", "3e9"],
            ["--pcie-out", "3e9"],
            ["--ssd-read", "1e9"],
            ["--ssd-write", "1e9"],
            ["--ssd-shared"],
            ["--latency", "500"],
            ["--piece", "0"],
            ["--policy", "lru"],
        ):
            given = dict(zip(TIGHT[::2], TIGHT[1::2]))
            given[options[0]] = options[1] if len(options) > 1 else None
            words = [word for pair in given.items() for word in pair if word is not None]
            other = result_of(self.trace, *words)
            self.assertNotEqual(other["iteration_us"], base["iteration_us"], options)

    def test_a_quick_bounds_share_is_at_least_that(self):
        known = set()
        rates = TIGHT[4:]
        for memory in ("160MiB", "192MiB", "224MiB", "1GiB"):
            own = result_of(self.trace, *rates, "--host-memory", "60MiB", "--gpu-memory", memory)
            self.assertEqual(own["share_is_known"], own["percent_of_bound"] >= 98)
            text = simulate(self.trace, *rates, "--host-memory", "60MiB", "--gpu-memory", memory).stdout
            self.assertEqual("at least" in text, not own["share_is_known"], text)
            known.add(own["share_is_known"])
        self.assertEqual(known, {False, True})

    def test_a_coarse_bound_is_between_and_needs_no_solver(self):
        wheels = os.path.join(os.path.dirname(os.path.dirname(PROGRAM)), "wheel", "bin", "spillway")
        quick = result_of(self.trace, *TIGHT)
        for kind in ("coarse", "coarse-one-tier"):
            own = result_of(self.trace, *TIGHT, "--bound", kind)
            self.assertEqual((own["bound_kind"], own["evictions_in_need"]), (kind, 0))
            self.assertTrue(own["share_is_known"])
            self.assertGreaterEqual(own["bound_us"], quick["bound_us"])
            self.assertLessEqual(own["bound_us"], own["iteration_us"] * 1.00001)
            noisy = result_of(self.trace, *TIGHT, "--bound", kind, "--noise", 0.2)
            self.assertNotEqual(noisy["ideal_us"], own["ideal_us"])  # what must be waited for is the same
            self.assertAlmostEqual(noisy["bound_us"] - noisy["ideal_us"], own["bound_us"] - own["ideal_us"], delta=0.01)
            if os.path.exists(wheels):
                run = subprocess.run([wheels, "simulate", "--trace", self.trace, *TIGHT, "--bound", kind, "--json"],
                                     capture_output=True, text=True, check=True, timeout=100)  # fmt: skip
                self.assertEqual(json.loads(run.stdout)["bound_us"], own["bound_us"])

    def test_a_plan_that_evicts_in_need_is_bounded_by_all_plans(self):
        some, all_plans = (result_of(self.trace, *TIGHT, "--policy", "lru", "--bound", kind)
                           for kind in ("coarse-one-tier", "coarse"))  # fmt: skip
        self.assertGreater(some["evictions_in_need"], 0)
        self.assertEqual((some["bound_kind"], some["bound_us"]), ("coarse", all_plans["bound_us"]))

    @unittest.skipIf(without_lp(), "built without CLP")
    def test_bounds_are_ordered_and_named(self):
        found = {kind: result_of(self.trace, *TIGHT, "--bound", kind) for kind in ("quick", "lp", "lp-one-tier")}
        for kind, own in found.items():
            self.assertEqual(own["bound_kind"], kind)
            self.assertLessEqual(own["bound_us"], own["iteration_us"] * 1.00001)
            self.assertIn(f"of bound ({kind})", simulate(self.trace, *TIGHT, "--bound", kind).stdout)
        self.assertLessEqual(found["quick"]["bound_us"], found["lp"]["bound_us"] * 1.00001)

    def test_policies_are_as_good_as_their_names(self):
        policies = ("plan", "lru", "belady", "g10") + (() if without_lp() else ("lp",))
        found = {p: result_of(self.trace, *TIGHT, "--policy", p)["iteration_us"] for p in policies}
        self.assertLess(found["plan"], found["lru"])
        self.assertLessEqual(found["plan"], found["belady"] * 1.001)
        self.refused("without moving anything", *TIGHT, "--policy", "none", status=1)
        self.assertEqual(result_of(self.trace, "--policy", "none")["stall_us"], 0)

    def test_noise(self):
        runs = [result_of(self.trace, *TIGHT, "--noise", 0.25, "--seed", seed) for seed in (1, 1, 2)]
        self.assertEqual(runs[0]["iteration_us"], runs[1]["iteration_us"])
        self.assertNotEqual(runs[0]["ideal_us"], runs[2]["ideal_us"])
        for own in runs:  # of the kernels as they came
            self.assertAlmostEqual(own["percent_of_ideal"], 100 * own["ideal_us"] / own["iteration_us"], places=6)
            self.assertGreaterEqual(own["bound_us"], own["ideal_us"])

    def test_a_trace_without_time_or_tensors(self):
        trace = write_csv(self.path("nothing"), [], [("k", 0, [], [], 0)])
        own = result_of(trace)
        self.assertEqual((own["ideal_us"], own["stall_us"], own["peak_gpu_bytes"]), (0, own["iteration_us"], 0))
        self.assertLess(own["iteration_us"], 0.01)  # the simulator's clock ticks


class Files(Simulate):
    def test_schedule(self):
        target = self.path("schedule.csv")
        self.assertEqual(simulate(self.trace, *TIGHT, "--schedule", target).returncode, 0)
        with open(target, encoding="utf-8") as file:
            head, *rows = file.read().splitlines()
        self.assertEqual(head, "kind,iteration,id,first,last,src,dst,start_us,end_us")
        kernels = [row for row in rows if row.startswith("kernel,")]
        self.assertEqual(len(kernels), 6 * (1 + 12 + 12))
        self.assertLessEqual({"kernel", "move", "drop"}, {row.split(",")[0] for row in rows})
        self.refused("cannot be written: No such file", "--schedule", self.path("no", "schedule.csv"))

    def test_convert_both_ways(self):
        compact, folder = self.path("layers.trace"), self.path("again") + "/"
        self.assertEqual(simulate(self.trace, "--convert", compact).returncode, 0)
        self.assertEqual(simulate(compact, "--convert", folder).returncode, 0)
        for name in ("kernels.csv", "tensors.csv"):
            with open(os.path.join(self.trace, name), encoding="utf-8") as a, open(folder + name, encoding="utf-8") as b:
                self.assertEqual(a.read(), b.read())
        first = result_of(self.trace, *TIGHT)
        for trace in (compact, folder):
            other = result_of(trace, *TIGHT)
            self.assertEqual(other["iteration_us"], first["iteration_us"])
        self.refused("cannot be written", "--convert", self.path("no", "layers.trace"))

    def test_missing_files_are_named(self):
        self.refused("nowhere: no such file or folder, and no model", trace=self.path("nowhere"))
        self.refused("kernels.csv: No such file", trace=self.scratch.name)
        half = write_csv(self.path("half"), [(MIB, True)], [("k", 1, [0], [], 0)])
        os.remove(os.path.join(half, "tensors.csv"))
        self.refused("tensors.csv: No such file", trace=half)

    def test_damaged_and_other_files_are_refused_with_the_offset(self):
        compact = self.path("whole.trace")
        simulate(self.trace, "--convert", compact)
        with open(compact, "rb") as file:
            whole = file.read()
        other = self.path("other.trace")
        for content, words in (
            (b"", "other.trace: at offset 0: no Spillway trace"),
            (b"\x7fELF and so on", "at offset 0: no Spillway trace"),
            (whole[:8] + b"\x63" + whole[9:], "at offset 8: version 99"),
            (whole[: len(whole) // 2], r"at offset \d+: "),
            (whole[:200] + bytes([whole[200] ^ 1]) + whole[201:], r"at offset \d+: "),
            (whole + b"more", r"at offset \d+: "),
        ):
            with open(other, "wb") as file:
                file.write(content)
            self.refused(words, trace=other)
        broken = write_csv(self.path("broken"), [(MIB, True), (MIB, True)], [("k", 1, [0], [], 0), ("k", "soon", [1], [], 0)])
        with open(os.path.join(broken, "kernels.csv"), encoding="utf-8") as file:
            offset = file.read().index("1,k,soon")
        self.refused(rf"broken/kernels.csv:3: not a number \(offset {offset}\)", trace=broken)
        open(os.path.join(broken, "kernels.csv"), "w", encoding="utf-8").close()
        self.refused(r"broken/kernels.csv: empty, no header at offset 0", trace=broken)


class Guide(Simulate):
    """docs/simulate.md names what there is, and nothing else."""

    def test_options_and_keys(self):
        with open(os.path.join(ROOT, "docs", "simulate.md"), encoding="utf-8") as file:
            guide = file.read()
        text = subprocess.run([PROGRAM, "simulate", "--help"], capture_output=True, text=True, check=True, timeout=60).stdout
        options = set(re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE)) - {"--help"}
        self.assertGreater(len(options), 18)
        table = [line for line in guide.splitlines() if line.startswith("|")]
        named = set(re.findall(r"--[a-z][a-z-]*", " ".join(line.split("|")[1] for line in table)))
        self.assertEqual(named, options)
        keys = set(re.findall(r"`([a-z_]+)`", " ".join(line.split("|")[2] for line in table if line.count("|") == 4)))
        self.assertLessEqual(KEYS - {"policy"}, keys)


class WrongUse(Simulate):
    def test_values(self):
        for option, value, words in (
            ("--gpu-memory", "many", "gpu-memory=many is invalid; expected: bytes"),
            ("--gpu-memory", "60%", "gpu-memory=60% is invalid"),
            ("--gpu-memory", "-1", "gpu-memory=-1 is invalid"),
            ("--gpu-memory", "40GiB/s", "expected: bytes, for"),
            ("--host-memory", "1e30", "host-memory=1e30 is invalid"),
            ("--host-memory", "nan", "host-memory=nan is invalid"),
            ("--pcie", "0", "pcie=0 is invalid; expected: bytes/s"),
            ("--pcie", "1e-3", "pcie=1e-3 is invalid"),
            ("--pcie-in", "fast", "pcie-in=fast is invalid"),
            ("--ssd-read", "inf", "ssd-read=inf is invalid"),
            ("--ssd-write", "5", "ssd-write=5 is invalid"),
            ("--piece", "1", "piece=1 is invalid; expected: 0 .* 4KiB"),
            ("--latency", "nan", "latency"),
            ("--latency", "-1", "latency"),
            ("--noise", "nan", "noise"),
            ("--noise", "1.5", "noise"),
            ("--noise", "much", "noise"),
            ("--iterations", "3", "iterations"),
            ("--iterations", "1e9", "iterations"),
            ("--policy", "luck", "plan"),
            ("--bound", "tight", "quick"),
            ("--colour", "red", "--colour"),
        ):
            self.refused(words, f"{option}={value}")

    def test_a_trace_is_needed(self):
        run = subprocess.run([PROGRAM, "simulate"], capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(run.returncode, 2)
        self.assertIn("--trace is required", run.stderr)

    def test_a_job_that_cannot_run(self):
        self.refused("kernel 1 \\(forward\\) needs .* its own tensors exceed", "--gpu-memory", "40MiB", status=1)

    def test_units(self):
        sizes = ("134217728", "128MiB", "131072KiB", "134.217728MB", "0.125gib")
        same = [result_of(self.trace, *TIGHT[2:], "--gpu-memory", size)["iteration_us"] for size in sizes]
        self.assertEqual(len(set(same)), 1)
        self.assertNotEqual(same[0], result_of(self.trace, *TIGHT[2:], "--gpu-memory", "128MB")["iteration_us"])


if __name__ == "__main__":
    unittest.main()
