"""As self_test, for the checks that read text: words, pages, sizes, comments, names of tests."""

import unittest
import unittest.mock

import doc_format
import function_size
import header_comments
import mirror
import settings_page
import sleeps
import text_rules
import troubleshooting
import words
from planted import HEAD, Planted


class WordsTest(Planted):
    GLOSSARY = "| word | meaning | replaces |\n|---|---|---|\n| chunk | one handle | grain, `clod`, *lump* |\n| pin | stays | old peg |\n"

    def found(self, path, text, allowed=""):
        self.put("docs/glossary.md", self.GLOSSARY)
        self.put("tests/checks/word_exceptions.txt", allowed)
        self.put(path, text)
        return words.find_problems(self.root)

    def test_other_words_pass(self):
        self.assertEqual(self.found("io/a.cc", "int grainy = 1;  // ingrained\n"), [])

    def test_a_struck_word_is_found_in_code_comments_messages_and_docs(self):
        for path, text in (("io/a.cc", "int kMaxGrains = 1;\n"), ("io/a.cc", "// a grain\n"),
                           ("io/a.cc", 'Log("no grain left");\n'), ("docs/design.md", "Each grain.\n"),
                           ("tests/a.py", "grain_size = 1\n")):  # fmt: skip
            self.assertEqual(len(self.found(path, text)), 1, text)
            (self.root / path).unlink()

    def test_a_word_of_identifiers_may_stand_in_text(self):
        self.assertEqual(self.found("io/a.cc", "// a clod of earth\n"), [])
        self.assertEqual(len(self.found("io/a.cc", "int clod = 1;\n")), 1)
        self.assertEqual(len(self.found("io/a.cc", "// see FindClods\n")), 1)

    def test_a_word_of_the_product_is_found_there_and_on_pages_and_not_in_tests(self):
        for path, text in (("io/a.cc", "int kMaxLumps = 1;\n"), ("io/a.cc", "// a lump\n"), ("docs/design.md", "A lump.\n"),
                           ("README.md", "Lumps.\n")):  # fmt: skip
            self.assertEqual(len(self.found(path, text)), 1, text)
            (self.root / path).unlink()
        for path in ("tests/io/a_test.cc", "bench/a.cc", "integration/simcuda/a.cc"):
            self.assertEqual(self.found(path, "int lump;  // a lump\n"), [])
        self.assertEqual(self.found("docs/results/archive/2026-11-22-jobs.md", "A lump.\n"), [])

    def test_words_of_several_parts_are_found_whole(self):
        self.assertEqual(self.found("io/a.cc", "int old = peg;  // an old, used peg\n"), [])
        self.assertEqual(len(self.found("io/a.cc", "int old_pegs;\n")), 1)
        self.assertEqual(len(self.found("io/a.cc", "// the old peg\n")), 1)

    def test_an_exception_allows_what_it_names_and_must_allow_something(self):
        rule = "grain | io/*.cc | wheat | what wheat has\n"
        self.assertEqual(self.found("io/a.cc", "// a grain of wheat\n", rule), [])
        self.assertEqual(len(self.found("io/a.cc", "// a grain\n", rule)), 2)
        self.assertEqual(len(self.found("io/a.cc", "\n", "grain | io/*.cc\n")), 1)

    def test_a_glossary_without_struck_words_is_found(self):
        self.put("tests/checks/word_exceptions.txt", "")
        self.put("docs/glossary.md", "| word | meaning |\n|---|---|\n| chunk | one handle |\n")
        self.assertEqual(len(words.find_problems(self.root)), 1)


