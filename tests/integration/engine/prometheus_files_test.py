"""SPILLWAY_PROMETHEUS in a job: samples name the job and its user, and files of ended processes are gone."""

import os
import pathlib
import re
import subprocess
import tempfile
import time
import unittest

BUILD = os.environ["SPILLWAY_BUILD"]
PYTHON = os.environ["SPILLWAY_TEST_PYTHON"]
JOB = 'import os, torch; torch.ones(2 << 20, device="cuda").sum().item(); print(os.getpid())'
NO_PROCESS = 2**22 + 1  # above the largest that Linux gives


class PrometheusFilesTest(unittest.TestCase):
    def test_a_job_removes_what_ended_ones_have_left(self):
        with tempfile.TemporaryDirectory(prefix="spillway_prom_") as name:
            folder = pathlib.Path(name)
            beginning = f'# HELP spillway_build_info x\nspillway_build_info{{version="0",rank="0",pid="{NO_PROCESS}"}} 1\n'
            for file, text in (("jobs-1.prom", beginning), ("jobs-2.prom", "# HELP other x\n"), ("jobs-x.prom", beginning)):
                (folder / file).write_text(text, encoding="utf-8")
                written = time.time() - 120  # long enough for one without its process, not for any
                os.utime(folder / file, (written, written))
            environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPILLWAY", "PYTORCH_", "LD_PRELOAD", "SLURM_"))}
            environment.update(LD_PRELOAD=f"{BUILD}/lib/libspillway.so", SPILLWAY_CONF="none", SPILLWAY_DIRS="none",
                               SPILLWAY_HOST_MEMORY="16MiB", SPILLWAY_PROMETHEUS=f"{folder}/jobs-%p.prom",
                               SLURM_JOB_ID="4711", LOGNAME="ada")  # fmt: skip
            command = [f"{BUILD}/bin/simcuda-run", "--memory", "256MiB", "--", PYTHON, "-c", JOB]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            own = f"jobs-{done.stdout.strip()}.prom"
            self.assertEqual(sorted(path.name for path in folder.iterdir()), sorted(["jobs-2.prom", "jobs-x.prom", own]))
            samples = [line for line in (folder / own).read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
            self.assertGreater(len(samples), 20)
            for line in samples:
                self.assertRegex(line, rf'pid="{re.escape(done.stdout.strip())}",job_id="4711",user="ada"\}} ')


if __name__ == "__main__":
    unittest.main()
