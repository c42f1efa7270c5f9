"""Plants a violation for every rule of the checks and expects it to be found; a clean tree must pass."""

import subprocess
import tempfile
import unittest
from pathlib import Path

import headers_alone
import include_direction
import libraries
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

    def test_folders_of_a_layer_keep_their_order(self):
        below = '#include "allocator/residency/state/block_table.h"\n#include "allocator/memory/block_id.h"\n'
        self.assertEqual(self.found("allocator/residency/plan/a.cc", below), [])
        upward = '#include "allocator/residency/plan/a.h"\n'
        self.assertEqual(len(self.found("allocator/residency/transfer/a.cc", upward)), 1)
        self.assertEqual(len(self.found("allocator/residency/state/a.cc", '#include "allocator/residency/a.h"\n')), 2)

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
    def test_clean_file_passes(self):
        self.put("io/os/a.h", HEAD + "#ifndef SPILLWAY_IO_OS_A_H_\n#define SPILLWAY_IO_OS_A_H_\n#endif\n")
        self.assertEqual(text_rules.find_problems(self.root), [])

    def test_missing_head_is_found(self):
        self.put("io/a.cc", "int a;\n")
        self.assertEqual(len(text_rules.find_problems(self.root)), 1)

    def test_source_of_a_header_needs_no_second_head(self):
        self.put("io/a.h", HEAD + "#ifndef SPILLWAY_IO_A_H_\n#define SPILLWAY_IO_A_H_\n#endif\n")
        self.put("io/a.cc", "int a;\n")
        self.assertEqual(text_rules.find_problems(self.root), [])

    def test_wrong_guard_is_found(self):
        self.put("io/a.h", HEAD + "#ifndef A_H\n#define A_H\n#endif\n")
        self.assertEqual(len(text_rules.find_problems(self.root)), 1)

    def test_marks_are_found_in_any_text(self):
        self.put("integration/a.py", "# TO" "DO later\n")
        self.assertEqual(len(text_rules.find_problems(self.root)), 1)

    def test_long_files_are_reported_only(self):
        self.put("io/a.cc", HEAD + "int a;\n" * 401)
        self.assertEqual(text_rules.find_problems(self.root), [])
        self.assertEqual(len(text_rules.long_files(self.root)), 1)


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
    def test_header_that_leans_on_its_includer_is_found(self):
        self.put("io/good.h", HEAD + "#ifndef A\n#define A\n#include <string>\nstd::string A1();\n#endif\n")
        self.put("io/bad.h", HEAD + "#ifndef B\n#define B\nstd::string B1();\n#endif\n")
        self.put("io/a.cc", HEAD + '#include "io/good.h"\n#include "io/bad.h"\n')
        build = self.root / "build"
        command = f"c++ -I{self.root} -o a.o -c {self.root}/io/a.cc"
        self.put("build/compile_commands.json",
                 f'[{{"directory": "{build}", "file": "{self.root}/io/a.cc", "command": "{command}"}}]')  # fmt: skip
        problems = headers_alone.find_problems(self.root, build)
        self.assertEqual(len(problems), 1)
        self.assertIn("io/bad.h", problems[0])


if __name__ == "__main__":
    unittest.main()
