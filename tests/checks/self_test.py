"""Plants a violation for every rule of the checks and expects it to be found; a clean tree must pass."""

import subprocess
import tempfile
import unittest
from pathlib import Path

import function_size
import headers_alone
import include_direction
import libraries
import mirror
import text_rules
import top_level

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


class IncludeDirectionTest(Planted):
    def found(self, path, text):
        self.put(path, HEAD + text)
        return include_direction.find_problems(self.root)

    def test_downward_is_allowed(self):
        self.put("io/engine.h")
        self.put("integration/simcuda/driver/device.cc", HEAD + '#include "integration/simcuda/driver/device.h"\n')
        self.put("tests/integration/a_test.cc", HEAD + '#include "integration/simcuda/driver/device.h"\n')
        self.assertEqual(self.found("allocator/tier/ssd.cc", '#include "io/engine.h"\n#include "policy/units.h"\n'), [])

    def test_upward_is_found(self):
        self.assertEqual(len(self.found("io/engine.cc", '#include "allocator/tier/tier.h"\n')), 1)

    def test_io_and_policy_do_not_know_each_other(self):
        self.assertEqual(len(self.found("policy/plan.cc", '#include "io/engine.h"\n')), 1)
        self.assertEqual(len(self.found("io/engine.cc", '  #  include "policy/units.h"\n')), 2)

    def test_product_does_not_include_simcuda(self):
        self.assertEqual(len(self.found("integration/hooks/a.cc", '#include "integration/simcuda/driver/x.h"\n')), 1)

    def test_product_does_not_link_simcuda(self):
        self.put("integration/CMakeLists.txt", "add_subdirectory(simcuda)\n# simcuda is a stand-in\n")
        self.assertEqual(include_direction.find_problems(self.root), [])
        self.put("integration/engine/CMakeLists.txt", "target_link_libraries(engine simcuda_driver)\n")
        self.assertEqual(len(include_direction.find_problems(self.root)), 1)

    def test_policy_is_pure(self):
        self.assertEqual(len(self.found("policy/plan.cc", "#include <thread>\n")), 1)
        self.assertEqual(len(self.found("policy/time.cc", '#include "absl/time/clock.h"\n')), 2)

    def test_only_integration_reads_the_environment(self):
        self.assertEqual(self.found("integration/engine/options.cc", 'auto* a = getenv("A");\n'), [])
        self.assertEqual(self.found("io/comment.cc", "// getenv() is not called here\n"), [])
        self.assertEqual(len(self.found("io/engine.cc", 'auto* a = std::getenv("A");\n')), 1)

    def test_includes_are_written_from_the_root(self):
        self.put("io/engine.h")
        self.assertEqual(len(self.found("io/engine.cc", '#include "engine.h"\n')), 1)
        self.assertEqual(len(self.found("io/other.cc", '#include "../io/engine.h"\n')), 2)


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
        self.put("io/a.cc", HEAD + "int a;\n" * 399)
        self.assertEqual(self.found(), [])
        self.put("io/a.cc", HEAD + "int a;\n" * 400)
        self.put("tests/a.py", "a = 1\n" * 401)
        self.assertEqual(len(self.found()), 2)
        self.assertEqual(self.found({"io/a.cc": "generated", "tests/": "generated"}), [])

    def test_a_line_for_a_file_that_is_not_long_is_found(self):
        self.put("io/a.cc", HEAD + "int a;\n")
        self.assertEqual(len(self.found({"io/a.cc": "generated"})), 1)


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
            fits = 59 - head.count("\n") - 1
            with self.subTest(head):
                self.assertEqual(self.found(head + self.body(fits) + "}\n"), [])
                self.assertEqual(len(self.found(head + self.body(fits + 1) + "}\n")), 1)

    def test_methods_inside_of_classes_are_found(self):
        text = "class A {\n public:\n  int Sum() const {\n" + self.body(60, "    ") + "  }\n};\n"
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
        long = "def f():\n" + "    a = 1\n" * 59
        self.assertEqual(len(self.found(long, "tests/a.py")), 1)
        self.assertEqual(self.found("def f():\n" + "    a = 1\n" * 58, "tests/a.py"), [])

    def test_listed_functions_may_be_long_and_others_not_be_listed(self):
        text = "void A() {\n" + self.body(60) + "}\n"
        self.assertEqual(self.found(text, allowed={"io/a.cc: A": "a table"}), [])
        self.assertEqual(len(self.found("", allowed={"io/a.cc: A": "a table"})), 1)

    def test_a_tree_that_was_not_read_is_found(self):
        self.put("io/a.cc", "void A() {\n}\n")
        self.assertEqual(len(function_size.find_problems(self.root, {}, fewest=2)), 1)


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


