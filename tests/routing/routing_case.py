"""What the routing tests share: stock PyTorch on the stand-in device under the preload, each run a process of its own."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

BUILD = Path(os.environ["ROUTING_BUILD"])
STAGE = Path(os.environ["ROUTING_STAGE"])
PYTHON = os.environ["ROUTING_PYTHON"]
MINOR = os.environ["ROUTING_MINOR"]  # of the PyTorch in PYTHON: "2_11"

# Twice the small device: 16 blocks of 8 MiB on 64 MiB, each changed in turn, twice round. Leaves `blocks`, of which
# some lie in host memory and some in spill files.
OVERSUBSCRIBE = """
import torch
blocks = [torch.full((2 << 20,), float(i), device="cuda") for i in range(16)]
for step in range(2):
    for block in blocks:
        block.add_(1.0)
torch.cuda.synchronize()
def right(blocks=blocks):
    return [block.sum().item() / (2 << 20) for block in blocks] == [i + 2.0 for i in range(16)]
"""


class RoutingCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="spillway_routing_", dir="/var/tmp")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.spill = self.folder / "spill"
        self.spill.mkdir()

    def run_job(self, command, library=BUILD / "lib/libspillway.so", memory="128MiB", status=0, **variables):
        """A command on the stand-in device with the preload; text is code for PYTHON."""
        if isinstance(command, str):
            script = self.folder / "job.py"  # a file: spawned children import it again
            script.write_text(command)
            command = [PYTHON, "-B", script]
        kept = {k: v for k, v in os.environ.items() if not re.match("SPILLWAY|PYTORCH_|LD_|SIMCUDA|ROUTING_", k)}
        kept.update(OMP_NUM_THREADS="1", LD_PRELOAD=str(library), SPILLWAY_DIRS=str(self.spill),
                    SPILLWAY_HOST_MEMORY="24MiB", SPILLWAY_DISK_RESERVE="1GiB", SPILL=str(self.spill))  # fmt: skip
        kept.update({name: str(value) for name, value in variables.items()})
        command = [BUILD / "bin/simcuda-run", "--memory", memory, "--", *command]
        done = subprocess.run([str(word) for word in command], env=kept, cwd=self.folder, capture_output=True, text=True,
                              errors="replace", timeout=250)  # fmt: skip
        self.assertEqual(done.returncode, status, f"{done.stdout}\n{done.stderr}")
        return done

    def product(self, torch_minor):
        """A copy of the product's libraries whose only PyTorch library claims to be for `torch_minor`."""
        place = self.folder / "product"
        place.mkdir()
        for name in ("libspillway.so", "libspillway_engine.so"):
            shutil.copy(BUILD / "lib" / name, place)
        shutil.copy(BUILD / f"lib/libspillway_torch_{MINOR}.so", place / f"libspillway_torch_{torch_minor}.so")
        return place / "libspillway.so"

    @staticmethod
    def words(done, which="spillway: "):
        return [line for line in done.stderr.splitlines() if line.startswith(which)]
