"""NVIDIA's own driver libraries, as Debian's non-free archive has them, on a machine without a device: what they answer is
what our tables say, and the preload over them stands in the way of nobody. Nightly; skipped, with the reason, where the
packages cannot be had. Nothing is installed: they are unpacked below the build folder.
"""

import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

BUILD = Path(os.environ["ROUTING_BUILD"])
SOURCE = Path(os.environ["ROUTING_SOURCE"])
PYTHON = os.environ["ROUTING_PYTHON"]
PLACE = BUILD / "real_driver"
SHIM = BUILD / "lib/libspillway.so"
SUITES = {"bookworm": "535", "sid": "550", "experimental": "555"}  # and the branch that each had in 2026
ARCHIVE = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian {} non-free\n"
SKIPPED = 77

ROW = re.compile(r"^DRIVER_FUNCTION\((\w+), (\w+), (\d+), (DEFAULT|PER_THREAD)\)$", re.M)
SYMBOL = re.compile(r"^DRIVER_SYMBOL\((\w+), (HOOK|MUST)\)$", re.M)

# Runs in a process of its own: asks for each row "symbol name version flag" on standard input, just at its version and
# just below. What it prints of an answer: who has that address, the driver or the preload, or neither.
ASK = """
import ctypes, sys
real = ctypes.CDLL(sys.argv[1])
seen = ctypes.CDLL("libcuda.so.1")
ask = seen.cuGetProcAddress_v2 if hasattr(seen, "cuGetProcAddress_v2") else None
def address(library, symbol):
    try:
        return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
    except AttributeError:
        return None
def answer(name, version, flag):
    pointer, status = ctypes.c_void_p(), ctypes.c_int(-1)
    code = ask(name.encode(), ctypes.byref(pointer), version, ctypes.c_uint64(flag), ctypes.byref(status))
    return pointer.value if code == 0 else None
for line in sys.stdin:
    symbol, name, version, flag = line.split()
    there, ours = address(real, symbol), address(seen, symbol)
    if there is None:
        continue
    at, below = (answer(name, int(version) - step, int(flag)) for step in (0, 10))
    who = "driver" if at == there else "preload" if at == ours else "neither"
    print(symbol, who, "same" if below in (there, ours) else "other")
"""

TORCH = """
import torch
print(torch.cuda.is_available(), torch.cuda.device_count())
try:
    torch.ones(1, device="cuda")
except Exception as error:
    print(type(error).__name__, error)
"""

RUNTIME = """
import ctypes, glob, os, torch
runtime = ctypes.CDLL(glob.glob(os.path.join(os.path.dirname(torch.__path__[0]), "nvidia/cu*/lib/libcudart.so.*"))[0])
version, count = ctypes.c_int(-1), ctypes.c_int(-1)
print(runtime.cudaDriverGetVersion(ctypes.byref(version)), version.value)
print(runtime.cudaGetDeviceCount(ctypes.byref(count)), count.value, runtime.cudaFree(None))
"""

# After `import torch`, whose cuBLAS has opened the driver: every function that it exports and that has a row is ours once
# the shim has taken it over, and PyTorch says what it says without us.
REBOUND = """
import ctypes, os, sys, torch
driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
def address(library, symbol):
    return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
names = [line.strip() for line in sys.stdin]
names = [name for name in names if hasattr(driver, name)]
before = {name: address(driver, name) for name in names}
shim = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
why = ctypes.create_string_buffer(512)
shim.spillway_rebind.restype = ctypes.c_long
assert shim.spillway_rebind(why, ctypes.c_size_t(512)) >= 30, why.value
again = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
wrong = [name for name in names if address(again, name) != address(shim, name) or address(again, name) == before[name]]
print(len(names), wrong, file=sys.stderr)
assert len(names) > 500 and not wrong
"""


def apt(tool, *words):
    """Runs an apt tool on lists of its own, below the build folder."""
    for folder in ("lists/partial", "cache/archives/partial"):
        (PLACE / folder).mkdir(parents=True, exist_ok=True)
    (PLACE / "sources.list").write_text("".join(ARCHIVE.format(suite) for suite in SUITES))
    options = {"Dir::Etc::sourcelist": PLACE / "sources.list", "Dir::Etc::sourceparts": "-", "Dir::Cache": PLACE / "cache",
               "Dir::State::lists": PLACE / "lists", "Acquire::http::Timeout": "20"}  # fmt: skip
    command = [tool, *(f"-o{name}={value}" for name, value in options.items()), *words]
    return subprocess.run(command, cwd=PLACE, capture_output=True, text=True, timeout=240, check=False)


def fetch():
    """The drivers' folders by version, or an empty dict with the reason."""
    try:
        updated = apt("apt-get", "-q", "update")
        versions = re.findall(r"libcuda1 \| (\S+) \|", apt("apt-cache", "madison", "libcuda1").stdout)
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        return {}, str(error)
    found = {}
    for version in sorted(set(versions)):
        folder = PLACE / version
        if not folder.exists():
            apt("apt-get", "-q", "download", f"libcuda1={version}")
            for package in PLACE.glob("libcuda1_*.deb"):
                subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
                package.unlink()
        for library in folder.glob("usr/lib/**/libcuda.so.1"):
            found[version] = library.parent
    return found, (updated.stderr.strip().splitlines() or ["the archive has no libcuda1"])[-1]


