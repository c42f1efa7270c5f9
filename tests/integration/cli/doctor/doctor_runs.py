"""What the doctor's tests share: running it on the stand-in device, beside a made-up PyTorch, over a folder of its own."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BUILD = os.environ["SPILLWAY_BUILD"]
ROOT = Path(__file__).resolve().parents[4]
PROGRAM = f"{BUILD}/bin/spillway"
SIMCUDA = [f"{BUILD}/bin/simcuda-run", "--memory", "1GiB", "--"]
MIB = 1 << 20
QUICK = ("--quick", "--disk-seconds", "0.2")


def variables(**more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPILLWAY", "PYTORCH", "LD_PRELOAD", "PYTHONPATH"))}
    return {**kept, "SPILLWAY_DISK_RESERVE": "1GiB", **more}


def run(*arguments, device=True, prefix=(), command=(PROGRAM, "doctor"), **more):
    whole = [*prefix, *(SIMCUDA if device else []), *command, *arguments]
    return subprocess.run(whole, env=variables(**more), capture_output=True, text=True, timeout=120, check=False)


class DoctorCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir="/var/tmp")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.spill = self.folder / "spill"
        self.spill.mkdir()
        self.site = self.folder / "site"
        self.pytorch(f"{self.minor()}.0+cu130")

    def minor(self):
        """Of PyTorch, one that this build serves."""
        served = sorted(Path(BUILD, "lib").glob("libspillway_torch_*.so"))
        if not served:
            self.skipTest("this build serves no PyTorch")
        return ".".join(served[0].stem.split("_")[2:])

    def pytorch(self, version, cuda="'13.0'"):
        """A made-up PyTorch for PYTHONPATH, which must not be imported."""
        (self.site / "torch").mkdir(parents=True, exist_ok=True)
        (self.site / "torch" / "__init__.py").write_text("raise SystemExit('imported')\n")
        (self.site / "torch" / "version.py").write_text(f"__version__ = '{version}'\ncuda: str = {cuda}\n")

    def doctor(self, *arguments, **more):
        more = {"PYTHONPATH": str(self.site), **more}
        if "--disk-seconds" not in arguments:
            arguments = (*QUICK, *arguments)
        return run("--dirs", str(self.spill), "--python", sys.executable, *arguments, **more)

    def facts(self, *arguments, status=0, **more):
        done = self.doctor("--json", *arguments, **more)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def finding(self, facts, what):
        found = [it for it in facts["findings"] if it["what"] == what]
        self.assertEqual(len(found), 1, [it["what"] for it in facts["findings"]])
        return found[0]

    def expect(self, facts, what, verdict, words):
        found = self.finding(facts, what)
        self.assertEqual(found["verdict"], verdict, found)
        self.assertRegex(f"{found['found']} -> {found['advice']}", words)