class TopLevelTest(Planted):
    def git(self, *arguments):
        subprocess.run(["git", "-C", str(self.root), *arguments], check=True, capture_output=True)

    def test_extra_and_missing_names_are_found(self):
        self.git("init", "-q")
        for name in top_level.WANTED:
            self.put(name if "." in name else f"{name}/file")
        self.put(".hidden")
        self.git("add", "-A")
        self.assertEqual(top_level.find_problems(self.root), [])
        self.put("extra/file")
        self.git("add", "-A")
        self.git("rm", "-q", "--cached", "README.md")
        self.assertEqual(len(top_level.find_problems(self.root)), 2)


class LibrariesTest(Planted):
    CODE = "#include <stdlib.h>\nint cuInit(unsigned f) { return atoi(\"1\"); }\n"

    def preload(self, code=CODE, *flags):
        return self.library("lib/libspillway.so", code, "-Wl,-soname,libcuda.so.1", *flags)

    def found(self):
        return libraries.find_problems(self.root / "lib", self.root / "exports")

    def test_listed_exports_pass(self):
        self.preload()
        self.put("exports/libspillway.so.txt", "# what it may export\ncuInit\n")
        self.assertEqual(self.found(), [])

    def test_missing_preload_is_found(self):
        self.assertEqual(len(self.found()), 1)

    def test_extra_and_missing_exports_are_found(self):
        self.preload(self.CODE + "int leaked;\n")
        self.put("exports/libspillway.so.txt", "cuInit\ncuGone\n")
        self.assertEqual(len(self.found()), 2)

    def test_library_without_list_is_found(self):
        self.preload()
        self.assertEqual(len(self.found()), 1)

    def test_preload_that_needs_more_than_libc_is_found(self):
        self.preload(self.CODE, "-Wl,--no-as-needed", "-lm")
        self.put("exports/libspillway.so.txt", "cuInit\n")
        self.assertEqual(len(self.found()), 1)

    def test_wrong_soname_is_found(self):
        self.library("lib/libspillway.so", self.CODE)
        self.put("exports/libspillway.so.txt", "cuInit\n")
        self.assertEqual(len(self.found()), 1)

    def test_library_bound_to_the_driver_or_simcuda_is_found(self):
        driver = self.preload()
        self.library("lib/libengine.so", "int cuInit(unsigned); int go(void) { return cuInit(0); }\n", str(driver),
                     "-Wl,-rpath,$ORIGIN/simcuda")  # fmt: skip
        self.put("exports/libspillway.so.txt", "cuInit\n")
        self.put("exports/libengine.so.txt", "go\n")
        self.assertEqual(len(self.found()), 2)

    def test_update_writes_lists_that_pass(self):
        self.preload()
        libraries.update(self.root / "lib", self.root / "exports")
        self.assertEqual(self.found(), [])


class HeadersAloneTest(Planted):
    def found(self, source):
        self.put("io/good.h", HEAD + "#ifndef A\n#define A\n#include <string>\nstd::string A1();\n#endif\n")
        self.put("io/bad.h", HEAD + "#ifndef B\n#define B\nstd::string B1();\n#endif\n")
        self.put("io/a.cc", source)
        command = f"c++ -I{self.root} -o a.o -c {self.root}/io/a.cc"
        self.put("build/compile_commands.json",
                 f'[{{"directory": "{self.root}/build", "file": "{self.root}/io/a.cc", "command": "{command}"}}]')  # fmt: skip
        return headers_alone.find_problems(self.root, self.root / "build")

    def test_header_that_leans_on_its_includer_is_found(self):
        for source in ('#include "io/good.h"\n#include "io/bad.h"\n', '#include <string>\n#include "io/bad.h"\n',
                       '#define B2\n#include "io/bad.h"\n'):  # fmt: skip
            problems = self.found(HEAD + source)
            self.assertEqual(len(problems), 1)
            self.assertIn("io/bad.h", problems[0])

    def test_header_that_the_build_compiles_first_is_not_compiled_again(self):
        self.assertEqual(self.found(HEAD + '#include "io/bad.h"\n'), [])


if __name__ == "__main__":
    unittest.main()