class SettingsPageTest(Planted):
    ROWS = ('// SETTING(name, type, default, accepted, meaning)\nSETTING_WORDS(Mode, kOn, kOff)\n'
            'MODE_SETTING(spillway, Word<Mode>, "on", "on or off", "What is done")\n'
            'SETTING(dirs, Directories,\n        "none", "paths, or \\"none\\"", "Where spilled "\n        "bytes (all of them) go")\n')  # fmt: skip
    TABLE = ("| variable | default | accepted | meaning |\n|---|---|---|---|\n| `SPILLWAY` | on | on or off | What is done |\n"
             '| `SPILLWAY_DIRS` | none | paths, or "none" | Where spilled bytes (all of them) go |\n')  # fmt: skip

    def found(self, rows=ROWS, table=TABLE, notes="Notes\n"):
        self.put("integration/settings/settings.def", rows)
        self.put("docs/environment.md", f"# Settings\n\n{table}\n{notes}")
        return settings_page.find_problems(self.root)

    def test_the_same_table_passes(self):
        self.assertEqual(self.found(), [])

    def test_any_difference_is_found(self):
        first, second = self.TABLE.splitlines(keepends=True)[2:]
        for table in (self.TABLE.replace("all of", "most of"), self.TABLE.replace(first, ""), "", self.TABLE + first,
                      self.TABLE.replace(first + second, second + first), self.TABLE + "| `SPILLWAY_X` | a | b | c |\n"):
            self.assertNotEqual(self.found(table=table), [], table)

    def test_a_row_of_another_form_and_a_long_cell_are_found(self):
        self.assertEqual(len(self.found(rows=self.ROWS + 'SETTING(log, Word, "warn", "a word")\n')), 1)
        self.assertEqual(len(self.found(rows=self.ROWS.replace("What is done", "x" * 121))), 3)

    def test_words_without_enumerators_are_found(self):
        self.assertEqual(len(self.found(rows=self.ROWS.replace("kOff", "kOff, kMaybe"))), 1)

    def test_update_writes_a_table_that_passes(self):
        self.assertNotEqual(self.found(table=self.TABLE.replace("none", "nothing")), [])
        settings_page.update(self.root)
        self.assertEqual(settings_page.find_problems(self.root), [])
        self.assertEqual((self.root / "docs/environment.md").read_text(), f"# Settings\n\n{self.TABLE}\nNotes\n")


class TroubleshootingTest(Planted):
    def found(self, message="it is off on", said='"it is off on"', tested="it is off on", fewest=1):
        self.put("io/a.cc", HEAD + f"Say({said});\n")
        self.put("tests/io/a_test.cc", HEAD + tested)
        self.put("docs/troubleshooting.md", f"| `{message}` | it | do | tests/io/a_test.cc |\n")
        return troubleshooting.find_problems(self.root, fewest)

    def test_a_message_that_is_produced_passes(self):
        self.assertEqual(self.found(message="it is off ... x", said='"it is "\n    "off on"', tested="it is off"), [])

    def test_what_is_not_said_or_not_produced_is_found(self):
        self.assertEqual(len(self.found(message="it is blue now", said='"x"', tested="it is blue now")), 1)
        self.assertEqual(len(self.found(message="it is blue now", said='"it is blue now"', tested="x")), 1)
        self.assertEqual(len(self.found(message="it ... is", said='"it"', tested="it")), 1)
        self.assertEqual(len(self.found(message="it is blue now", said='"it is blue now"', tested="it is blue now", fewest=2)), 1)

    def test_a_test_that_is_not_there_is_found(self):
        self.found()
        self.put("docs/troubleshooting.md", "| `it is off on it` | it | do | tests/io/b_test.cc |\n")
        self.assertEqual(len(troubleshooting.find_problems(self.root, 1)), 2)


class TextRulesTest(Planted):
    def found(self, long_files=()):
        return text_rules.find_problems(self.root, long_files)

    def test_clean_file_passes(self):
        self.put("io/os/a.h", HEAD + "#ifndef SPILLWAY_IO_OS_A_H_\n#define SPILLWAY_IO_OS_A_H_\n#endif\n")
        self.assertEqual(self.found(), [])

    def test_missing_head_is_found(self):
        self.put("io/a.cc", "int a;\n")
        self.assertEqual(len(self.found()), 1)

    def test_source_of_a_header_needs_no_second_head(self):
        self.put("io/a.h", HEAD + "#ifndef SPILLWAY_IO_A_H_\n#define SPILLWAY_IO_A_H_\n#endif\n")
        self.put("io/a.cc", "int a;\n")
        self.assertEqual(self.found(), [])

    def test_wrong_guard_is_found(self):
        self.put("io/a.h", HEAD + "#ifndef A_H\n#define A_H\n#endif\n")
        self.assertEqual(len(self.found()), 1)

    def test_marks_are_found_in_any_text(self):
        self.put("integration/a.py", "# TO" "DO later\n")
        self.assertEqual(len(self.found()), 1)

    def test_long_files_are_found_unless_listed(self):
        self.put("io/a.cc", HEAD + "int a;\n" * 439)
        self.assertEqual(self.found(), [], "passed by a tenth")
        self.put("io/a.cc", HEAD + "int a;\n" * 440)
        self.put("tests/a.py", "a = 1\n" * 441)
        self.assertEqual(len(self.found()), 2)
        self.assertEqual(self.found({"io/a.cc": "generated", "tests/": "generated"}), [])

    def test_more_wide_lines_than_there_were_are_found(self):
        self.put("io/a.cc", HEAD + f"// {'word ' * 22}\n" * 11)
        self.assertEqual(text_rules.find_problems(self.root, {}, wide_lines=10), [])
        self.assertEqual(len(text_rules.find_problems(self.root, {}, wide_lines=9)), 1)

    def test_a_line_for_a_file_that_is_not_long_is_found(self):
        self.put("io/a.cc", HEAD + "int a;\n")
        self.assertEqual(len(self.found({"io/a.cc": "generated"})), 1)