def absent(versions):
    """The branches that are wanted and not there, each with its suite: a warning, since the archive moves on."""
    return [f"{branch} ({suite})" for suite, branch in SUITES.items() if not any(version.startswith(f"{branch}.") for version in versions)]


class AbsentTest(unittest.TestCase):
    def test_a_branch_that_is_not_there_is_named(self):
        self.assertEqual(absent(["535.261.03-1", "550.163.01-5.1", "555.58.02-4"]), [])
        self.assertEqual(absent(["535.261.03-1", "5550.1"]), ["550 (sid)", "555 (experimental)"])


class RealDriverTest(unittest.TestCase):
    drivers: dict = {}

    @classmethod
    def setUpClass(cls):
        text = (SOURCE / "allocator/driver/driver_functions.def").read_text()
        cls.rows = [(m[1], m[2], int(m[3]), 2 if m[4] == "PER_THREAD" else 0) for m in ROW.finditer(text) if m[3] != "0"]
        cls.hooked = {m[1] for m in SYMBOL.finditer((SOURCE / "allocator/driver/driver_symbols.def").read_text())}

    def run_python(self, python, code, folder, *words, shim=False, given=""):
        kept = {name: value for name, value in os.environ.items() if not re.match("SPILLWAY|PYTORCH_|LD_|SIMCUDA|ROUTING_", name)}
        kept.update(LD_LIBRARY_PATH=str(folder), **({"LD_PRELOAD": str(SHIM)} if shim else {}))
        done = subprocess.run([python, "-B", "-c", code, *words], env=kept, input=given, capture_output=True, text=True, timeout=200)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done

    def answers(self, folder, shim):
        """What the driver, or the preload over it, answers: symbol -> who, and whether the version below gives the same."""
        # By its own name: the preload stands in for libcuda.so.1 wherever that is opened.
        library = next(path for path in folder.glob("libcuda.so.*") if path.name != "libcuda.so.1")
        given = "".join(f"{symbol} {name} {version} {flag}\n" for symbol, name, version, flag in self.rows)
        text = self.run_python("/usr/bin/python3", ASK, folder, str(library), shim=shim, given=given).stdout
        return {line.split()[0]: tuple(line.split()[1:]) for line in text.splitlines()}

    def each(self):
        for version, folder in self.drivers.items():
            with self.subTest(version=version):
                yield version, folder

    def test_look_ups_and_thresholds_are_those_of_the_table(self):
        for version, folder in self.each():
            found = self.answers(folder, shim=False)
            self.assertGreater(len(found), 500, version)
            wrong = {symbol: answer for symbol, answer in found.items() if answer != ("driver", "other")}
            self.assertEqual(wrong, {}, version)

    def test_each_row_is_routed_as_the_table_says(self):
        for version, folder in self.each():
            plain, found = self.answers(folder, shim=False), self.answers(folder, shim=True)
            self.assertEqual(found.keys(), plain.keys())
            wrong = {symbol: answer for symbol, answer in found.items()
                     if answer != ("preload" if symbol in self.hooked else "driver", "other")}  # fmt: skip
            self.assertEqual(wrong, {}, version)
            ours = sum(who == "preload" for who, _ in found.values())
            self.assertGreater(ours, 250, version)
            print(f"{version}: {len(found)} of {len(self.rows)} rows looked up, {ours} are the preload's")

    def test_pytorch_says_what_it_says_without_us(self):
        for version, folder in self.each():
            plain, over = (self.run_python(PYTHON, TORCH, folder, shim=shim) for shim in (False, True))
            self.assertEqual(over.stdout, plain.stdout, version)
            self.assertIn("False 0", plain.stdout)
            self.assertNotIn("spillway", over.stderr)

    def test_a_driver_that_pytorch_has_opened_is_taken_over(self):
        rows = "".join(f"{symbol}\n" for symbol, *_ in self.rows)
        for version, folder in self.each():
            plain = self.run_python(PYTHON, TORCH, folder)
            over = self.run_python(PYTHON, REBOUND + TORCH, folder, str(SHIM), given=rows)
            self.assertEqual(over.stdout, plain.stdout, version)

    def test_the_runtime_starts_as_without_us(self):
        for version, folder in self.each():
            plain, over = (self.run_python(PYTHON, RUNTIME, folder, shim=shim).stdout for shim in (False, True))
            self.assertEqual(over, plain, version)


if __name__ == "__main__":
    RealDriverTest.drivers, reason = fetch()
    if not RealDriverTest.drivers:
        print(f"skipped: Debian's non-free libcuda1 cannot be had here: {reason}")
        sys.exit(SKIPPED)
    print("drivers:", *RealDriverTest.drivers)
    if absent(RealDriverTest.drivers):
        print(f"WARNING: not looked at, since the archive has them no more: {', '.join(absent(RealDriverTest.drivers))}")
    unittest.main(argv=sys.argv)
