"""The reader's analysis, on a few instructions each, and the table's figures. All code here is our own."""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent))

import elf
import flow
import read as reader
import sass
import table


def lines(text):
    """Numbered as nvdisasm does; a line that ends in a colon is a label."""
    result, at = [], 0
    for line in text.strip().splitlines():
        line = line.strip()
        if line.endswith(":"):
            result.append(line)
            continue
        result.append(f"        /*{at:04x}*/                   {line} ;")
        at += 16
    return result


def read(text, kernel=None):
    kernel = kernel or elf.Kernel("k", 0, [(0, 8), (8, 8), (16, 4)], 0x210)
    return flow.Flow(sass.blocks(lines(text)), kernel.is_word).run()


class LibraryTest(unittest.TestCase):
    def test_a_cubin_that_takes_too_long_is_not_read_and_the_next_is(self):
        def disassemble(cubin, _data, kernels, _args):
            if cubin.name == "a.cubin":
                raise subprocess.TimeoutExpired("nvdisasm", 1800)
            return [(name, lines("EXIT")) for name in kernels]

        with tempfile.TemporaryDirectory() as folder, mock.patch.object(reader, "disassemble", disassemble), \
                mock.patch.object(elf, "kernels", lambda data: {data.decode(): elf.Kernel(data.decode(), 900, [(0, 8)])}), \
                mock.patch.object(reader, "extract", lambda library, args: sorted(args.work.glob("*.cubin"))), \
                mock.patch("builtins.print"):  # fmt: skip
            args = argparse.Namespace(work=Path(folder), arch="sm_90", only=re.compile(""), keep=True, reader="", jobs=1)
            (args.work / "a.cubin").write_text("slow")
            (args.work / "b.cubin").write_text("quick")
            library = Path("libnccl.so")
            self.assertTrue(reader.read_library(library, args, float("inf")))
            found = {fact["kernel"]: fact for fact in map(json.loads, (args.work / "libnccl.so.jsonl").read_text().splitlines())}
            self.assertEqual(found["quick"]["follows"], 0)
            self.assertNotIn("follows", found["slow"])
            self.assertEqual(table.why_not(table.Known("plain", "slow", "why"), found.values()), "nvdisasm took more than 1800 s")
            reader.summary(library, args)
            self.assertTrue(reader.read_library(library, args, float("inf")), "it goes on behind that cubin")
            self.assertEqual(len((args.work / "libnccl.so.jsonl").read_text().splitlines()), 2)


