"""`spillway run`: it hands settings, the preload and the command on."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

BUILD = os.environ["SPILLWAY_BUILD"]
PROGRAM = f"{BUILD}/bin/spillway"
SETTINGS = Path(__file__).resolve().parents[4] / "docs" / "environment.md"

# A value that each kind of setting takes, by how docs/environment.md says what is accepted.
VALUES = {"a size": "2GiB", "a path": "/dev/null", "directories": "/var/tmp", "on, off or observe": "observe",
          "a time such as": "30s"}


def value_for(variable, accepted):
    if variable in ("SPILLWAY_METRICS", "SPILLWAY_PROMETHEUS", "SPILLWAY_REPORT", "SPILLWAY_TRACE"):  # a file that can be written
        return f"/var/tmp/spillway_run_test_{os.getpid()}"
    for words, value in VALUES.items():
        if accepted.startswith(words):
            return value
    return re.split(r",| or ", accepted)[0]  # the first of a list of words


def spillway(*arguments, device=None, **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SPILLWAY") and k != "LD_PRELOAD"}
    environment.update(variables)
    command = [PROGRAM, *arguments]
    if device:
        command = [f"{BUILD}/bin/simcuda-run", "--memory", device, "--", *command]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)


class RunTest(unittest.TestCase):
    def test_settings_become_variables_and_the_preload_comes_first(self):
        done = spillway("run", "--gpu-memory", "2GiB", "--policy=lru", "--", "env", LD_PRELOAD="/other.so")
        lines = done.stdout.splitlines()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("SPILLWAY_GPU_MEMORY=2GiB", lines)
        self.assertIn("SPILLWAY_POLICY=lru", lines)
        self.assertIn(f"LD_PRELOAD={BUILD}/lib/libspillway.so:/other.so", lines)

    def test_the_commands_own_options_and_status_are_kept(self):
        done = spillway("run", "--", "sh", "-c", 'echo "$@"; exit 5', "name", "--policy", "-v", "")
        self.assertEqual((done.returncode, done.stdout), (5, "--policy -v \n"))

    def test_every_word_of_the_command_is_handed_on_as_it_is(self):
        words = ["[0,1]", "[]", "[a]", "", "--", "--policy", "++", "-h", "{x}", "'a b'", "%s", "run", "\\"]
        for before in (("--",), ("--policy", "lru"), ("--policy=lru", "--")):
            done = spillway("run", *before, "printf", "%s|", *words)
            self.assertEqual((done.returncode, done.stdout), (0, "".join(f"{word}|" for word in words)), done.stderr)

    def test_a_command_that_is_not_there(self):
        done = spillway("run", "--", "/no/such/program")
        self.assertEqual(done.returncode, 127)
        self.assertIn("cannot run /no/such/program: No such file", done.stderr)

    def test_every_setting_is_an_option(self):
        rows = re.findall(r"^\| `(SPILLWAY[A-Z_]*)` \| [^|]* \| ([^|]*) \|", SETTINGS.read_text(), re.MULTILINE)
        self.assertGreater(len(rows), 10)
        text = spillway("run", "--help").stdout
        arguments, expected = [], []
        for variable, accepted in rows:
            flag = "--mode" if variable == "SPILLWAY" else "--" + variable[len("SPILLWAY_") :].lower().replace("_", "-")
            self.assertIn(flag, text)
            arguments.append(f"{flag}={value_for(variable, accepted)}")
            expected.append(f"{variable}={value_for(variable, accepted)}")
        done = spillway("run", *arguments, "--", "env")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(set(expected) - set(done.stdout.splitlines()), set())

    def test_the_commands_signal_is_its_own(self):
        self.assertEqual(spillway("run", "--", "sh", "-c", "kill -TERM $$").returncode, -signal.SIGTERM)

    def test_a_wrong_value_is_said_before_the_command_runs(self):
        done = spillway("run", "--gpu-memory", "lots", "--", "echo", "ran")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("spillway: --gpu-memory=lots is invalid; expected: a size such as 20GiB", done.stderr)
        done = spillway("run", "--policy", "lru", "--", "echo", "ran", SPILLWAY_CHECKSUM="perhaps")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("SPILLWAY_CHECKSUM=perhaps is invalid", done.stderr)
        done = spillway("run", "--dirs", "/nope", "--", "echo", "ran")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("spillway: --dirs=/nope is invalid; expected: writable directories on a disk", done.stderr)

    def test_a_wrong_key_of_pytorchs_variable_is_said_before_the_command_runs(self):
        for conf, words in (("policy:fifo", "policy in PYTORCH_CUDA_ALLOC_CONF=fifo is invalid; expected: plan or lru"),
                            ("dirs:[/nope]", "dirs in PYTORCH_CUDA_ALLOC_CONF=/nope is invalid; expected: writable"),
                            ("host_memroy:1GiB", "host_memroy in PYTORCH_CUDA_ALLOC_CONF is a setting of neither")):  # fmt: skip
            done = spillway("run", "--", "echo", "ran", PYTORCH_CUDA_ALLOC_CONF=f"backend:spillway,{conf}")
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertIn("spillway: " + words, done.stderr)
        done = spillway("run", "--policy", "lru", "--", "echo", "ran", PYTORCH_CUDA_ALLOC_CONF="backend:spillway,policy:fifo")
        self.assertEqual((done.returncode, done.stdout), (0, "ran\n"), "an option wins over a key")

    def test_a_preloaded_sanitizer_stays_in_front(self):
        ours = f"{BUILD}/lib/libspillway.so"
        for before, after in (("/x/libasan.so.8:/other.so", f"/x/libasan.so.8:{ours}:/other.so"),
                              ("/a.so libtsan.so.2", f"/a.so:libtsan.so.2:{ours}"),
                              ("/c/libclang_rt.hwasan-x86_64.so", f"/c/libclang_rt.hwasan-x86_64.so:{ours}"),
                              ("/x/liblsan.so.0:/x/libubsan.so.1", f"/x/liblsan.so.0:{ours}:/x/libubsan.so.1"),
                              ("/libasan/a.so", f"{ours}:/libasan/a.so")):  # fmt: skip
            done = spillway("run", "--", "env", LD_PRELOAD=before)
            self.assertIn(f"LD_PRELOAD={after}", done.stdout.splitlines(), done.stderr)

    def test_a_relative_path_of_a_file_is_that_of_this_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            before = os.getcwd()
            os.chdir(folder)
            try:
                done = spillway("run", "--metrics", "m.json", "--trace", "none", "--report", "r.json", "--", "sh", "-c", "cd /; env")
            finally:
                os.chdir(before)
        for line in (f"SPILLWAY_METRICS={folder}/m.json", "SPILLWAY_TRACE=none", f"SPILLWAY_REPORT={folder}/r.json"):
            self.assertIn(line, done.stdout.splitlines(), done.stderr)

    def test_a_path_that_the_loader_splits_is_refused_in_words(self):
        for name in ("a b", "a:b"):
            with tempfile.TemporaryDirectory() as folder:
                there = Path(folder, name)
                (there / "bin").mkdir(parents=True)
                (there / "lib").mkdir()
                shutil.copy(PROGRAM, there / "bin")
                shutil.copy(f"{BUILD}/lib/libspillway.so", there / "lib")
                done = subprocess.run([there / "bin" / "spillway", "run", "--", "echo", "ran"], capture_output=True, text=True, timeout=100)
            self.assertEqual((done.returncode, done.stdout), (127, ""), done.stderr)
            self.assertEqual(done.stderr, f"spillway: {there}/lib/libspillway.so: the loader splits LD_PRELOAD at spaces and colons; "
                                          "install Spillway to a path without them\n")  # fmt: skip

    def test_wrong_use(self):
        without_value = ("run", "--policy", "--", "true"), ("run", "--policy=", "true")
        for arguments in (("run",), (), ("run", "--"), ("run", "--speed", "9", "--", "true"), ("walk",), *without_value):
            done = spillway(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertIn("--help", done.stderr)


if __name__ == "__main__":
    unittest.main()
