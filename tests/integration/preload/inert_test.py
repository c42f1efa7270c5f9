"""In a process that uses no CUDA the shim does nothing: no thread, no file, no engine, no word. What the time of its
loading is, bench/inertness_bench.py measures.
"""

import collections
import json
import os
import sys
import tempfile
import unittest

from shim_case import SHIM, STAGE, TORCH_PYTHON, ShimCase

CONF = "backend:spillway,gpu_memory:1GiB"
NO_TRACING = 77


class InertTest(ShimCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def loaded(self, command, **options):
        """What the loader says that it initialises, in the process and its children."""
        done = self.run_command(command, LD_DEBUG="files", PYTORCH_CUDA_ALLOC_CONF=CONF, **options)
        return [line.split("calling init: ")[1] for line in done.stderr.splitlines() if "calling init: " in line]

    def assert_only_the_shim(self, command):
        libraries = self.loaded(command)
        self.assertIn(str(SHIM), libraries)
        self.assertFalse([name for name in libraries if "spillway_engine" in name or "libcuda.so" in name], libraries)

    def deeds(self, command, preload):
        """How often the command and its children did what: opened a file, started a program, a thread, a socket."""
        notes = os.path.join(self.folder, "notes")
        tracer = [STAGE / "preload_tracer", notes, *command]
        variables = {"TRACED_LD_PRELOAD": SHIM if preload else None, "PYTORCH_CUDA_ALLOC_CONF": CONF, "HOME": self.folder,
                     "TMPDIR": self.folder}  # fmt: skip
        try:
            done = self.run_command(tracer, preload=(), **variables)
        except AssertionError:
            if self.run_command([STAGE / "preload_tracer", notes, "/bin/true"], preload=(), status=None).returncode == NO_TRACING:
                self.skipTest("processes may not be traced here")
            raise
        with open(notes, encoding="utf-8", errors="replace") as file:
            lines = [line.rstrip("\n") for line in file]
        # Files of the command's own, whose names may be chance.
        lines = [line for line in lines if not line.startswith(f"open {self.folder}/")]
        return (done.stdout, done.stderr), collections.Counter(lines)

    def assert_no_deeds(self, command):
        """Nothing but the loader's opening of the shim in each program that is started, and no word."""
        self.deeds(command, False)  # so that caches of the command's own are warm
        words, without = self.deeds(command, False)
        words_with_it, with_it = self.deeds(command, True)
        self.assertEqual(words_with_it, words)
        self.assertFalse(without - with_it)
        more = with_it - without
        self.assertEqual(set(more), {f"open {SHIM}"})
        self.assertLessEqual(more[f"open {SHIM}"], sum(n for what, n in with_it.items() if what.startswith("exec ")))
        self.assertGreater(sum(without.values()), 0)

    def test_tracer_sees_a_thread_and_a_file(self):
        """That the comparison above can fail."""
        code = "import threading; open('/proc/self/status').close(); t = threading.Thread(target=int); t.start(); t.join()"
        _, nothing = self.deeds(["python3", "-c", "import threading"], False)
        _, something = self.deeds(["python3", "-c", code], False)
        self.assertEqual((something - nothing)["thread"], 1)
        self.assertEqual((something - nothing)["open /proc/self/status"], 1)

    def test_threads_and_files_are_as_without_it(self):
        self.assertEqual(self.probe("facts"), self.probe("facts", preload=()))
        self.assertIn("threads=1", self.probe("facts"))

    def test_bash(self):
        script = "x=1; for i in 1 2 3; do x=$((x+i)); done; (echo $x); /bin/true; env | grep ALLOC"
        done = self.run_command(["bash", "-c", script], PYTORCH_CUDA_ALLOC_CONF=CONF)
        self.assertEqual((done.stdout, done.stderr), (f"7\nPYTORCH_CUDA_ALLOC_CONF={CONF}\n", ""))
        self.assert_only_the_shim(["bash", "-c", script])
        self.assert_no_deeds(["/bin/bash", "-c", script])

    def test_compiler(self):
        source, target = os.path.join(self.folder, "a.c"), os.path.join(self.folder, "a")
        with open(source, "w", encoding="ascii") as file:
            file.write("int main(void) { return 0; }\n")
        command = ["/usr/bin/cc", source, "-o", target]
        done = self.run_command(command)
        self.assertEqual((done.stdout, done.stderr), ("", ""))
        self.run_command([target])
        self.assert_only_the_shim(command)
        self.assert_no_deeds(command)

    def test_git(self):
        self.run_command(["git", "init", "-q", self.folder], HOME=self.folder)
        command = ["git", "-C", self.folder, "status", "--short"]
        done = self.run_command(command, HOME=self.folder)
        self.assertEqual((done.stdout, done.stderr), ("", ""))
        self.assert_only_the_shim(command)
        self.assert_no_deeds(["/usr/bin/git", "-C", self.folder, "status", "--short"])

    @unittest.skipUnless(TORCH_PYTHON, "no PyTorch in build/venv")
    def test_pip(self):
        command = [TORCH_PYTHON, "-S", "-m", "pip", "--version"]  # -S: without a start-up hook of ours
        packages = self.run_command([TORCH_PYTHON, "-c", "import pip; print(pip.__path__[0])"], preload=()).stdout.strip()
        done = self.run_command(command, PYTHONPATH=os.path.dirname(packages))
        self.assertTrue(done.stdout.startswith("pip "), done.stdout)
        self.assertEqual(done.stderr, "")
        command = ["/usr/bin/env", f"PYTHONPATH={os.path.dirname(packages)}", *command]
        self.assert_only_the_shim(command)
        self.assert_no_deeds(command)

    def test_python_without_torch(self):
        code = (
            "import os, json, ctypes, subprocess, threading, multiprocessing;"
            "print(json.dumps([len(os.listdir('/proc/self/task')), sorted(os.listdir('/proc/self/fd')),"
            "os.environ.get('PYTORCH_CUDA_ALLOC_CONF')]))"
        )
        with_it = self.run_command(["python3", "-c", code], PYTORCH_CUDA_ALLOC_CONF=CONF)
        without = self.run_command(["python3", "-c", code], PYTORCH_CUDA_ALLOC_CONF=CONF, preload=())
        self.assertEqual(with_it.stdout, without.stdout)
        self.assertEqual(with_it.stderr, "")
        self.assertEqual(json.loads(with_it.stdout)[0], 1)
        self.assert_only_the_shim(["python3", "-c", code])

    def test_forked_child_of_a_process_without_cuda(self):
        code = "import os; pid = os.fork(); os._exit(0) if pid == 0 else print(os.waitpid(pid, 0)[1])"
        done = self.run_command(["python3", "-c", code])
        self.assertEqual((done.stdout, done.stderr), ("0\n", ""))


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
