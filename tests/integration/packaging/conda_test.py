"""The conda package of the wheel: a builder from PyPI makes it without a channel, it holds what the wheel holds, and works from there."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path

import fresh
import make_wheel

BUILD = Path(os.environ["SPILLWAY_BUILD"])
RECIPE = fresh.ROOT / "integration" / "packaging" / "recipes" / "conda" / "recipe.yaml"
BUILDER = "py-rattler-build==0.73.0"
BUILD_IT = """
import sys, warnings
warnings.simplefilter("ignore")
import rattler_build
rattler_build.build_recipes([sys.argv[1]], channel=[], output_dir=sys.argv[2], test="skip", package_format="tar-bz2", target_platform="linux-64")
"""


def builder():
    """The Python of an environment with the builder; it stays in the build folder."""
    python = BUILD / "wheel" / "conda" / "bin" / "python"
    found = python.exists() and subprocess.run([python, "-c", "import rattler_build"], check=False).returncode == 0
    if found:
        return python
    subprocess.run([sys.executable, "-m", "venv", python.parent.parent], check=True)
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", BUILDER]
    if subprocess.run(install, check=False).returncode:
        print(f"{BUILDER} cannot be installed")
        sys.exit(fresh.SKIPPED)
    return python


class CondaTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(dir=BUILD))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.wheel = Path(make_wheel.make(BUILD, cls.folder / "wheels"))
        done = subprocess.run([builder(), "-c", BUILD_IT, RECIPE, cls.folder / "out"], env=fresh.clean_variables(WHEEL=str(cls.wheel)),
                              capture_output=True, text=True, check=False)  # fmt: skip
        packages = list(cls.folder.glob("out/linux-64/*.tar.bz2"))
        assert len(packages) == 1, done.stdout + done.stderr
        with tarfile.open(packages[0]) as package:
            package.extractall(cls.folder / "package")
        cls.site = cls.folder / "package" / "site-packages"

    def info(self, name):
        return json.loads((self.folder / "package" / "info" / name).read_text())

    def test_holds_what_the_wheel_holds(self):
        with zipfile.ZipFile(self.wheel) as wheel:
            names = {name for name in wheel.namelist() if not name.endswith("/")}
            found = {str(path.relative_to(self.site)) for path in self.site.rglob("*") if path.is_file()}
            self.assertEqual({name for name in found - names if not name.endswith(".dist-info/INSTALLER")}, set())
            for name in sorted(names):
                self.assertEqual((self.site / name).read_bytes(), wheel.read(name), name)
        self.assertTrue(os.access(self.site / "spillway" / "bin" / "spillway", os.X_OK))

    def test_says_what_it_is(self):
        index = self.info("index.json")
        version = self.wheel.name.split("-")[1]
        self.assertEqual([index[key] for key in ("name", "version", "subdir", "license", "noarch")],
                         ["spillway", version, "linux-64", "Apache-2.0", "python"])
        self.assertEqual(index["depends"], ["python >=3.9", "__glibc >=2.34"])
        self.assertEqual(self.info("link.json")["noarch"]["entry_points"], ["spillway = spillway.command:main"])

    def test_works_where_it_is_put(self):
        with fresh.Environment(self.folder / "venv", sys.executable) as place:
            shutil.copytree(self.site, place.site, dirs_exist_ok=True)
            done = place.run("python", "-m", "spillway", "describe", "bash", hidden=fresh.can_hide())
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("--gpu-memory", done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
