"""In a process that uses no CUDA the shim does nothing: no thread, no file, no engine, no word, nearly no time."""

import json
import os
import statistics
import tempfile
import time
import unittest

from shim_case import SHIM, STAGE, ShimCase

CONF = "backend:spillway,gpu_memory:1GiB"


class InertTest(ShimCase):
    def loaded(self, command, **options):
        """What the loader says that it initialises, in the process and its children."""
        done = self.run_command(command, LD_DEBUG="files", PYTORCH_CUDA_ALLOC_CONF=CONF, **options)
        return [line.split("calling init: ")[1] for line in done.stderr.splitlines() if "calling init: " in line]

    def assert_only_the_shim(self, command):
        libraries = self.loaded(command)
        self.assertIn(str(SHIM), libraries)
        self.assertFalse([name for name in libraries if "spillway_engine" in name or "libcuda.so" in name], libraries)

    def test_threads_and_files_are_as_without_it(self):
        self.assertEqual(self.probe("facts"), self.probe("facts", preload=()))
        self.assertIn("threads=1", self.probe("facts"))

    def test_bash(self):
        script = "x=1; for i in 1 2 3; do x=$((x+i)); done; (echo $x); /bin/true; env | grep ALLOC"
        done = self.run_command(["bash", "-c", script], PYTORCH_CUDA_ALLOC_CONF=CONF)
        self.assertEqual((done.stdout, done.stderr), (f"7\nPYTORCH_CUDA_ALLOC_CONF={CONF}\n", ""))
        self.assert_only_the_shim(["bash", "-c", script])

    def test_compiler(self):
        with tempfile.TemporaryDirectory() as folder:
            source, target = os.path.join(folder, "a.c"), os.path.join(folder, "a")
            with open(source, "w", encoding="ascii") as file:
                file.write("int main(void) { return 0; }\n")
            command = ["cc", source, "-o", target]
            done = self.run_command(command)
            self.assertEqual((done.stdout, done.stderr), ("", ""))
            self.run_command([target])
            self.assert_only_the_shim(command)

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

    def test_start_of_a_process_costs_little(self):
        """Printed for the record; the limit is wide, since the machine may be busy."""
        def median(preload):
            times = []
            for _ in range(41):
                start = time.perf_counter()
                self.run_command(["/bin/true"], preload=preload, driver=None)
                times.append(time.perf_counter() - start)
            return statistics.median(times) * 1e3

        without, with_it = median(()), median((SHIM,))
        print(f"start of /bin/true: {without:.2f} ms without, {with_it:.2f} ms with the shim")
        self.assertLess(with_it - without, 5.0)


if __name__ == "__main__":
    unittest.main()
