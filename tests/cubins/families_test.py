"""families.py on results and lists made here, and the real families against the real shipped list."""

import collections
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent))

import families
import shipped

HERE = Path(__file__).resolve().parent
LIST = """
# tables of GEMMs
_ZN1a6fill_t*   action=writer fills=5-9
*batched*  libmagma.so  action=everything
"""
FAMILIES = """
writer    shipped  6fill_t          # tables
writer    not      reduceI(d|l)     # a number of 64 bits
follower  shipped  ^libmagma\\.so:.*batched  # tables
follower  not      peers            # others' memory
"""


def family_rows(text):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "families.txt"
        path.write_text(text)
        return families.read_families(path)


class ListTest(unittest.TestCase):
    def test_every_shipped_row_has_its_family_and_every_shipped_family_its_row(self):
        rows, known = shipped.shipped_rows(), families.read_families(HERE / "families.txt")
        self.assertGreaterEqual(len(rows), 6)
        self.assertEqual(list(families.list_problems(known, rows)), [])

    def test_a_row_without_a_family_is_named(self):
        rows = shipped.read_rows(LIST + "_Z4more*  action=writer\n")
        self.assertEqual(list(families.list_problems(family_rows(FAMILIES), rows)),
                         ["no family says that the shipped list has the writers _Z4more*"])  # fmt: skip

    def test_a_family_without_a_row_is_named(self):
        rows = shipped.read_rows(LIST.replace("_ZN1a6fill_t", "_ZN1a6other"))
        problems = " ".join(families.list_problems(family_rows(FAMILIES), rows))
        self.assertIn("has the writers _ZN1a6other*", problems)
        self.assertIn("has no row for the writers 6fill_t", problems)

    def test_a_row_with_another_action_or_library_is_not_its_family_s(self):
        for text in (LIST.replace("action=everything", "action=writer"), LIST.replace("libmagma", "libother")):
            self.assertIn("no row for the followers", " ".join(families.list_problems(family_rows(FAMILIES), shipped.read_rows(text))))

    def test_rows_match_as_the_product_does(self):
        writer, follower = shipped.read_rows(LIST)
        self.assertTrue(writer.matches("_ZN1a6fill_tIfEv", "any.so"))
        self.assertFalse(writer.matches("x_ZN1a6fill_t", "any.so"))
        self.assertTrue(follower.matches("k_batched_1", "libmagma.so"))
        self.assertFalse(follower.matches("k_batched_1", "libother.so"))
        self.assertEqual([row.kind for row in shipped.read_rows("a\nb c.so\nd action=refuse # w\n")], ["follower"] * 3)

    def test_a_source_without_the_list_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "list.cc").write_text("no list")
            with self.assertRaises(ValueError):
                shipped.shipped_rows(Path(folder) / "list.cc")


class KernelsTest(unittest.TestCase):
    def judge(self, *kernels, text=LIST):
        counts = collections.Counter()
        rows = shipped.read_rows(text)
        made = {families.Kernel(library, name, tuple(kinds)) for library, name, *kinds in kernels}
        return list(families.judge(made, family_rows(FAMILIES), rows, counts)), counts

    def test_known_families_are_counted_and_no_problem(self):
        problems, counts = self.judge(("libt.so", "_ZN1a6fill_tIf", "writer"), ("libt.so", "reduceIdE", "writer"), ("libt.so", "plain"),
                                      ("libmagma.so", "a_batched", "follower", "writer"), ("libt.so", "peers", "follower"))  # fmt: skip
        self.assertEqual(problems, [])
        self.assertEqual(counts["writer", "reduceI(d|l)"], 1)
        self.assertEqual(sum(counts.values()), 4)

    def test_kernels_of_no_family_are_named(self):
        problems, _ = self.judge(("libt.so", "reduceIfE", "writer"), ("libt.so", "batched", "follower"), ("libt.so", "peers", "follower", "writer"))
        self.assertEqual(problems, ["1 followers of no family:", "  libt.so:batched", "2 writers of no family:", "  libt.so:peers",
                                    "  libt.so:reduceIfE"])  # fmt: skip

    def test_many_are_not_all_named(self):
        problems, _ = self.judge(*(("libt.so", f"new{i}", "writer") for i in range(families.NAMED + 5)))
        self.assertEqual((problems[0], problems[-1], len(problems)), ("25 writers of no family:", "  and 5 more", families.NAMED + 2))

    def test_one_that_the_list_should_have_is_named(self):
        problems, _ = self.judge(("libt.so", "_ZN1b6fill_tIf", "writer"))
        self.assertEqual(problems, ["1 writers that the shipped list should have and has not:", "  libt.so:_ZN1b6fill_tIf"])

    def test_one_that_the_list_has_against_its_family_is_named(self):
        problems, _ = self.judge(("libt.so", "reduceIdE", "writer"), text=LIST + "reduce*  action=writer\n")
        self.assertIn("1 writers that the shipped list has though their family is not on it:", problems)


class ResultsTest(unittest.TestCase):
    def test_what_was_read_is_judged_by_that_and_the_rest_by_its_types(self):
        facts = [{"kernel": "both", "bytes": 900, "follows": 1, "stores": 2}, {"kernel": "plain", "bytes": 900, "follows": 0, "stores": 0},
                 {"kernel": "stub", "bytes": 256, "follows": 0, "stores": 0}, {"kernel": "short", "bytes": 256, "follows": 0, "stores": 1},
                 {"kernel": "_Z4fillPPvS_m", "bytes": 900}, {"kernel": "_Z4readPKPKv", "bytes": 900},
                 {"kernel": "slow", "bytes": 900, "not_read": "nvdisasm took more than 1800 s"}]  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "liba.so.1.jsonl"
            path.write_text("".join(json.dumps(fact) + "\n" for fact in facts))
            found = {kernel.name: kernel.kinds for kernel in families.read_kernels(path)}
        self.assertEqual(found, {"both": ("follower", "writer"), "plain": (), "short": ("writer",), "_Z4fillPPvS_m": ("writer",)})

    def test_the_status_is_that_of_the_problems(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch("builtins.print"):
            path = Path(folder) / "libt.so.jsonl"
            for kernel, status in (("_ZN1a6fill_tIf", 0), ("new", 1)):
                path.write_text(json.dumps({"kernel": kernel, "bytes": 900, "follows": 0, "stores": 1}) + "\n")
                (Path(folder) / "f.txt").write_text(FAMILIES)
                with mock.patch.object(shipped, "shipped_rows", return_value=shipped.read_rows(LIST)), \
                        mock.patch.object(sys, "argv", ["families.py", str(path), "--families", str(Path(folder) / "f.txt")]), \
                        self.assertRaises(SystemExit) as end:  # fmt: skip
                    families.main()
                self.assertEqual(end.exception.code, status, kernel)

    def test_a_bad_line_is_refused(self):
        for bad in ("writer shipped", "writer perhaps x  # why", "plain not x  # why", "writer not x", "writer not x y # why"):
            with self.assertRaises(SystemExit) as refusal:
                family_rows(f"# head\n{bad}\n")
            self.assertIn("families.txt:2: a line is", str(refusal.exception))


if __name__ == "__main__":
    unittest.main()