class FlowTest(unittest.TestCase):
    def follows(self, text):
        return len(read(text).found)

    def test_a_loaded_word_as_base_counts(self):
        table_entry = """
            LDC.64 R2, c[0x0][0x210]
            LDG.E.64 R4, desc[UR4][R2.64]
            {}
            LDG.E R6, desc[UR4][R4.64+0x10]
            EXIT"""
        self.assertEqual(self.follows(table_entry.format("NOP")), 1)
        self.assertEqual(self.follows(table_entry.format("IMAD.WIDE R4, R9, 0x4, R4")), 1)
        self.assertEqual(self.follows(table_entry.format("IADD3 R4, P0, R4, R9, RZ\nIADD3.X R5, R5, RZ, RZ, P0, !PT")), 1)
        self.assertEqual(self.follows(table_entry.format("IMAD.MOV.U32 R4, RZ, RZ, R9")), 0, "another low half")

    def test_a_compare_and_swap_shows_its_width_in_its_name(self):
        text = "LDC.64 R2, c[0x0][0x210]\nLDG.E.64 R4, desc[UR4][R2.64]\nATOM.E.CAS.STRONG.SYS PT, R0, [R4], R8, R9\nEXIT"
        self.assertEqual(self.follows(text), 1)

    def test_a_base_and_a_loaded_index_do_not(self):
        index = "LDG.E.64 R4, desc[UR4][R2.64]\n"
        ways = (
            "LEA R6, P0, R4, UR6, 0x2\nLEA.HI.X R7, R4, UR7, R5, 0x2, P0",
            "IADD3 R6, P0, R4, UR6, RZ\nIADD3.X R7, R5, UR7, RZ, P0, !PT",
            "IMAD.WIDE.U32 R6, R4, 0x4, R2",
            "IADD3 R6, P0, R4, c[0x0][0x218], RZ\nIADD3.X R7, R5, c[0x0][0x21c], RZ, P0, !PT",
            "IMAD.WIDE.U32 R6, R4, R9, RZ",
        )
        for way in ways:
            text = f"LDC.64 R2, c[0x0][0x210]\nULDC.64 UR6, c[0x0][0x218]\n{index}{way}\nLDG.E R8, desc[UR4][R6.64]\nEXIT"
            self.assertEqual(self.follows(text), 0, way)

    def test_parameters_that_are_read_like_memory_are_parameters(self):
        text = "LDC.64 R16, c[0x0][{}]\nIADD3 R16, P0, R16, R9, RZ\nLD.E.64 R4, desc[UR4][R16.64+0xe0]\nLD.E R6, desc[UR4][R4.64]\nEXIT"
        self.assertEqual(self.follows(text.format("0x198")), 0)
        self.assertEqual(self.follows(text.format("0x210")), 1)

    def test_a_vote_sets_no_predicate_of_those_that_it_asks(self):
        text = """
            LDG.E.64 R14, desc[UR4][R2.64]
            ISETP.NE.U32.AND P0, PT, R14, R6, PT
            @!P0 LDC.64 R14, c[0x0][0x210]
            VOTEU.ALL UP0, P0
            @!P0 LDG.E R17, desc[UR4][R14.64]
            EXIT"""
        self.assertEqual(self.follows(text), 0)
        self.assertEqual(self.follows(text.replace("VOTEU.ALL UP0, P0", "ISETP.NE.AND P0, PT, R9, R8, PT")), 1)

    def test_each_way_into_a_block_is_kept_apart(self):
        text = """
            LDC.64 R2, c[0x0][0x210]
            MOV R4, R2
            MOV R5, R3
            @P0 BRA `(.L_x_1)
            LDG.E.64 R4, desc[UR4][R2.64]
            .L_x_1:
            STG.E desc[UR4][R4.64], R9
            EXIT"""
        self.assertEqual(self.follows(text), 1)

    def test_a_register_under_a_predicate_is_what_was_written_under_it(self):
        text = """
            LDC.64 R2, c[0x0][0x210]
            LDG.E.64 R4, desc[UR4][R2.64]
            @!P1 LDC.64 R4, c[0x0][0x218]
            @!P1 STG.E desc[UR4][R4.64], R9
            {}
            EXIT"""
        self.assertEqual(self.follows(text.format("NOP")), 0)
        self.assertEqual(self.follows(text.format("STG.E desc[UR4][R4.64], R9")), 1)
        self.assertEqual(self.follows(text.format("ISETP.NE.AND P1, PT, R9, RZ, PT\n@!P1 STG.E desc[UR4][R4.64], R9")), 1)

    def test_loops_stack_and_shared_memory(self):
        loop = """
            LDC.64 R2, c[0x0][0x210]
            .L_x_0:
            LDG.E.64 R2, desc[UR4][R2.64]
            @P0 BRA `(.L_x_0)
            EXIT"""
        self.assertEqual(self.follows(loop), 1, "a linked list")
        through = "LDC.64 R2, c[0x0][0x210]\nLDG.E.64 R4, desc[UR4][R2.64]\n{}\nLDG.E R8, desc[UR4][R6.64]\nEXIT"
        self.assertEqual(self.follows(through.format("STL.64 [R1+0x8], R4\nLDL.64 R6, [R1+0x8]")), 1)
        self.assertEqual(self.follows(through.format("STL.64 [R1+0x8], R4\nLDL.64 R6, [R1+0x10]")), 0)
        self.assertEqual(self.follows(through.format("STS.64 [R9], R4\nLDS.64 R6, [R9+0x40]")), 1)

    def test_stores_of_parameters_are_told_from_stores_of_numbers(self):
        text = """
            LDC.64 R2, c[0x0][0x210]
            LDC.64 R4, c[0x0][0x218]
            IADD3 R4, P0, R4, R9, RZ
            IADD3.X R5, R5, RZ, RZ, P0, !PT
            STG.E.64 desc[UR4][R2.64], R4
            EXIT"""
        self.assertEqual(len(read(text).stored), 1)
        number = elf.Kernel("k", 0, [(0, 8), (8, 8)], 0x210)
        number.learn_types("void k<long, 2>(float**, unsigned long)")
        self.assertEqual(len(read(text, number).stored), 0)
        self.assertEqual(len(read(text.replace("STG.E.64", "STG.E")).stored), 0)

    def test_nothing_at_all(self):
        self.assertEqual(self.follows(""), 0)


