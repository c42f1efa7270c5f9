"""driver_functions.def against the installed toolkit's headers and stub library, driver_symbols.def against it."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

DRIVER = pathlib.Path(os.environ["DRIVER_TABLES_SOURCE"]) / "allocator" / "driver"
INCLUDE = pathlib.Path(os.environ["DRIVER_TABLES_INCLUDE"])
FUNCTION = re.compile(r"^DRIVER_FUNCTION\((\w+), (\w+), (\d+), (DEFAULT|PER_THREAD)\)$", re.M)
HEADERS = pathlib.Path(__file__).with_name("cuda_headers.txt")
# Functions whose parameters look as if a call named memory of ours, and that no wrapper needs.
PASSED_ON = {
    r"cuExternalMemory\w+|cuGL\w+|cuGraphicsResourceGet\w+|cuMemHostGetDevicePointer\w*": "give out addresses of others",
    r"cuGraph\w*(ExternalSemaphores|Host)\w*": "nodes that name no memory",
    r"cuGraph\w+GetParams(_v\d)?": "give out what was set",
    r"cuThreadExchangeStreamCaptureMode": "begins no capture",
}
SYMBOL = re.compile(r"^DRIVER_SYMBOL\((\w+), (USED|HOOK|MUST)\)$", re.M)


def rows(name, pattern):
    return pattern.findall((DRIVER / name).read_text())


def stub_names():
    """What the toolkit's stub library exports; empty where only the headers are installed."""
    for stub in (INCLUDE.parent / "lib64/stubs/libcuda.so", INCLUDE.parent / "lib/stubs/libcuda.so"):
        if stub.exists():
            command = ["nm", "-D", "--defined-only", str(stub)]
            text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            return [name for name in re.findall(r" T (cu\w+)$", text, re.M)]
    return []


class FunctionsTest(unittest.TestCase):
    def check(self, table, names=()):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("\n".join(names))
            file.flush()
            command = [sys.executable, DRIVER / "make_driver_functions.py", "--check", table, INCLUDE, "--names", file.name]
            return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)

    def test_has_every_function_of_the_installed_toolkit(self):
        done = self.check(DRIVER / "driver_functions.def", stub_names())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertGreater(int(done.stdout.split()[0]), 600)

    def test_check_finds_what_is_missing_or_different(self):
        text = (DRIVER / "driver_functions.def").read_text()
        row = "DRIVER_FUNCTION(cuLaunchKernel_ptsz, cuLaunchKernel, 7000, PER_THREAD)\n"
        self.assertIn(row, text)
        for other in ("", row.replace("7000", "4000"), row.replace("PER_THREAD", "DEFAULT")):
            with tempfile.NamedTemporaryFile("w", suffix=".def") as file:
                file.write(text.replace(row, other))
                file.flush()
                done = self.check(file.name)
            self.assertEqual(done.returncode, 1)
            self.assertIn("cuLaunchKernel_ptsz", done.stderr)
        self.assertEqual(self.check(DRIVER / "driver_functions.def", ["cuSomethingNew"]).returncode, 1)

    def test_is_sorted_without_doubles_and_whole(self):
        functions = rows("driver_functions.def", FUNCTION)
        symbols = [row[0] for row in functions]
        self.assertEqual(symbols, sorted(set(symbols)))
        self.assertEqual(len({row[1:] for row in functions}), len(functions), "one request would mean two symbols")
        text = (DRIVER / "driver_functions.def").read_text()
        self.assertEqual(text.count("\nDRIVER_FUNCTION("), len(functions), "a row does not parse")

    def test_shim_knows_the_newest_toolkit_of_the_table(self):
        """Up to that version a request has one answer in the table; the heading lists the toolkits."""
        text = (DRIVER / "driver_functions.def").read_text()
        major, minor = re.findall(r"(\d+)\.(\d+)", text.splitlines()[1])[-1]
        routing = (DRIVER.parent.parent / "integration/preload/routing.c").read_text()
        known = int(re.search(r"kNewestVersion = (\d+)", routing)[1])
        self.assertEqual(known, int(major) * 1000 + int(minor) * 10)
        self.assertLessEqual(max(int(row[2]) for row in rows("driver_functions.def", FUNCTION)), known)

    def test_forms_follow_the_suffixes(self):
        for symbol, base, version, form in rows("driver_functions.def", FUNCTION):
            self.assertRegex(symbol, rf"^{base}(_v\d+)?(_ptsz|_ptds)?$")
            self.assertEqual(form == "PER_THREAD", symbol.endswith(("_ptsz", "_ptds")))
            self.assertGreaterEqual(int(version), 2000)


