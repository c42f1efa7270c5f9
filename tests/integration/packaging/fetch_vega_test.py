"""The report's drawing library: what is there already is kept, and without PyPI the build goes on with one line."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import fresh  # noqa: F401  (puts integration/packaging on the path)
import fetch_vega

SCRIPT = Path(fetch_vega.__file__)
# No package is found anywhere, whatever the machine's configuration says.
NOWHERE = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}


class FetchVegaTest(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.build = Path(self.scratch.name)

    def fetch(self):
        return subprocess.run([sys.executable, SCRIPT, "--build", self.build], capture_output=True, text=True, check=False, env=NOWHERE)

    def test_without_pypi_one_line_says_what_is_missing(self):
        run = self.fetch()
        self.assertEqual((run.returncode, run.stdout), (1, ""))
        self.assertIn("spillway: the drawing library was not fetched", run.stderr.splitlines()[-1])
        self.assertEqual([path for path in self.build.rglob("*") if path.is_file()], [])

    def test_what_is_there_is_kept(self):
        target = self.build / "lib" / "vega.js"
        target.parent.mkdir()
        target.write_text(fetch_vega.head() + "script", encoding="utf-8")
        run = self.fetch()
        self.assertEqual((run.returncode, run.stdout), (0, f"{target}\n"), run.stderr)
        self.assertTrue(target.read_text(encoding="utf-8").endswith("script"))

    def test_another_version_is_fetched_again(self):
        target = self.build / "lib" / "vega.js"
        target.parent.mkdir()
        target.write_text("/* an older one */", encoding="utf-8")
        self.assertEqual(self.fetch().returncode, 1)

    def test_every_component_has_its_licence(self):
        text = fetch_vega.LICENCES.read_text(encoding="utf-8")
        licences = set(re.findall(r"^([A-Z][\w.-]+) {3,}\S", text, re.MULTILINE))
        self.assertEqual(licences, set(re.findall(r"^-- (\S+) --", text, re.MULTILINE)))
        # Some of what the bundle says of itself.
        for component in ("vega", "d3-dsv", "d3-delaunay", "Esprima", "Jason Davies", "semver", "robust-predicates"):
            self.assertRegex(text.split("\n-- ")[0], rf"\b{component}\b")
        self.assertNotIn("*/", text)


if __name__ == "__main__":
    unittest.main()
