"""The quickstart's parts that need no device: sizes, environments and commands of the four ways, table, verdict."""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "integration" / "quickstart"), str(ROOT / "tests" / "fakes")]

import job  # noqa: E402  (the paths come first)
import quickstart  # noqa: E402
from wait_until import wait_until  # noqa: E402

CAP = job.Cap(gpu_bytes=400 * job.MIB, host_memory="120MiB")


def machine(device="simcuda", **more):
    return job.Machine(device=device, work=Path("/w"), build=Path("/b"), python="/p/python", **more)


def finished(mode, **changes):
    run = dict.fromkeys(job.KEYS)
    run.update(mode=mode, status="ok", first_loss=5.0, last_loss=4.0, losses_sha256="a", state_sha256="b", steps=8, seed=1,
               peak_bytes=300 * job.MIB, tokens_per_s=100.0)  # fmt: skip
    if mode in job.SPILLWAY_MODES:
        run.update(budget_bytes=400 * job.MIB, spilled_bytes=1, host_spilled_bytes=1, fetched_bytes=1, disk_written_bytes=0)
    return {**run, **changes}


def four_runs(**changes_of_conf):
    plain = finished(job.PLAIN, status="out_of_memory", last_loss=None)
    return [finished(job.UNCAPPED), plain, finished(job.PRELOAD), finished(job.CONF, **changes_of_conf)]


class ArgumentsTest(unittest.TestCase):
    def check(self, *arguments):
        script = ROOT / "integration/quickstart/quickstart.py"
        return subprocess.run([sys.executable, "-B", script, "--check", *arguments], capture_output=True, text=True)

    def test_what_is_wrong_is_said_before_the_build(self):
        good = self.check("--budget", "40", "--host-memory", "2GiB", "--", "--width", "768")
        self.assertEqual((good.returncode, good.stdout, good.stderr), (0, "", ""))
        for arguments, words in ((("--budgt", "40"), "--budgt"), (("--budget", "0"), "--budget is a percentage from 1 to 100"),
                                 (("--steps", "0"), "--steps is a number from 1 on"),
                                 (("--host-memory", "much"), "--host-memory much: expected a size")):  # fmt: skip
            wrong = self.check(*arguments)
            self.assertGreater(wrong.returncode, 0, arguments)
            self.assertIn(words, wrong.stderr)
        script = (ROOT / "integration/quickstart.sh").read_text()
        self.assertLess(script.index("--check"), script.index("install_packages"), "before anything is installed")


class SizeTest(unittest.TestCase):
    def test_sizes_and_percentages(self):
        self.assertEqual(quickstart.parse_size("10%", 1000), 100)
        self.assertEqual(quickstart.parse_size("2GiB", 0), 2 << 30)
        self.assertEqual(quickstart.parse_size("500MB", 0), 500_000_000)
        for wrong in ("much", "1.2.3GB"):
            with self.assertRaises(ValueError):
                quickstart.parse_size(wrong, 1000)
            with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()) as said:
                quickstart.parse_arguments(["--host-memory", wrong])
            self.assertEqual(ended.exception.code, 2)
            self.assertIn(f"--host-memory {wrong}: expected a size such as 2GiB", said.getvalue())