class HeaderCommentsTest(Planted):
    TWO = "// What this is for,\n// and who calls it.\n"
    PATH = "io/os/a.h"

    def found(self, text, path=PATH, fewest=0):
        self.put(path, text)
        return header_comments.find_problems(self.root, fewest)

    def test_a_header_that_explains_itself_passes(self):
        self.assertEqual(self.found(self.TWO + "\n#ifndef A\n#define A\nint a;  // why\n#endif  // A\n"), [])
        self.assertEqual(self.found("/* What this is for,\n * and who calls it. */\n#ifndef A\n#define A\n#endif\n"), [])
        self.assertEqual(self.found(self.TWO + "int a;\n" * 8), [])

    def test_a_short_head_or_one_behind_the_guard_is_found(self):
        for text in (HEAD, "// Words.\n//\n// ----\n", "#ifndef A\n#define A\n" + self.TWO + "#endif\n"):
            for path in (self.PATH, "bench/a.h", "tests/io/a.h"):
                self.assertEqual(len(self.found(text, path)), 1, text)
                (self.root / path).unlink()

    def test_a_header_that_says_too_little_is_found(self):
        found = ["io/os/a.h: 2 of 11 lines carry a comment, 20 % are the fewest"]
        self.assertEqual(self.found(self.TWO + "int a;\n" * 9), found)

    def test_lines_behind_code_and_lines_of_a_longer_comment_count(self):
        self.assertEqual(self.found(self.TWO + "int a;\n" * 8 + "\n" * 9 + "int b;  // 1 for yes\n" + "int c;\n" * 3), [])
        self.assertEqual(self.found(self.TWO + "/* One,\n   two,\n   three. */\n" + "int a;\n" * 20), [])

    def test_what_says_nothing_does_not_count(self):
        for line in ("}  // namespace a::b", "}  /* extern */", "#endif  // A", "F(/*now=*/true);", "int b;  // NOLINT(c)",
                     "// clang-format off", "// ----", "//", 'F("https://a");', "F('\"'); G(\"// a\");"):  # fmt: skip
            self.assertEqual(len(self.found(self.TWO + "int a;\n" * 8 + line + "\n")), 1, line)
        self.assertEqual(self.found(self.TWO + "int a;\n" * 8 + "int b;  // NOLINT: why\n"), [])

    def test_headers_of_tests_need_the_head_alone(self):
        self.assertEqual(self.found(self.TWO + "int a;\n" * 20, "tests/io/a.h"), [])

    def test_a_tree_that_was_not_read_is_found(self):
        self.assertEqual(len(self.found(self.TWO, fewest=2)), 1)


