"""The example job on the host: repeatable, resumable to the bit, and different where it should differ."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TRAIN = Path(__file__).resolve().parents[3] / "integration" / "examples" / "train_gpt.py"
SMALL = ["--device", "cpu", "--width", "64", "--layers", "2", "--heads", "2", "--sequence", "32", "--batch", "2"]


class TrainGptTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def train(self, *arguments, steps=4):
        report = self.folder / "report.json"
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, TRAIN, *SMALL, "--steps", str(steps), "--json", report, *arguments],
                       check=True, env=environment, stdout=subprocess.DEVNULL)  # fmt: skip
        return json.loads(report.read_text())

    def test_same_arguments_same_bits(self):
        first, second, other = self.train(), self.train(), self.train("--seed", "2")
        self.assertEqual(first["losses_sha256"], second["losses_sha256"])
        self.assertEqual(first["state_sha256"], second["state_sha256"])
        self.assertEqual(len(set(first["losses"])), 4)
        self.assertNotEqual(first["losses_sha256"], other["losses_sha256"])
        self.assertNotEqual(first["state_sha256"], other["state_sha256"])

    def test_resumed_run_has_the_bits_of_an_uninterrupted_one(self):
        checkpoint = str(self.folder / "run.pt")
        for form in ("foreach", "fused"):
            more = ["--optimizer-form", form, "--accumulation", "2"]
            whole = self.train(*more)
            self.train(*more, "--save", checkpoint, steps=2)
            resumed = self.train(*more, "--resume", checkpoint)
            self.assertEqual(resumed["first_step"], 3)
            self.assertEqual(resumed["losses"], whole["losses"][2:])
            self.assertEqual(resumed["state_sha256"], whole["state_sha256"])

    def test_losses_do_not_depend_on_how_often_they_are_read(self):
        self.assertEqual(self.train()["losses"], self.train("--log-every", "3")["losses"])

    def test_takes_any_file_and_learns(self):
        text = self.folder / "text"
        text.write_bytes(b"the same words again and again. " * 200)
        report = self.train("--data", str(text), "--lr", "0.01", "--dtype", "bf16", "--dropout", "0", steps=30)
        self.assertLess(report["last_loss"], 0.6 * report["first_loss"])


if __name__ == "__main__":
    unittest.main()
