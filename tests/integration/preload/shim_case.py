"""What the shim's test suites share: the laid-out directories, and running the probe in a clean environment."""

import os
import pathlib
import re
import subprocess
import unittest

STAGE = pathlib.Path(os.environ["PRELOAD_STAGE"])
SOURCE = pathlib.Path(os.environ["PRELOAD_SOURCE"])
BUILD = pathlib.Path(os.environ["PRELOAD_BUILD"])
TORCH_PYTHON = os.environ.get("PRELOAD_TORCH_PYTHON", "")
SHIM = STAGE / "shim" / "libspillway.so"
FULL, OLD = STAGE / "full", STAGE / "old"
PLUGINS = STAGE / "plugins"

NO_DEVICE, NOT_SUPPORTED, NOT_FOUND = 100, 801, 500


def clean_environment():
    names = ("PATH", "HOME", "LANG", "TMPDIR", "SPILLWAY_CONF")
    return {name: os.environ[name] for name in names if name in os.environ}


class ShimCase(unittest.TestCase):
    def run_command(self, command, preload=(SHIM,), driver=FULL, status=0, cwd=None, **variables):
        """Runs a command with the shim preloaded; the CompletedProcess. Variables given as None are left out; a status of
        None stands for any."""
        environment = clean_environment()
        if preload:
            environment["LD_PRELOAD"] = ":".join(str(path) for path in preload)
        if driver:
            environment["LD_LIBRARY_PATH"] = str(driver)
        environment.update(variables)
        environment = {name: str(value) for name, value in environment.items() if value is not None}
        done = subprocess.run(
            [str(word) for word in command], env=environment, cwd=cwd, capture_output=True, text=True, timeout=60
        )
        if status is not None:
            self.assertEqual(done.returncode, status, f"{command}\n{done.stdout}\n{done.stderr}")
        return done

    def probe(self, *command, program="preload_probe", **options):
        """The lines that the probe printed; nothing may be on standard error."""
        done = self.run_command([STAGE / program, *command], **options)
        self.assertEqual(done.stderr, "", f"{command}\n{done.stdout}")
        return done.stdout.splitlines()

    @staticmethod
    def functions():
        text = (SOURCE / "allocator/driver/driver_functions.def").read_text()
        return [m[0] for m in re.findall(r"^DRIVER_FUNCTION\((\w+), (\w+), (\d+), (\w+)\)$", text, re.M)]