class FunctionSizeTest(Planted):
    def found(self, text, path="io/a.cc", allowed=None):
        self.put(path, text)
        return function_size.find_problems(self.root, allowed or {})

    @staticmethod
    def body(lines, indent="  "):
        return f"{indent}++a;\n" * lines

    def test_each_form_of_a_long_function_is_found(self):
        heads = (
            "int Sum(int a) {\n",
            "absl::StatusOr<std::unique_ptr<A>> A::Create(const std::string& one,\n"
            "                                             int other) {\n",
            "A::A(int a)\n    : a_(a), b_{a} {\n",
            "TEST(ATest, Works) {\n",
            "template <typename T>\nvoid Each(T function) noexcept {\n",
            "bool operator==(const A& a, const A& b) {\n",
            "auto Make(int a) -> std::vector<int> {\n",
            "static void (*Find(const char* name))(int) {\n",
        )
        for head in heads:
            fits = 64 - head.count("\n") - 1
            with self.subTest(head):
                self.assertEqual(self.found(head + self.body(fits) + "}\n"), [])
                self.assertEqual(len(self.found(head + self.body(fits + 1) + "}\n")), 1)

    def test_methods_inside_of_classes_are_found(self):
        text = "class A {\n public:\n  int Sum() const {\n" + self.body(63, "    ") + "  }\n};\n"
        self.assertEqual(len(self.found("namespace a {\n" + text + "}  // namespace a\n")), 1)

    def test_what_is_no_function_is_not_counted(self):
        for head, end in (("namespace a {\n", "}\n"), ("struct A {\n", "};\n"), ("enum class A {\n", "};\n"),
                          ("const Row kRows[] = {\n", "};\n"), ('extern "C" {\n', "}\n")):  # fmt: skip
            with self.subTest(head):
                self.assertEqual(self.found(head + "  int a;\n" * 80 + end), [])

    def test_a_loop_or_lambda_counts_to_its_function(self):
        text = "void A() {\n  for (int i : b) {\n" + self.body(30, "    ") + "  }\n  Run([&] {\n" + self.body(30, "    ")
        self.assertEqual(len(self.found(text + "  });\n}\n")), 1)

    def test_python_is_looked_at(self):
        long = "def f():\n" + "    a = 1\n" * 64
        self.assertEqual(len(self.found(long, "tests/a.py")), 1)
        self.assertEqual(self.found("def f():\n" + "    a = 1\n" * 63, "tests/a.py"), [])

    def test_listed_functions_may_be_long_and_others_not_be_listed(self):
        text = "void A() {\n" + self.body(63) + "}\n"
        self.assertEqual(self.found(text, allowed={"io/a.cc: A": "a table"}), [])
        self.assertEqual(len(self.found("", allowed={"io/a.cc: A": "a table"})), 1)

    def test_a_tree_that_was_not_read_is_found(self):
        self.put("io/a.cc", "void A() {\n}\n")
        self.assertEqual(len(function_size.find_problems(self.root, {}, fewest=2)), 1)


class SleepsTest(Planted):
    NAP = "sle" "ep"  # in two, since the check looks here as well

    def found(self, text, path="tests/io/a_test.cc", allowed="", fewest=0):
        self.put("tests/checks/sleep_exceptions.txt", allowed)
        self.put(path, text)
        return sleeps.find_problems(self.root, fewest)

    def test_each_form_of_a_sleep_is_found(self):
        for form in ("  u{}(1000);", "{}(2);", "nano{}(&time, nullptr);", "clock_nano{} (1);", "std::this_thread::{}_for(a);",
                     "std::this_thread::{}_until(a);", "time.{}(delay)", 'Popen(["{}", "60"])', "exec {} 60", '{} "$most"'):  # fmt: skip
            for path in ("tests/io/a_test.cc", "tests/a.py", "tests/a.sh", "bench/a.h"):
                self.assertEqual(len(self.found(form.format(self.NAP) + "\n", path)), 1, form)
                (self.root / path).unlink()
        self.assertEqual(len(self.found("os::" + self.NAP.title() + "For(a);")), 1)

    def test_other_words_and_the_one_place_that_waits_pass(self):
        for text in ("torch.cuda._sleep(5)", "// no sleep, and sleeps of threads", "Sleeper(4);", "WaitUntil(asleep(4));"):
            self.assertEqual(self.found(text), [], text)
        self.assertEqual(self.found(f"time.{self.NAP}(0.01)", "tests/fakes/wait_until.py"), [])
        self.assertEqual(self.found(f"{self.NAP}(1);", "integration/a.cc"), [])

    def test_an_exception_allows_the_lines_that_it_names_and_must_allow_some(self):
        text = f"{self.NAP}(first);\n{self.NAP}(second);\n"
        self.assertEqual(len(self.found(text, allowed="tests/io/*.cc | first | why\n")), 1)
        self.assertEqual(self.found(text, allowed="# head\n\ntests/io/a_test.cc | leep | why\n"), [])
        self.assertEqual(len(self.found(text, allowed="tests/io/b_test.cc | leep | why\n")), 3)
        self.assertEqual(len(self.found("", allowed="tests/io/a_test.cc | leep\n")), 1)

    def test_a_tree_that_was_not_read_is_found(self):
        self.assertEqual(len(self.found("", fewest=2)), 1)


