"""Files of settings end to end: the same words in a job, by `spillway run` and `describe settings`; limits that hold."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import own_etc  # noqa: E402

BUILD = os.environ["SPILLWAY_BUILD"]
PYTHON = os.environ.get("SPILLWAY_TEST_PYTHON", "")
PROGRAM = f"{BUILD}/bin/spillway"
JOB = [sys.executable, "-I", "-S", "-c", "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"]
# Six blocks of 8 MiB, and what they then hold of the GPU.
BLOCKS = """
import torch
blocks = [torch.full((2 << 20,), float(i), device="cuda") for i in range(6)]
torch.cuda.synchronize()
import spillway
print(spillway.stats()["budget_bytes"], all(float(b[0]) == i for i, b in enumerate(blocks)))
"""
MIB = 1 << 20


def run(command, etc=None, preload=False, **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPILLWAY", "PYTORCH_", "LD_PRELOAD"))}
    environment.update({"SPILLWAY_DISK_RESERVE": "1GiB", "SPILLWAY_CONF": "none", **variables})
    command = [f"{BUILD}/bin/simcuda-run", "--memory", "256MiB", "--", *command]
    if etc is not None:
        command = own_etc.command_with(etc, command)
    if preload:
        environment["LD_PRELOAD"] = f"{BUILD}/lib/libspillway.so"
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)


class SettingsFilesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="spillway_files_")
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name, "job.conf")

    def etc(self, text):
        if not own_etc.POSSIBLE:
            self.skipTest("no mount namespaces here")
        folder = own_etc.make_etc(text)
        self.addCleanup(folder.cleanup)
        return folder.name

    def test_wrong_files_are_refused_in_the_same_words_everywhere(self):
        cases = {
            "host_memory=lots\n": f"{self.file}:1: host_memory=lots is invalid; expected: ",
            "\nSPILLWAY_DIRS=/nope\n": f"{self.file}:2: dirs=/nope is invalid; expected: ",
            "gpu_memory=2GiB\n": f"{self.file}:1: gpu_memory=2GiB is invalid; expected: at most 256.00 MiB",
            "gpu_memory\n": f"{self.file}:1: expected NAME=VALUE",
        }
        for text, words in cases.items():
            self.file.write_text(text, encoding="utf-8")
            conf = {"SPILLWAY_CONF": str(self.file)}
            ways = [run(JOB, preload=True, **conf), run([PROGRAM, "run", "--", *JOB], **conf)]
            for done in ways:
                with self.subTest(text=text):
                    self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                    self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                    self.assertIn("spillway: " + words, done.stderr)
        self.file.write_text("policy=fifo\n", encoding="utf-8")
        done = run([PROGRAM, "describe", "settings"], SPILLWAY_CONF=str(self.file))
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn(f"{self.file}:1: policy=fifo is invalid; expected: plan or lru", done.stderr)

    def test_an_option_and_a_variable_win_over_a_file(self):
        self.file.write_text("policy=fifo\n", encoding="utf-8")
        conf = {"SPILLWAY_CONF": str(self.file)}
        for done in (run(JOB, preload=True, SPILLWAY_POLICY="lru", **conf), run([PROGRAM, "run", "--policy=lru", "--", *JOB], **conf)):
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "0\n", ""))

    def test_a_limit_lowers_with_a_line(self):
        etc = self.etc("[limits]\nhost_memory=32MiB\n")
        line = "spillway: warning SPILLWAY_HOST_MEMORY=64MiB is lowered by a limit: /etc/spillway.conf:2: host_memory=32MiB\n"
        for done in (run(JOB, etc, preload=True, SPILLWAY_HOST_MEMORY="64MiB"),
                     run([PROGRAM, "run", "--host-memory=64MiB", "--", *JOB], etc)):  # fmt: skip
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "0\n", line))
        done = run(JOB, etc, preload=True, SPILLWAY_HOST_MEMORY="16MiB")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        done = run(JOB, etc, preload=True, SPILLWAY_HOST_MEMORY="64MiB", SPILLWAY_LOG="off")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_settings_are_described_with_who_says_so(self):
        etc = self.etc("policy=lru\nlog=info\nhost_memory=48MiB\n[limits]\nhost_memory=32MiB\ngpu_memory=50%\n")
        self.file.write_text("log=debug\n", encoding="utf-8")
        conf = {"SPILLWAY_CONF": str(self.file), "PYTORCH_CUDA_ALLOC_CONF": "backend:spillway,trust:strict"}
        done = run([PROGRAM, "describe", "settings"], etc, **conf)
        self.assertEqual(
            done.stdout.splitlines(),
            [
                "gpu_memory at most 50% by /etc/spillway.conf:6: gpu_memory",
                "host_memory=48MiB by /etc/spillway.conf:3: host_memory; at most 32MiB by /etc/spillway.conf:5: host_memory",
                "disk_reserve=1GiB by SPILLWAY_DISK_RESERVE",
                "policy=lru by /etc/spillway.conf:1: policy",
                f"log=debug by {self.file}:1: log",
                "trust=strict by trust in PYTORCH_CUDA_ALLOC_CONF",
                "warning: /etc/spillway.conf:3: host_memory=48MiB is lowered by a limit: /etc/spillway.conf:5: host_memory=32MiB",
            ],
            done.stderr,
        )

    def test_the_doctor_says_it_too(self):
        etc = self.etc("policy=lru\n[limits]\ngpu_memory=50%\n")
        done = run([PROGRAM, "doctor", "--installation", "--json"], etc)
        origins = {it["name"]: it for it in json.loads(done.stdout)["origins"]}
        self.assertEqual(origins["policy"]["source"], "/etc/spillway.conf:1: policy")
        self.assertEqual(origins["policy"]["value"], "lru")
        self.assertIsNone(origins["policy"]["limit"])
        self.assertEqual((origins["gpu_memory"]["value"], origins["gpu_memory"]["limit"]), (None, "50%"))
        self.assertEqual(origins["gpu_memory"]["limit_source"], "/etc/spillway.conf:3: gpu_memory")
        done = run([PROGRAM, "doctor", "--installation"], etc)
        self.assertIn("Settings and their sources\n  gpu_memory at most 50% by /etc/spillway.conf:3: gpu_memory\n", done.stdout)

    @unittest.skipUnless(PYTHON, "no PyTorch")
    def test_a_limit_of_the_gpu_holds_for_the_default_for_bytes_and_for_shares(self):
        path = str(pathlib.Path(BUILD, "..", "integration", "python").resolve())
        common = {"PYTHONPATH": path, "SPILLWAY_DIRS": "none", "SPILLWAY_HOST_MEMORY": "64MiB", "SPILLWAY_LIBRARY_DIR": f"{BUILD}/lib"}
        etc = self.etc("[limits]\ngpu_memory=25%\n")
        for asked, lowered in ((None, False), ("128MiB", True), ("80%", True)):
            given = {} if asked is None else {"SPILLWAY_GPU_MEMORY": asked}
            done = run([PYTHON, "-c", BLOCKS], etc, preload=True, **common, **given)
            budget, right = done.stdout.split() or ("0", "")
            self.assertEqual(right, "True", f"{asked}: {done.stderr}")
            self.assertLessEqual(int(budget), 64 * MIB, asked)
            self.assertEqual("lower" in done.stderr, lowered, done.stderr)
            if asked == "128MiB":
                self.assertIn("gpu_memory under [limits] of /etc/spillway.conf lowers 128.00 MiB to 64.00 MiB on GPU 0", done.stderr)


if __name__ == "__main__":
    unittest.main()
