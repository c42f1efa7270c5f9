"""The recipes: every setting that they name exists, each says what was run and what was only read, and what can run here does."""

import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import fresh

RECIPES = fresh.ROOT / "integration" / "packaging" / "recipes"
TABLE = fresh.ROOT / "integration" / "settings" / "settings.def"
STUBS = """
proc module-whatis {text} {}
proc conflict {name} {}
proc prepend-path {name folder} { puts "$name=$folder" }
proc setenv {name value} { puts "$name=$value" }
source [lindex $argv 0]
"""


def texts():
    return {path.name: path.read_text() for path in sorted(RECIPES.rglob("*")) if path.is_file()}


class RecipesTest(unittest.TestCase):
    def test_there_are_five(self):
        self.assertEqual(list(texts()), ["Containerfile", "recipe.yaml", "kubernetes.yaml", "slurm.sbatch", "spillway.modulefile"])

    def test_each_says_what_was_run_and_what_was_only_read(self):
        for name, text in texts().items():
            self.assertRegex(text, r"(?m)^#+ Run: ", name)
            self.assertRegex(text, r"(?m)^#+ Only read: ", name)

    def test_settings_exist(self):
        known = {f"SPILLWAY_{key.upper()}" for key in re.findall(r"^SETTING\((\w+)", TABLE.read_text(), re.MULTILINE)}
        named = {(name, found) for name, text in texts().items() for found in re.findall(r"\bSPILLWAY_[A-Z_]+", text)}
        self.assertGreater(len(named), 5)
        self.assertFalse({(name, found) for name, found in named if found not in known})

    def test_slurm_script_runs_its_command_with_its_settings(self):
        with tempfile.TemporaryDirectory() as folder:
            python = Path(folder) / "python"
            python.write_text('#!/bin/sh\n[ "$1" = -m ] || echo "$SPILLWAY_DIRS $SPILLWAY_METRICS $PYTORCH_CUDA_ALLOC_CONF $SRUN_CPUS_PER_TASK $*"\n')
            python.chmod(0o755)
            variables = fresh.clean_variables(PYTHON=str(python), SLURM_TMPDIR=folder, SLURM_JOB_ID="7", SLURM_CPUS_PER_TASK="6", SRUN="")
            command = ["bash", RECIPES / "slurm.sbatch", "train.py", "--steps", "2"]
            done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
            self.assertEqual(done.stdout, f"{folder} spillway-7-%p.json backend:spillway 6 train.py --steps 2\n")
            python.write_text("#!/bin/sh\nexit 1\n")  # `python -m spillway` says that it cannot work: the job does not start
            done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout), (1, ""))

    def test_module_file(self):
        if not shutil.which("tclsh"):
            self.skipTest("there is no tclsh")
        with tempfile.TemporaryDirectory() as folder:
            stubs = Path(folder) / "stubs.tcl"
            stubs.write_text(STUBS)
            command = ["tclsh", stubs, RECIPES / "spillway.modulefile"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout.split(), ["PATH=/opt/spillway/bin", "CMAKE_PREFIX_PATH=/opt/spillway",
                                               "LIBSPILLWAY=/opt/spillway/lib/libspillway.so"])  # fmt: skip


if __name__ == "__main__":
    fresh.main()