class MirrorTest(Planted):
    def found(self, exceptions=None, fewest=0):
        return mirror.find_problems(self.root, exceptions or {}, fewest)

    def test_a_unit_is_tested_beside_its_mirror(self):
        self.put("io/os/a.h")
        self.put("io/os/a.cc")
        self.assertEqual(self.found(), ["io/os/a: no tests/io/os/a_test.*"])
        self.put("tests/io/a_test.cc")
        self.assertEqual(len(self.found()), 1)
        self.put("tests/io/os/a_test.cc")
        self.assertEqual(self.found(), [])

    def test_a_line_with_a_reason_excuses_a_unit_or_a_folder(self):
        self.put("io/a.h")
        self.put("policy/plan/b.cc")
        self.assertEqual(self.found({"io/a": "an interface", "policy/": "moves"}), [])
        self.assertEqual(len(self.found({"io/": "moves"})), 1)

    def test_a_line_without_need_is_found(self):
        self.put("io/a.h")
        self.put("tests/io/a_test.py")
        self.assertEqual(self.found({"io/a": "an interface"}), ["io/a: listed without need"])

    def test_lines_need_a_reason(self):
        path = self.put("exceptions", "# comment\n\nio/a: an interface\n")
        self.assertEqual(mirror.read_exceptions(path), {"io/a": "an interface"})
        for bad in ("io/a\n", "io/a: \n", "io/a: one\nio/a: two\n"):
            self.put("exceptions", bad)
            with self.assertRaises(ValueError):
                mirror.read_exceptions(path)

    def test_a_tree_that_was_not_read_is_found(self):
        self.assertEqual(len(self.found(fewest=1)), 1)


class DocFormatTest(Planted):
    PAGE = "docs" + "/a.md"  # in two, since the check looks for mentions of pages

    def found(self, text, page=PAGE):
        self.put(page, text)
        return doc_format.find_problems(self.root)

    def test_what_is_free_passes(self):
        long = "word " * 40
        self.put("docs" + "/b.md", "# Some Heading, of b\n")
        text = (f"# A\n\n```\n{long}\n```\n\n    {long}\n\n| {'c' * 120} | {'d' * 120} |\n|---|---|\n\n"
                f"[what](https://example.org/{'x' * 120})\n\n- [b](b.md#some-heading-of-b)\n- `[no](link)`\n")  # fmt: skip
        self.assertEqual(self.found(text), [])

    def test_long_lines_are_found(self):
        self.assertEqual(len(self.found("word " * 23 + "\n")), 1)
        self.assertEqual(len(self.found("- item\n\n    " + "word " * 23 + "\n")), 1, "a paragraph of a list item")

    def test_long_cells_are_found(self):
        self.assertEqual(len(self.found(f"| a | {'word ' * 25} |\n|---|---|\n")), 1)

    def test_a_long_readme_is_found(self):
        self.assertEqual(self.found("line\n" * 60, "README.md"), [])
        self.assertEqual(len(self.found("line\n" * 61, "README.md")), 1)

    def test_links_that_lead_nowhere_are_found(self):
        self.assertEqual(len(self.found("[x](gone.md) [y](#no-heading)\n")), 2)

    def test_mentions_of_pages_that_are_gone_are_found(self):
        self.put("io/a.cc", HEAD + "// See docs" + "/gone.md.\n")
        self.assertEqual(len(self.found("# A\n")), 1)

    def test_exceptions_count_and_must_be_needed(self):
        line = "word " * 23
        with unittest.mock.patch.dict(doc_format.EXCEPTIONS, {(self.PAGE, "word word"): "planted"}):
            self.assertEqual(self.found(line + "\n"), [])
            self.assertEqual(len(self.found("short\n")), 1)


if __name__ == "__main__":
    unittest.main()
