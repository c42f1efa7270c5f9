"""What the tests of the checks share: a tree of its own for each case, to plant violations in."""

import subprocess
import tempfile
import unittest
from pathlib import Path

HEAD = "// What this file is.\n"


class Planted(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()

    def put(self, path, text=HEAD):
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target

    def library(self, path, code, *flags):
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-shared", "-fPIC", "-xc", "-", "-xnone", "-o", str(target), *flags],
                       input=code, text=True, check=True)  # fmt: skip
        return target
