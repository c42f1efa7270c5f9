"""Each row of wrong_inputs.txt: what is said of a wrong setting, in a job, by `spillway run` and in PyTorch's variable.

The job is a Python that initialises CUDA on the stand-in device, without PyTorch.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

BUILD = os.environ["SPILLWAY_BUILD"]
TABLE = pathlib.Path(__file__).with_name("wrong_inputs.txt")
VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"
JOB = [sys.executable, "-I", "-S", "-c", "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"]
# Each input to the C entry that spillway.enable() calls, one line each; then one that is right.
CHECK_SETTINGS = """
import ctypes
check = ctypes.CDLL({engine!r}).spillway_engine_check_settings
text = ctypes.create_string_buffer(1000)
for given in [*{inputs!r}, "disk_reserve=1GiB"]:
    pairs = [given.partition("=")]
    names = (ctypes.c_char_p * 1)(*[name.encode() for name, _, _ in pairs])
    values = (ctypes.c_char_p * 1)(*[value.encode() for _, _, value in pairs])
    print(check(names, values, ctypes.c_size_t(len(pairs)), text, ctypes.c_size_t(1000)), text.value.decode())
"""
FEWEST_ROWS = 60
# The usual reserve costs a line where the disk is nearly full.
SMALL_RESERVE = {"SPILLWAY_DISK_RESERVE": "1GiB"}


def read_table():
    """Section -> [(input, words)]."""
    rows, section = {}, ""
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            rows.setdefault(section, []).append(tuple(part.strip() for part in line.split(" | ")))
    return rows


def run(command, preload=True, **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPILLWAY", "PYTORCH_", "LD_PRELOAD"))}
    environment.update(variables)
    if preload:
        environment["LD_PRELOAD"] = f"{BUILD}/lib/libspillway.so"
    command = [f"{BUILD}/bin/simcuda-run", "--memory", "256MiB", "--", *command]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def variable_of(name):
    return "SPILLWAY_" + name.upper()


def option_of(name):
    return "--" + name.replace("_", "-")


class WrongInputsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rows = read_table()
        cls.folder = tempfile.TemporaryDirectory(prefix="spillway_wrong_", dir="/var/tmp")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.list = f"{cls.folder.name}.list"
        cls.addClassCleanup(os.remove, cls.list)
        pathlib.Path(cls.list).write_text("good\nbad/name\n", encoding="utf-8")

    def fill(self, text):
        return text.replace("FOLDER", self.folder.name).replace("LIST", self.list)

    def check(self, done, row, words, ran="0\n"):
        self.assertEqual((done.returncode, done.stdout), (2, ""), f"{row}: {done.stderr}")
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 1, f"{row}: {done.stderr}")
        self.assertRegex(lines[0], "^spillway: " + words, row)

    def check_all(self, rows, ways):
        """Runs each row in each way, two at a time."""
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for row, words, done in pool.map(lambda task: task(), [w for row in rows for w in ways(*row)]):
                with self.subTest(row=row):
                    self.check(done, row, words)

    def ways_of_setting(self, row, words):
        name, _, value = self.fill(row).partition("=")
        words = self.fill(words)
        more = {"SPILLWAY_DIRS": self.folder.name} if name == "disk_reserve" else {}
        yield lambda: (row, re.escape(f"{variable_of(name)}={value} ") + words,
                       run(JOB, **{**more, variable_of(name): value}))  # fmt: skip
        head = re.escape(f"{name} in {VARIABLE}={value} ")
        conf = {VARIABLE: f"backend:spillway,{name}:[{value}]"}
        yield lambda: (row, head + words, run(JOB, **more, **conf))
        before = [f"{BUILD}/bin/spillway", "run", "--", "echo", "ran"]
        yield lambda: (row, head + words, run(before, preload=False, **more, **conf))
        command = [f"{BUILD}/bin/spillway", "run", f"{option_of(name)}={value}", "--", *JOB]
        yield lambda: (row, re.escape(f"{option_of(name)}={value} ") + words, run(command, preload=False, **more))

    def test_settings(self):
        self.check_all(self.rows["setting"], self.ways_of_setting)

    def test_texts_of_pytorchs_variable(self):
        def ways(row, words):
            words = self.fill(words).replace("VARIABLE", VARIABLE)
            yield lambda: (row, words, run(JOB, **{VARIABLE: self.fill(row)}))
            before = [f"{BUILD}/bin/spillway", "run", "--", "echo", "ran"]
            yield lambda: (row, words, run(before, preload=False, **{VARIABLE: self.fill(row)}))

        self.check_all(self.rows["conf"], ways)

    def test_the_c_entry_says_the_same(self):
        rows = [(self.fill(row), self.fill(words)) for row, words in self.rows["setting"] if not row.startswith("gpu_memory=2")]
        code = CHECK_SETTINGS.format(engine=f"{BUILD}/lib/libspillway_engine.so", inputs=[row for row, _ in rows])
        more = {"SPILLWAY_DIRS": self.folder.name}
        done = run([sys.executable, "-I", "-S", "-c", code], preload=False, **more)
        answers = done.stdout.splitlines()
        self.assertEqual(len(answers), len(rows) + 1, done.stderr)
        self.assertEqual(answers[-1], "0 ")
        for (row, words), answer in zip(rows, answers):
            self.assertRegex(answer, "^1 " + re.escape(row + " ") + words, row)

    def test_what_only_costs_a_line(self):
        for row, words in self.rows["warn"]:
            name, _, value = row.partition("=")
            done = run(JOB, **SMALL_RESERVE, **{name: value})
            self.assertEqual((done.returncode, done.stdout), (0, "0\n"), done.stderr)
            self.assertRegex(done.stderr, "^spillway: " + words + "\n$")

    def test_the_table_is_long_enough_and_names_no_row_twice(self):
        rows = [row for section in self.rows.values() for row, _ in section]
        self.assertGreaterEqual(len(rows), FEWEST_ROWS)
        self.assertEqual(len(rows), len(set(rows)))

    def test_an_empty_variable_is_as_if_it_were_not_set(self):
        names = [row.partition("=")[0] for row, _ in self.rows["setting"]]
        empty = {**{variable_of(name): "" for name in names}, **SMALL_RESERVE}
        done = run(JOB, SPILLWAY="", **empty)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "0\n", ""))
        command = [f"{BUILD}/bin/spillway", "run", "--", *JOB]
        done = run(command, preload=False, SPILLWAY="", **empty)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "0\n", ""))

    def test_with_log_off_only_the_end_is_said(self):
        done = run(JOB, SPILLWAY_LOG="off", SPILLWAY_GPU_MEMROY="1GiB")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        done = run(JOB, SPILLWAY_LOG="off", SPILLWAY_POLICY="fifo")
        self.assertEqual(done.returncode, 2)
        self.assertIn("SPILLWAY_POLICY=fifo is invalid", done.stderr)

    def test_a_rank_is_named_where_there_are_several(self):
        done = run(JOB, LOCAL_RANK="3", LOCAL_WORLD_SIZE="8", SPILLWAY_DIRS="/dev/shm")
        self.assertRegex(done.stderr, r"^spillway: rank 3, pid \d+: SPILLWAY_DIRS=/dev/shm is invalid")


if __name__ == "__main__":
    unittest.main()
