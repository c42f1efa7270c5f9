"""integration/quickstart/prepare.sh: what failed ends the command, also where the caller goes on by && or ||."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


class PrepareTest(unittest.TestCase):
    def build(self, **failing):
        """build_into as tests/nightly.sh calls it, with commands in the place of cmake and ninja that end with these statuses."""
        with tempfile.TemporaryDirectory() as folder:
            for command in ("cmake", "ninja"):
                stub = Path(folder) / command
                stub.write_text(f"#!/bin/sh\nexit {failing.get(command, 0)}\n")
                stub.chmod(0o755)
            code = f'set -euo pipefail; ROOT={ROOT}; . integration/quickstart/prepare.sh; PYTHON=python3; build_into "{folder}/b" && echo went on'
            return subprocess.run(["bash", "-c", code], env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}, cwd=ROOT,
                                  capture_output=True, text=True, timeout=60, check=False)  # fmt: skip

    def test_a_build_that_failed_is_not_gone_on_with(self):
        for command in ("cmake", "ninja"):
            done = self.build(**{command: 3})
            self.assertNotIn("went on", done.stdout, command)
            self.assertEqual(done.returncode, 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