class EnvironmentTest(unittest.TestCase):
    def environment(self, device, mode, **caller):
        with mock.patch.dict(os.environ, caller, clear=True):
            return job.environment(machine(device), mode, None if mode == job.UNCAPPED else CAP, Path("/w/m.json"))

    def test_callers_own_choice_is_dropped(self):
        env = self.environment("simcuda", job.UNCAPPED, LD_PRELOAD="/x.so", SPILLWAY_DIRS="/d", PYTORCH_ALLOC_CONF="backend:spillway",
                               SIMCUDA_MODE="report", OMP_NUM_THREADS="7", SPILLWAY_DISK_RESERVE="2GiB")  # fmt: skip
        for name in ("LD_PRELOAD", "SPILLWAY_DIRS", "PYTORCH_ALLOC_CONF", "SIMCUDA_MODE"):
            self.assertNotIn(name, env)
        self.assertEqual(env["OMP_NUM_THREADS"], "1")
        self.assertEqual(env["SPILLWAY_DISK_RESERVE"], "2GiB", "that is the machine's, not the job's")

    def test_preload_sets_variables_only(self):
        env = self.environment("simcuda", job.PRELOAD)
        self.assertEqual(env["LD_PRELOAD"], "/b/lib/libspillway.so")
        self.assertEqual(env["SPILLWAY_HOST_MEMORY"], "120MiB")
        self.assertNotIn("PYTORCH_CUDA_ALLOC_CONF", env)
        self.assertNotIn("SPILLWAY_GPU_MEMORY", env)  # the stand-in device has that size itself
        self.assertEqual(self.environment("gpu", job.PRELOAD)["SPILLWAY_GPU_MEMORY"], "400MiB")

    def test_conf_sets_no_variable_of_ours(self):
        env = self.environment("gpu", job.CONF)
        self.assertFalse([name for name in env if name.startswith("SPILLWAY") or name == "LD_PRELOAD"])
        self.assertEqual(env["PYTORCH_CUDA_ALLOC_CONF"],
                         "backend:spillway,host_memory:120MiB,metrics:[/w/m.json],gpu_memory:400MiB")  # fmt: skip

    def test_plain_sets_nothing_of_pytorchs(self):
        """The key for its limit is not known before 2.9."""
        for device in ("gpu", "simcuda"):
            self.assertNotIn("PYTORCH_CUDA_ALLOC_CONF", self.environment(device, job.PLAIN))


class CommandTest(unittest.TestCase):
    def test_simcuda_has_the_size_of_the_cap(self):
        command = job.command(machine(simcuda_options=("--mode", "report")), job.PLAIN, CAP, ["--steps", "2"], "/w/r", job.TRAIN)
        self.assertEqual(command, ["/b/bin/simcuda-run", "--memory", "400MiB", "--mode", "report", "--", "/p/python",
                                   str(job.TRAIN), "--steps", "2", "--json", "/w/r"])  # fmt: skip

    def test_gpu_runs_the_script_itself(self):
        self.assertEqual(job.command(machine("gpu"), job.CONF, CAP, [], "/w/r", job.TRAIN)[0], "/p/python")


    def test_plain_on_a_gpu_uses_pytorchs_own_limit(self):
        command = job.command(machine("gpu"), job.PLAIN, CAP, ["--steps", "2"], "/w/r", job.TRAIN, 1600 * job.MIB)
        self.assertEqual(command, ["/p/python", str(job.LIMITED), "0.250000", str(job.TRAIN), "--steps", "2", "--json", "/w/r"])


class LimitedTest(unittest.TestCase):
    """limited.py, beside a PyTorch that says what it is asked."""

    def test_the_script_runs_as_if_started_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            fake = "class cuda:\n    set_per_process_memory_fraction = staticmethod(lambda part: print('part', part))\n"
            Path(folder, "torch.py").write_text(fake)
            script = Path(folder, "scripts", "train.py")
            script.parent.mkdir()
            script.write_text("import sys, beside\nprint(__name__, sys.argv)\nsys.exit(5)\n")
            (script.parent / "beside.py").write_text("print('beside')\n")
            done = subprocess.run([sys.executable, "-B", job.LIMITED, "0.25", script, "--json", "x"], capture_output=True, text=True,
                                  env={**os.environ, "PYTHONPATH": folder}, timeout=60)  # fmt: skip
        self.assertEqual((done.returncode, done.stdout), (5, f"part 0.25\nbeside\n__main__ {[str(script), '--json', 'x']}\n"), done.stderr)