class TextTest(unittest.TestCase):
    def test_operands_and_functions(self):
        self.assertEqual(sass.split("R4, desc[UR4][R2.64+0x8], `(.L_x_1)"), ["R4", "desc[UR4][R2.64+0x8]", "`(.L_x_1)"])
        text = "//----- .text.one -----\n.text.one:\n  /*0000*/   EXIT ;\n//----- .text.two ---\n.text.two:\n  /*0000*/ NOP ;\n"
        self.assertEqual([(name, len(body)) for name, body in sass.functions(text)], [("one", 1), ("two", 1)])

    def test_a_jump_to_nowhere_known_goes_anywhere(self):
        found = sass.blocks(lines("BRX R2\n.L_x_0:\nNOP\n.L_x_1:\nEXIT"))
        self.assertEqual(found[0].next, [1, 2])

    def test_code_without_symbols_jumps_to_numbers(self):
        found = sass.blocks(lines("@P0 BRA 0x20\nNOP\nBRA P1, 0x10\nEXIT"))
        self.assertEqual([block.next for block in found], [[1, 2], [2], [1, 3], []])

    def test_types_of_parameters(self):
        self.assertEqual(elf.last_types("void f<g(int), a<b, c> >(x<y, z>*, long)"), ["x<y, z>*", "long"])
        self.assertEqual(elf.last_types("f"), [])

    def test_what_is_no_cubin_is_refused(self):
        with self.assertRaises(ValueError):
            elf.kernels(b"text")


class TableTest(unittest.TestCase):
    def test_figures(self):
        pairs = [("follower", "follower"), ("follower", "plain"), ("plain", "follower"), ("plain", "plain")]
        self.assertEqual(table.figures(pairs, "follower"), (0.5, 0.5))
        self.assertEqual(table.figures([], "writer"), (None, None))

    def test_the_list_of_known_kernels_is_good(self):
        rows = table.read_known(Path(__file__).resolve().parent / "known.txt")
        self.assertGreaterEqual(len(rows), 40)

    def test_a_bad_line_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "known.txt"
            path.write_text("# head\nfollower\n")
            with self.assertRaises(SystemExit) as refusal:
                table.read_known(path)
            self.assertIn("known.txt:2", str(refusal.exception))

    def test_the_longest_code_counts_and_stubs_do_not(self):
        kernels = [{"kernel": "abc1", "bytes": n, "follows": 0} for n in (256, 900, 700)] + [{"kernel": "abc", "bytes": 5000}]
        self.assertEqual(table.choose(table.Known("plain", "abc", "why"), kernels)["bytes"], 900)
        self.assertIsNone(table.choose(table.Known("plain", "x", "why"), kernels))
        kernels.append({"kernel": "x", "bytes": 512, "follows": 0, "stores": 1})
        self.assertIsNotNone(table.choose(table.Known("writer", "x", "why"), kernels), "short, and no stub")


if __name__ == "__main__":
    unittest.main()
