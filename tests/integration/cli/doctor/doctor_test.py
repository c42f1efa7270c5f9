"""`spillway doctor` and `python -m spillway` as a user sees them: on a machine that can serve, and where they are used wrongly."""

import contextlib
import json
import os
import pty
import subprocess
import sys
import time
import unittest

from doctor_runs import BUILD, MIB, PROGRAM, QUICK, ROOT, SIMCUDA, DoctorCase, run, variables


class DoctorTest(DoctorCase):
    # ---- A machine that can serve.

    def test_a_good_machine(self):
        done = self.doctor()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for words in (r"ok  libraries +/.*, for PyTorch 2\.", r"ok  engine +can be opened", r"ok  system +Linux .* on x86_64",
                      r"ok  driver +CUDA 13\.\d, \S+/libcuda\.so\.1, without NVIDIA's kernel module: a stand-in for a GPU",
                      r"ok  GPU 0 +simcuda \(host memory\), 1\.00 GiB, .* free now, virtual memory management",
                      r"ok  link of GPU 0 +to the GPU .*B/s, from it .*B/s; at once .*; rates of the stand-in, not of a GPU",
                      rf"ok  PyTorch +{self.minor()}\.0\+cu130, CUDA 13\.0, in .*: served", r"  membarrier ", r"  io_uring ",
                      rf"directory {self.spill} ", rf"rates of {self.spill} +writes .* in the second half\), reads ",
                      r"ok  start +a job with the settings of this shell is accepted",
                      rf"export SPILLWAY_DIRS={self.spill}  # as given", r"This machine is usable"):  # fmt: skip
            self.assertRegex(done.stdout, words)
        self.assertRegex(done.stderr, rf"spillway: {self.spill}: writing \.\.\.\n")
        self.assertRegex(done.stderr, rf"spillway: {self.spill}: reading: [0-9.]+ [KMG]iB in [0-9.]+ s\n")
        self.assertEqual(list(self.spill.iterdir()), [])

    def test_json_is_all_of_standard_output_and_says_the_same(self):
        facts = self.facts()
        self.assertEqual((facts["format"], facts["exit_status"]), (1, 0))
        device = facts["driver"]["devices"][0]
        self.assertEqual((device["bytes"], device["link"]["problem"]), (1 << 30, None))
        for direction in ("in", "out", "both_in", "both_out"):
            self.assertGreater(device["link"][direction]["bytes_per_second"], 1e6)
        disk = facts["directories"][0]
        self.assertEqual((disk["path"], disk["rate_problem"]), (str(self.spill), None))
        for direction in ("write", "read"):
            rate = disk[direction]
            self.assertGreater(rate["bytes"], 0)
            self.assertAlmostEqual(rate["bytes_per_second"], rate["bytes"] / rate["seconds"], delta=rate["bytes_per_second"] / 100)
        self.assertEqual([it["name"] for it in facts["settings"]][:3], ["gpu_memory", "host_memory", "dirs"])

    def test_time_is_kept(self):
        start = time.monotonic()
        facts = self.facts("--disk-seconds", "3")
        taken = time.monotonic() - start
        disk = facts["directories"][0]
        seconds = disk["write"]["seconds"] + disk["read"]["seconds"]
        self.assertLess(seconds, 6, "transfers under way are waited for, but no more")
        self.assertLess(taken, 40)
        if not (disk["ended_by_space"] or disk["ended_by_limit"]) and disk["read"]["bytes"] < disk["write"]["bytes"]:
            self.assertGreater(seconds, 2.5)
        self.assertEqual(self.facts("--disk-seconds", "0")["directories"][0]["rate_problem"], "not asked for")

    def test_what_it_would_choose_is_accepted(self):
        facts = self.facts()
        chosen = [f"--{it['name'].replace('_', '-')}={it['value']}" for it in facts["settings"] if it["value"]]
        done = run(*chosen, "--", "echo", "started", command=(PROGRAM, "run"))
        self.assertEqual((done.returncode, done.stdout), (0, "started\n"), done.stderr)
        job = [sys.executable, "-I", "-S", "-c", "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"]
        for line in facts["lines"]:
            self.assertRegex(line, r"^(export SPILLWAY_\w+=\S+  # .|# SPILLWAY_\w+ stays unset: .)")
        script = "\n".join(facts["lines"]) + '\nexec "$@"\n'
        done = run(*job, command=("bash", "-c", script, "bash"), LD_PRELOAD=f"{BUILD}/lib/libspillway.so")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "0\n", ""))
        done = run(*job, command=(), PYTORCH_CUDA_ALLOC_CONF=facts["conf"], LD_PRELOAD=f"{BUILD}/lib/libspillway.so")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "0\n", ""))

    def test_settings_of_the_shell_are_looked_at(self):
        # Not loaded by this Python, so not usable; the settings count all the same.
        facts = self.facts(status=1, SPILLWAY_HOST_MEMORY="128MiB", PYTORCH_CUDA_ALLOC_CONF="backend:spillway,policy:lru,max_split_size_mb:64")
        values = {it["name"]: it for it in facts["settings"]}
        self.assertEqual(values["host_memory"]["value"], "128MiB")
        self.assertTrue(values["host_memory"]["given"])
        self.assertEqual(values["policy"]["value"], "lru")
        self.assertTrue(facts["conf"].startswith("backend:spillway,"))
        self.assertTrue(facts["conf"].endswith(",max_split_size_mb:64"))

    def test_what_a_job_would_be_refused_for_is_unset(self):
        """As long as the lines are not taken, the job is refused; with them it is let through."""
        wrong = {"SPILLWAY_METRICS": f"{self.folder}/none/x.json", "SPILLWAY": "observe", "SPILLWAY_DIRS": "/no/such/folder",
                 "SPILLWAY_DISK_RESERVE": "3GiB"}  # fmt: skip
        done = run("--json", "--python", sys.executable, "--disk-seconds", "0", PYTHONPATH=str(self.site), **wrong)
        self.assertEqual(done.returncode, 1, done.stderr)
        facts = json.loads(done.stdout)
        for line in (rf"unset SPILLWAY_METRICS  # {wrong['SPILLWAY_METRICS']} is invalid; expected: the path of a file",
                     "unset SPILLWAY_DIRS  # SPILLWAY=observe moves nothing; without /no/such/folder",
                     "export SPILLWAY_DISK_RESERVE=3GiB  # as given"):
            self.assertRegex("\n".join(facts["lines"]), rf"(?m)^{line}")
        job = [sys.executable, "-I", "-S", "-c", "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"]
        for script, status in (('exec "$@"', 2), ("\n".join(facts["lines"]) + '\nexec "$@"\n', 0)):
            done = run(*job, command=("bash", "-c", script, "bash"), LD_PRELOAD=f"{BUILD}/lib/libspillway.so", **wrong)
            self.assertEqual(done.returncode, status, done.stderr)

    def test_with_the_preload_in_front_it_sees_the_machine_and_not_the_budget(self):
        preload = {"LD_PRELOAD": f"{BUILD}/lib/libspillway.so", "SPILLWAY_GPU_MEMORY": "256MiB"}
        facts = self.facts(**preload)
        self.assertTrue(facts["pytorch"]["loads"])
        self.assertGreater(facts["driver"]["devices"][0]["free_bytes"], 700 * MIB)
        self.expect(facts, "loading", "good", "loads Spillway")

    def test_an_image_can_be_built_without_a_gpu(self):
        done = run("--installation", "--python", sys.executable, device=False, PYTHONPATH=str(self.site))
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertNotIn("GPU 0", done.stdout)
        self.assertIn("ok  engine", done.stdout)

    def test_python_m_spillway_is_the_same(self):
        package = f"{ROOT}/integration/python"
        more = {"PYTHONPATH": f"{package}:{self.site}", "SPILLWAY_LIBRARY_DIR": f"{BUILD}/lib"}
        arguments = ("--dirs", str(self.spill), "--disk-seconds", "0", "--json")
        module = run(*arguments, command=(sys.executable, "-B", "-m", "spillway"), **more)
        command = run(*arguments, "--python", sys.executable, **more)
        self.assertEqual((module.returncode, command.returncode), (0, 0), module.stderr + command.stderr)
        one, other = json.loads(module.stdout), json.loads(command.stdout)
        for part in ("installation", "pytorch", "ranks", "start"):
            self.assertEqual(one[part], other[part])
        self.assertEqual([it["what"] for it in one["findings"]], [it["what"] for it in other["findings"]])
        wrong = run("--dirs", "relative", command=(sys.executable, "-B", "-m", "spillway"), **more)
        self.assertEqual(wrong.returncode, 2)

    # ---- What is shown where.

    def test_a_terminal_gets_a_bar(self):
        here, there = pty.openpty()
        command = [*SIMCUDA, PROGRAM, "doctor", "--dirs", str(self.spill), *QUICK]
        with subprocess.Popen(command, env=variables(), stdout=subprocess.PIPE, stderr=there, text=True) as process:
            os.close(there)
            shown = b""
            with contextlib.suppress(OSError):  # EIO: the other end is closed
                while chunk := os.read(here, 4096):
                    shown += chunk
            text = process.stdout.read()
        os.close(here)
        self.assertIn(b"\r\x1b[K[", shown)
        self.assertRegex(shown.decode(), rf"\[#+\.*\] {self.spill}: writing [0-9.]+ [KMG]iB in ")
        self.assertNotIn(b"\n", shown)
        self.assertIn("This machine is ", text)

    def test_days_of_a_drives_life(self):
        found = self.finding(self.facts("--ssd-writes", "600TB"), f"rates of {self.spill}")
        self.assertRegex(found["found"], r"such days are the 600 TB that the drive is rated for")

    def test_wrong_use(self):
        rows = [(("--dirs", "relative"), "--dirs=relative is invalid; expected: absolute paths of directories"),
                (("--gpu-memory", "lots"), "--gpu-memory=lots is invalid; expected: a size such as 20GiB"),
                (("--disk-seconds", "-1"), "--disk-seconds=-1 is invalid; expected: 0 to 3600"),
                (("--disk-seconds", "nan"), "--disk-seconds=nan is invalid; expected: 0 to 3600"),
                (("--ssd-writes", "600"), "--ssd-writes=600 is invalid; expected: a size with its unit, from 1GB on, as in 600TB"),
                (("--ssd-writes", "much"), "--ssd-writes=much is invalid; expected: a size")]  # fmt: skip
        for arguments, words in rows:
            done = run(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
            self.assertIn(f"spillway: {words}", done.stderr)
        for arguments in (("--disk-seconds", "soon"), ("--speed", "9"), ("more",)):
            done = run(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
            self.assertIn("--help", done.stderr)
        done = run(SPILLWAY_CHECKSUM="perhaps")
        self.assertEqual(done.returncode, 2)
        self.assertIn("SPILLWAY_CHECKSUM=perhaps is invalid", done.stderr)
        done = run(PYTORCH_CUDA_ALLOC_CONF="backend:spillway,policy:fifo")
        self.assertIn("policy in PYTORCH_CUDA_ALLOC_CONF=fifo is invalid", done.stderr)
        for text, words in (("backend:spillway,host_memroy:1GiB", "the nearest name is host_memory"),
                            ("dirs:/a,/b", "a list needs brackets, as in dirs:[/a,/b]")):
            done = run(PYTORCH_CUDA_ALLOC_CONF=text)
            self.assertEqual((done.returncode, done.stdout), (2, ""), text)
            self.assertIn(words, done.stderr)

    def test_settings_that_cannot_work_here(self):
        facts = self.facts("--host-memory", "900TiB", status=1)
        self.expect(facts, "start", "bad", "a job is refused: --host-memory=900TiB is invalid; expected: at most")
        self.assertNotEqual(next(it["value"] for it in facts["settings"] if it["name"] == "host_memory"), "900TiB")
        facts = self.facts("--gpu-memory", "2GiB", status=1)
        self.expect(facts, "start", "bad", r"expected: at most 1\.00 GiB, which GPU 0 has")
        facts = self.facts(SPILLWAY_HOST_MEMROY="1GiB")
        self.expect(facts, "warning", "limited", "SPILLWAY_HOST_MEMROY is unknown and ignored; the nearest name is SPILLWAY_HOST_MEMORY")


if __name__ == "__main__":
    unittest.main()