class PinnedHeadersTest(unittest.TestCase):
    """The list of one toolkit's functions that is kept beside this test; the nightly run asks the newest headers."""

    def setUp(self):
        lines = [line for line in HEADERS.read_text().splitlines() if not line.startswith("#")]
        self.functions = [tuple(line.split()) for line in lines]
        self.assertGreater(len(self.functions), 700)

    def test_every_function_is_in_the_table(self):
        table = set(rows("driver_functions.def", FUNCTION))
        self.assertEqual([row[:4] for row in self.functions if row[:4] not in table], [])

    def test_the_table_ends_with_that_toolkit(self):
        release = re.search(r"headers of [\w-]+ (\d+)\.(\d+)", HEADERS.read_text()).groups()
        newest = re.findall(r"(\d+)\.(\d+)", (DRIVER / "driver_functions.def").read_text().splitlines()[1])[-1]
        self.assertEqual(newest, release)

    def test_every_function_that_may_name_memory_is_wrapped_or_judged(self):
        uses = dict(rows("driver_symbols.def", SYMBOL))
        open_ones = [symbol for symbol, _, _, _, kinds in self.functions if kinds != "-" and uses.get(symbol) not in ("HOOK", "MUST")]
        judged = {symbol: [why for names, why in PASSED_ON.items() if re.fullmatch(names, symbol)] for symbol in open_ones}
        self.assertEqual([symbol for symbol, why in judged.items() if not why], [])

    def test_every_judgement_is_about_a_function(self):
        for names in PASSED_ON:
            self.assertTrue([row for row in self.functions if re.fullmatch(names, row[0])], names)


class SymbolsTest(unittest.TestCase):
    def setUp(self):
        self.uses = dict(rows("driver_symbols.def", SYMBOL))
        self.bases = {row[0]: row[1] for row in rows("driver_functions.def", FUNCTION)}

    def test_rows_are_known_functions_named_once(self):
        text = (DRIVER / "driver_symbols.def").read_text()
        self.assertEqual(text.count("\nDRIVER_SYMBOL("), len(self.uses))
        self.assertEqual(sorted(set(self.uses) - set(self.bases)), [])

    def test_all_forms_of_a_wrapped_name_are_wrapped(self):
        """A name whose new ABI is left out would let calls through as soon as a program asks for it."""
        wrapped = {self.bases[symbol]: use for symbol, use in self.uses.items() if use != "USED"}
        for symbol, base in self.bases.items():
            if base in wrapped:
                self.assertEqual(self.uses.get(symbol), wrapped[base], symbol)

    def test_every_call_that_takes_memory_to_work_on_is_a_must(self):
        kinds = r"cu(Memcpy|Memset|Launch(Kernel|Cooperative|Grid)|GraphLaunch|MemPrefetch|MemDiscard|GraphAdd(Kernel|Mem(cpy|set))Node)"
        expected = {symbol for symbol in self.bases if re.match(kinds, symbol)}
        self.assertGreater(len(expected), 100)
        self.assertEqual(sorted(s for s in expected if self.uses.get(s) != "MUST"), [])


class OwnCallsTest(unittest.TestCase):
    """The lists of what Spillway calls for itself name what it calls, and nothing else."""

    def setUp(self):
        source = DRIVER.parent.parent
        self.entries = rows("driver_entries.def", re.compile(r"^DRIVER_ENTRY\((\w+)\)$", re.M))
        self.questions = re.findall(
            r"^HOOK_QUESTION\((\w+)\)$", (source / "integration/hooks/hook_questions.def").read_text(), re.M
        )
        files = [file for folder in ("allocator", "integration") for file in (source / folder).rglob("*.[ch]*")]
        self.text = "".join(file.read_text() for file in files if "simcuda" not in file.parts)

    def test_each_is_called(self):
        self.assertGreater(len(self.entries), 30)
        called = set().union(*re.findall(r"(?:->|\.)(cu[A-Z]\w+)\b|\b(cu[A-Z]\w+)\(", self.text))
        self.assertEqual(sorted(set(self.entries) - called), [])
        asked = set(re.findall(r"\bAsk<Row::(\w+)>", self.text))
        self.assertGreater(len(asked), 10)
        self.assertEqual(asked, set(self.questions))

    def test_what_is_called_and_not_wrapped_is_in_a_list(self):
        used = {symbol for symbol, use in rows("driver_symbols.def", SYMBOL) if use == "USED"}
        self.assertEqual(sorted(used - set(self.entries) - set(self.questions)), [])


if __name__ == "__main__":
    unittest.main()
