"""Judges `spillway simulate` by the independent referee: the published traces, and random ones with every policy.

usage: simulate_test.py SPILLWAY_PROGRAM. Every schedule must be feasible, borrow nothing, agree with the simulator's
own time within 0.1 %, and beat no bound.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "referee"))
import referee  # noqa: E402
from random_traces import write_random_trace  # noqa: E402
from schedule import Machine, read_schedule  # noqa: E402
from workload import Workload  # noqa: E402

PROGRAM = os.path.abspath(sys.argv.pop(1))
GIB = 2**30


def simulate(trace, *options):
    command = [PROGRAM, "simulate", "--trace", trace, *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


# Whether the program was built without CLP, and says so.
WITHOUT_LP = "this build has no CLP" in simulate("llama3-8b:layers=1", "--gpu-memory", "1TB", "--bound", "lp").stderr


def judged(folder, schedule, gpu, host, piece, shared=False, rates=(15.754e9, 15.754e9, 3.2e9, 3.2e9)):
    workload = Workload(folder)
    machine = Machine({"gpu": gpu, "host": host, "ssd": float("inf")},
                      dict(zip(("pcie_in", "pcie_out", "ssd_read", "ssd_write"), rates)), shared, piece)
    return referee.check(workload, read_schedule(schedule, workload), machine)


class CoarseBounds(unittest.TestCase):
    # What the LP says with --bound lp, which takes 10 s of processor time there, or 16 (docs/results/policy.md).
    def test_vit_at_8_gib_of_host_memory_is_judged_by_what_is_possible(self):
        for kind, limit in (("coarse", 100), ("coarse-one-tier", 100)):
            own = json.loads(simulate(os.path.join(HERE, "g10", "vit-1280"), "--host-memory", "8GiB", "--bound", kind, "--json").stdout)
            self.assertEqual(own["bound_kind"], "coarse")  # the plan promotes
            self.assertTrue(own["share_is_known"])
            self.assertAlmostEqual(100 * own["ideal_us"] / own["bound_us"], limit, delta=2)
            self.assertLess(own["bound_s"], 5)

    def test_at_60_percent_of_the_peak_and_4_gib_the_quick_bound_is_not(self):
        # Whole tensors: a plan that promotes is bounded by the other form.
        machine = ("--gpu-memory", "36975926400", "--host-memory", "4GiB", "--piece", "0")
        found = {kind: json.loads(simulate(os.path.join(HERE, "g10", "vit-1280"), *machine, "--bound", kind, "--json").stdout)
                 for kind in ("quick", "coarse-one-tier")}  # fmt: skip
        self.assertFalse(found["quick"]["share_is_known"])
        self.assertTrue(found["coarse-one-tier"]["share_is_known"])
        self.assertAlmostEqual(100 * found["coarse-one-tier"]["ideal_us"] / found["coarse-one-tier"]["bound_us"], 51.95, delta=2)


class PublishedTraces(unittest.TestCase):
    def check(self, name, host, least, piece="2MiB", piece_bytes=2 * 2**20, promotes=False):
        folder = os.path.join(HERE, "g10", name)
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "schedule.csv")
            run = simulate(folder, "--host-memory", host, "--piece", piece, "--schedule", path, "--json")
            self.assertEqual(run.returncode, 0, run.stderr)
            own = json.loads(run.stdout)
            result = judged(folder, path, 40 * GIB, host, piece_bytes)
        print(f"{name:16} host {host / GIB:5.0f} GiB: {result.get('percent_of_ideal')} % of ideal (referee), "
              f"{own['percent_of_ideal']:.4f} (own)")
        self.assertTrue(result["ok"], result["errors"])
        self.assertEqual(result["borrowed_bytes"], 0)
        self.assertGreaterEqual(result["percent_of_ideal"], least)
        self.assertAlmostEqual(own["iteration_us"] / result["iteration_us"], 1, delta=0.001)
        self.assertLessEqual(own["percent_of_bound"], 100.0001)
        self.assertEqual(own["ssd_to_host_bytes"] > 0, promotes)
        self.assertLessEqual(own["peak_gpu_bytes"], 40 * GIB)
        if own["bound_us"] > own["ideal_us"] * 1.0001:
            return
        excess = own["peak_live_bytes"] - 40 * GIB
        print(f"{'':16} traffic / E: in {result['bytes_in'] / excess:.3f}, out {result['bytes_out'] / excess:.3f}")
        self.assertLessEqual(max(result["bytes_in"], result["bytes_out"]), 1.05 * excess)

    def test_bert(self):
        self.check("bert-256", 128 * GIB, 99.9)
        self.check("bert-256", 0, 99.8)

    def test_vit(self):
        self.check("vit-1280", 128 * GIB, 99.8)
        self.check("vit-1280", 0, 57.8)

    def test_promotions(self):
        self.check("vit-1280", 8 * GIB, 99.3, promotes=True)
        self.check("vit-1280", 4 * GIB, 72.5, promotes=True)

    def test_resnet(self):
        self.check("resnet152-1280", 128 * GIB, 99.6)
        self.check("resnet152-1280", 0, 65.8)

    def test_whole_tensors(self):
        self.check("resnet152-1280", 128 * GIB, 98.7, piece="0", piece_bytes=0)


class RandomTraces(unittest.TestCase):
    def test_every_policy_is_feasible_and_beats_no_bound(self):
        ran = 0
        for seed in range(60):
            rng = random.Random(1000 + seed)
            with tempfile.TemporaryDirectory() as folder:
                write_random_trace(folder, seed)
                ran += self.judge(folder, seed, rng)
        self.assertGreater(ran, 60)

    def judge(self, folder, seed, rng):
        path = os.path.join(folder, "schedule.csv")
        peak = referee.peak_live(Workload(folder))
        gpu = max(int(peak * rng.uniform(0.5, 0.95)), 1)
        host = rng.choice([0, 30_000_000, 10**9])
        piece = rng.choice([0, 2_000_000])
        rates = [rng.choice([1e9, 4e9, 16e9]) for _ in range(2)] + [rng.choice([0.5e9, 2e9]) for _ in range(2)]
        shared = seed % 4 == 0
        latency = rng.choice([0, 0, 20, 400])
        options = ["--latency", latency, "--gpu-memory", gpu, "--host-memory", host, "--piece", piece, "--pcie-in", rates[0], "--pcie-out",
                   rates[1], "--ssd-read", rates[2], "--ssd-write", rates[3], *(["--ssd-shared"] if shared else [])]
        ran = 0
        for policy in ("plan", ("lru", "belady", "g10")[seed % 3]):
            run = simulate(folder, *options, "--policy", policy, "--schedule", path, "--json")
            if run.returncode == 1:
                self.assertIn("needs", run.stderr)
                continue
            self.assertEqual(run.returncode, 0, run.stderr)
            own = json.loads(run.stdout)
            result = judged(folder, path, gpu, host, piece, shared, rates)
            who = f"seed {seed} policy {policy}"
            self.assertTrue(result["ok"], (who, result["errors"][:3]))
            if result["iteration_us"] == 0:
                continue
            self.assertEqual(result["borrowed_bytes"], 0, who)
            self.assertAlmostEqual(own["iteration_us"], result["iteration_us"], delta=0.001 * result["iteration_us"] + 1,
                                   msg=who)
            self.assertLessEqual(own["bound_us"], result["iteration_us"] + 1, who)
            ran += 1
        return ran


@unittest.skipIf(WITHOUT_LP, "built without CLP")
class RandomTracesAndTheLp(unittest.TestCase):
    """All policies on all kinds of machines: feasible, nothing borrowed, and no faster than any bound."""

    POLICIES = ("plan", "lru", "belady", "g10", "lp")

    def test_no_policy_beats_any_bound(self):
        ran = dict.fromkeys(self.POLICIES, 0)
        waits = 0  # traces that no plan runs at full speed
        for seed in range(36):
            with tempfile.TemporaryDirectory() as folder:
                write_random_trace(folder, 5000 + seed, most_kernels=24, most_tensors=14)
                waits += self.judge(folder, seed, ran)
        print(f"runs {ran}, the LP is longer than the kernels in {waits}")
        self.assertGreater(waits, 8)
        for policy, count in ran.items():
            self.assertGreater(count, 18, policy)

    @staticmethod
    def machine(folder, seed):
        """Options and what the referee is told of them."""
        rng = random.Random(7000 + seed)
        job = Workload(folder)
        least = max(space + sum(job.size[t] for t in need) for space, need in zip(job.workspace, job.needs))
        peak = referee.peak_live(job)
        gpu = least + int(max(peak - least, 0) * rng.choice([0, 0.1, 0.3, 0.6]))
        host = (0, 20_000_000, 60_000_000, 10**9)[seed % 4]
        piece = (0, 2_000_000)[seed // 4 % 2]
        rates = [rng.choice([1e9, 4e9, 16e9]) for _ in range(2)] + [rng.choice([0.5e9, 2e9]) for _ in range(2)]
        shared = seed % 3 == 0
        options = ["--gpu-memory", gpu, "--host-memory", host, "--piece", piece, "--latency", rng.choice([0, 0, 50]),
                   "--pcie-in", rates[0], "--pcie-out", rates[1], "--ssd-read", rates[2], "--ssd-write", rates[3],
                   *(["--ssd-shared"] if shared else [])]
        return options, (gpu, host, piece, shared, rates)

    def judge(self, folder, seed, ran):
        options, machine = self.machine(folder, seed)
        bounds = {}
        for kind in ("quick", "lp", "lp-one-tier"):
            run = simulate(folder, *options, "--policy", "lru", "--bound", kind, "--json")
            self.assertEqual(run.returncode, 0, (seed, kind, run.stderr))
            own = json.loads(run.stdout)
            bounds[kind] = own["bound_us"]
        self.assertLessEqual(bounds["quick"], bounds["lp"] * 1.00001 + 1, seed)
        self.assertLessEqual(bounds["lp"], bounds["lp-one-tier"] * 1.00001 + 1, seed)
        path = os.path.join(folder, "schedule.csv")
        for policy in self.POLICIES:
            # Long enough for what was prepared at the start to be used up.
            run = simulate(folder, *options, "--policy", policy, "--schedule", path, "--json", "--iterations", 10)
            who = f"seed {seed} policy {policy} {options}"
            if run.returncode == 1:
                self.assertIn("needs", run.stderr)
                continue
            self.assertEqual(run.returncode, 0, (who, run.stderr))
            own, result = json.loads(run.stdout), judged(folder, path, *machine)
            self.assertTrue(result["ok"], (who, result["errors"][:3]))
            self.assertEqual(result["borrowed_bytes"], 0, who)
            self.assertAlmostEqual(own["iteration_us"], result["iteration_us"], delta=0.001 * result["iteration_us"] + 1,
                                   msg=who)
            self.assertLessEqual(result["peak_gpu_bytes"], machine[0], who)
            with open(path, encoding="utf-8") as schedule:
                changes_tiers = any(",host,ssd," in row or ",ssd,host," in row for row in schedule)
            # What leaves in need may be written twice and to another tier, which the one-tier form leaves out.
            valid = ("quick", "lp") if own["evictions_in_need"] or changes_tiers else bounds
            for kind in valid:
                self.assertLessEqual(bounds[kind], result["iteration_us"] * 1.00001 + 1, (kind, who))
            ran[policy] += 1
        return bounds["lp"] > own["ideal_us"] * 1.001


def derived(folder, sizes, times, kernels):
    """bert-256 with other sizes and times, and only some of its kernels: what they miss appears from nowhere."""
    source = os.path.join(HERE, "g10", "bert-256")
    for name, column, factor in (("tensors", 1, sizes), ("kernels", 2, times)):
        with open(os.path.join(source, name + ".csv"), encoding="utf-8") as file:
            head, *rows = file.read().splitlines()
        if name == "kernels":
            rows = rows[kernels]
        with open(os.path.join(folder, name + ".csv"), "w", encoding="utf-8") as file:
            file.write(head + "\n")
            for place, row in enumerate(rows):
                fields = row.split(",")
                value = float(fields[column]) * factor
                fields[column] = str(int(value)) if name == "tensors" else f"{value:.3f}"
                file.write(",".join([str(place), *fields[1:]]) + "\n")


class DerivedTraces(unittest.TestCase):
    CASES = (  # sizes, times, kernels; GPU as part of the peak, host, PCIe, SSD, shared, latency, piece
        (0.5, 1, slice(None), 0.3, 0, 32e9, 6.4e9, False, 20, 2 * 2**20),
        (1, 0.5, slice(None), 0.6, 32 * GIB, 15.754e9, 3.2e9, True, 0, 0),
        (1, 4, slice(200, None), 0.3, 4 * GIB, 15.754e9, 1.6e9, True, 100, 2 * 2**20),
        (1.5, 1, slice(0, 900), 0.45, 128 * GIB, 32e9, 3.2e9, False, 0, 64 * 2**20),
    )

    def test_every_machine_is_served(self):
        for number, (sizes, times, kernels, part, host, pcie, ssd, shared, latency, piece) in enumerate(self.CASES):
            with tempfile.TemporaryDirectory() as folder:
                derived(folder, sizes, times, kernels)
                gpu = int(referee.peak_live(Workload(folder)) * part)
                path = os.path.join(folder, "schedule.csv")
                run = simulate(folder, "--gpu-memory", gpu, "--host-memory", host, "--pcie", pcie, "--ssd-read", ssd,
                               "--ssd-write", ssd, *(["--ssd-shared"] if shared else []), "--latency", latency, "--piece",
                               piece, "--schedule", path, "--json")
                self.assertEqual(run.returncode, 0, run.stderr)
                own = json.loads(run.stdout)
                result = judged(folder, path, gpu, host, piece, shared, (pcie, pcie, ssd, ssd))
            print(f"derived {number}: {result.get('percent_of_ideal')} % of ideal, {own['percent_of_bound']:.2f} % of bound")
            self.assertTrue(result["ok"], result["errors"][:3])
            self.assertEqual(result["borrowed_bytes"], 0)
            self.assertAlmostEqual(own["iteration_us"] / result["iteration_us"], 1, delta=0.001)
            self.assertLessEqual(own["bound_us"], result["iteration_us"] + 1)


class Drives(unittest.TestCase):
    """The referee knows one SSD: what two drives do, it could do at the sum of their rates."""

    TRACE = os.path.join(HERE, "g10", "vit-1280")

    def test_two_unequal_drives_are_nearly_one_of_both_rates(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "schedule.csv")
            run = simulate(self.TRACE, "--host-memory", 0, "--ssd-read", "2.4e9,0.8e9", "--ssd-write", "2.4e9,0.8e9",
                           "--schedule", path, "--json")
            self.assertEqual(run.returncode, 0, run.stderr)
            result = judged(self.TRACE, path, 40 * GIB, 0, 2 * 2**20)
        print(f"{'vit-1280':16} SSD of 2.4e9 and 0.8e9: {result.get('percent_of_ideal')} % of ideal (referee)")
        self.assertTrue(result["ok"], result["errors"][:3])
        self.assertEqual(result["borrowed_bytes"], 0)
        self.assertGreaterEqual(result["percent_of_ideal"], 57.5)

    def test_random_traces_beat_no_bound(self):
        ran = 0
        for seed in range(200, 212):
            rng = random.Random(seed)
            with tempfile.TemporaryDirectory() as folder:
                write_random_trace(folder, seed)
                path = os.path.join(folder, "schedule.csv")
                gpu = int(referee.peak_live(Workload(folder)) * rng.uniform(0.5, 0.9))
                host = rng.choice([0, 30_000_000])
                shared = seed % 2 == 0  # the referee's one limit is theirs only if all read as fast as they write
                reads = [rng.choice([0.2e9, 0.7e9, 1.5e9]) for _ in range(rng.choice([2, 3]))]
                writes = reads if shared else [rng.choice([0.2e9, 0.7e9, 1.5e9]) for _ in reads]
                piece = rng.choice([0, 2_000_000])
                run = simulate(folder, "--gpu-memory", gpu, "--host-memory", host, "--piece", piece, "--ssd-read",
                               ",".join(map(str, reads)), "--ssd-write", ",".join(map(str, writes)),
                               *(["--ssd-shared"] if shared else []), "--bound", "quick" if WITHOUT_LP else "lp",
                               "--schedule", path, "--json")
                if run.returncode == 1:
                    self.assertIn("exceed", run.stderr)
                    continue
                self.assertEqual(run.returncode, 0, run.stderr)
                own = json.loads(run.stdout)
                result = judged(folder, path, gpu, host, piece, shared,
                                (15.754e9, 15.754e9, sum(reads), sum(writes)))
            self.assertTrue(result["ok"], (seed, result["errors"][:3]))
            self.assertEqual(result["borrowed_bytes"], 0, seed)
            self.assertLessEqual(own["bound_us"], result["iteration_us"] + 1, seed)
            ran += 1
        self.assertGreater(ran, 6)

    def test_lists_that_do_not_fit_are_refused(self):
        for read, write, why in (("1e9,2e9", "1e9", "of 2 and of 1"), ("1e9", "1e9,1e9", "of 1 and of 2"), ("1e9,", "1e9,1e9", "ssd-read"),
                                 ("1e9,1e9", "1e9,fast", "ssd-write"), ("1e9,0", "1e9,1e9", "ssd-read"),
                                 (",".join(["1e9"] * 65), ",".join(["1e9"] * 65), "at most 64")):
            run = simulate(self.TRACE, "--ssd-read", read, "--ssd-write", write)
            self.assertEqual(run.returncode, 2, (read, write))
            self.assertIn(why, run.stderr)


class GeneratedTraces(unittest.TestCase):
    def test_llama_shapes(self):
        with tempfile.TemporaryDirectory() as folder:
            made = subprocess.run([PROGRAM, "generate", "llama3-8b:layers=3,micro_batches=2", folder],
                                  capture_output=True, text=True, check=True)
            self.assertIn("kernels", made.stdout)
            direct = simulate("llama3-8b:layers=3,micro_batches=2", "--json")
            self.assertEqual(json.loads(direct.stdout)["ideal_us"], json.loads(simulate(folder, "--json").stdout)["ideal_us"])
            path = os.path.join(folder, "schedule.csv")
            gpu = referee.peak_live(Workload(folder)) * 2 // 3
            run = simulate(folder, "--gpu-memory", gpu, "--host-memory", 10**10, "--schedule", path, "--json")
            self.assertEqual(run.returncode, 0, run.stderr)
            result = judged(folder, path, gpu, 10**10, 2 * 2**20)
            self.assertTrue(result["ok"], result["errors"])
            self.assertAlmostEqual(json.loads(run.stdout)["iteration_us"] / result["iteration_us"], 1, delta=0.001)


class CommandLine(unittest.TestCase):
    TRACE = os.path.join(HERE, "g10", "bert-256")

    def test_wrong_use_is_status_2_and_says_what_is_accepted(self):
        for options in (["--gpu-memory", "many"], ["--sweep", "colour=1:2:1"], ["--pcie", "0"]):
            run = simulate(self.TRACE, *options)
            self.assertEqual(run.returncode, 2, options)
            self.assertRegex(run.stderr, "expected")
        self.assertEqual(simulate("/nonexistent").returncode, 2)
        self.assertEqual(simulate(self.TRACE, "--policy", "luck").returncode, 2)

    def test_a_job_that_cannot_run_is_status_1(self):
        run = simulate(self.TRACE, "--gpu-memory", "64MiB")
        self.assertEqual(run.returncode, 1)
        self.assertIn("its own tensors exceed", run.stderr)
        self.assertEqual(simulate(self.TRACE, "--policy", "none").returncode, 1)
        run = simulate(self.TRACE, "--policy", "none", "--gpu-memory", "80GiB", "--json")
        self.assertAlmostEqual(json.loads(run.stdout)["percent_of_ideal"], 100, places=4)

    def test_converted_traces_are_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            file, csv = os.path.join(folder, "bert.trace"), os.path.join(folder, "csv") + "/"
            self.assertEqual(simulate(self.TRACE, "--convert", file, "--policy", "belady").returncode, 0)
            self.assertEqual(simulate(file, "--convert", csv, "--policy", "belady").returncode, 0)
            for name in ("kernels.csv", "tensors.csv"):
                with open(os.path.join(self.TRACE, name), encoding="utf-8") as a, open(csv + name, encoding="utf-8") as b:
                    self.assertEqual(a.read(), b.read().replace("\r", ""))
            with open(file, "r+b") as damaged:
                damaged.seek(100)
                damaged.write(b"\xff\xff\xff")
            run = simulate(file)
            self.assertEqual(run.returncode, 2)
            self.assertRegex(run.stderr, "bert.trace: at offset [0-9]+")

    def test_noise_depends_on_the_seed_alone(self):
        runs = [json.loads(simulate(self.TRACE, "--noise", 0.25, "--seed", seed, "--json").stdout)["iteration_us"]
                for seed in (1, 1, 2)]
        self.assertEqual(runs[0], runs[1])
        self.assertNotEqual(runs[0], runs[2])


if __name__ == "__main__":
    unittest.main()