class PathTest(unittest.TestCase):
    def test_a_path_that_the_loader_splits_is_refused_before_anything_is_installed(self):
        for name in ("a b", "a:b"):
            with tempfile.TemporaryDirectory() as folder:
                script = Path(folder, name, "integration", "quickstart.sh")
                script.parent.mkdir(parents=True)
                script.write_bytes((ROOT / "integration" / "quickstart.sh").read_bytes())
                done = subprocess.run(["bash", script], capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertIn(f"/{name}: the loader splits LD_PRELOAD at spaces and colons; put the checkout", done.stderr)


class RunTest(unittest.TestCase):
    """A job that is no training: what happens to its output, status and files."""

    def run_script(self, text, **more):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory())) if hasattr(self, "enterContext") else Path(tempfile.mkdtemp())
        script = folder / "script.py"
        script.write_text(text)
        here = job.Machine(device="gpu", work=folder / "runs", python=sys.executable)
        return job.run_job(here, job.UNCAPPED, [], script=script, show=lambda line: False, **more)

    def test_finished(self):
        report = {"arguments": {"steps": 3, "seed": 2}, "first_loss": 1.5, "losses_sha256": "x", "memory": {"max_reserved_bytes": 7}}
        run = self.run_script(f"import sys; open(sys.argv[-1], 'w').write({json.dumps(report)!r})")
        self.assertEqual(list(run.keys), list(job.KEYS))
        self.assertEqual((run.keys["status"], run.keys["steps"], run.keys["seed"], run.keys["first_loss"], run.keys["peak_bytes"]),
                         ("ok", 3, 2, 1.5, 7))  # fmt: skip

    def test_out_of_memory_and_failure_differ(self):
        self.assertEqual(self.run_script("raise type('OutOfMemoryError', (Exception,), {})('x')").keys["status"], "out_of_memory")
        self.assertEqual(self.run_script("raise SystemExit(3)").keys["status"], "failed")
        self.assertEqual(self.run_script("pass").keys["status"], "failed")  # ended well, but wrote no report

    def test_a_hanging_job_is_ended(self):
        run = self.run_script("import signal; signal.pause()", timeout=1)
        self.assertEqual(run.keys["status"], "failed")
        self.assertLess(run.seconds, 30)


class VerdictTest(unittest.TestCase):
    def test_a_good_outcome_has_no_problems(self):
        self.assertEqual(quickstart.problems(four_runs()), [])

    def test_each_bad_outcome_is_one_problem(self):
        for change in ({"status": "failed"}, {"losses_sha256": "other"}, {"state_sha256": "other"}, {"spilled_bytes": 0},
                       {"peak_bytes": 401 * job.MIB}):  # fmt: skip
            self.assertEqual(len(quickstart.problems(four_runs(**change))), 1, change)

    def test_plain_must_run_out_of_memory(self):
        runs = four_runs()
        runs[1]["status"] = "ok"
        self.assertEqual(len(quickstart.problems(runs)), 1)

    def test_the_last_sentence_has_the_figures(self):
        runs = four_runs(tokens_per_s=76.0)
        runs[2]["tokens_per_s"] = 86.0
        self.assertEqual(quickstart.verdict(runs, []),
                         "Spillway trained the job on 400 of its 300 MiB, where PyTorch alone ran out of memory: "
                         "the same bits at 0.76 to 0.86 of the speed.")  # fmt: skip
        bad = four_runs(status="failed", tokens_per_s=None)
        self.assertRegex(quickstart.verdict(bad, quickstart.problems(bad)),
                         "^Not as it must be: capped-conf: failed instead of ok. .*build/quickstart")  # fmt: skip
        self.assertNotIn("build/bin/spillway doctor", quickstart.next_command("gpu"))
        self.assertIn("build/bin/spillway doctor", quickstart.next_command("simcuda"))

    def test_a_silent_run_shows_that_it_goes_on(self):
        said = io.StringIO()
        with contextlib.redirect_stdout(said), quickstart.Heartbeat(seconds=0.05) as beat:
            self.assertTrue(wait_until(lambda: "(it goes on)" in said.getvalue()))
            self.assertTrue(beat.show("step 1/8\n"))
            self.assertFalse(beat.show("nothing of weight\n"))
        self.assertIn("(it goes on)", said.getvalue())
        silent = io.StringIO()
        with contextlib.redirect_stdout(silent), quickstart.Heartbeat(seconds=1000):
            pass
        self.assertEqual(silent.getvalue(), "")

    def test_table_shows_every_run(self):
        lines = quickstart.table(four_runs(state_sha256="other"))
        self.assertEqual(len(lines), 5)
        self.assertIn("out_of_memory", lines[2])
        self.assertIn(" yes ", lines[3])
        self.assertIn(" NO ", lines[4])


if __name__ == "__main__":
    unittest.main()
