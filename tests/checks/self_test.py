"""Plants a violation for every rule of the checks and expects it to be found; a clean tree must pass."""

import subprocess
import tempfile
import unittest
from pathlib import Path

import headers_alone
import include_direction
import libraries
import preload_calls
import settings_page
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

    def test_a_folder_with_a_row_of_its_own(self):
        good = '#include "integration/settings/settings.h"\n#include "io/os/log.h"\n#include <string>\n'
        self.assertEqual(self.found("integration/settings/settings.cc", good), [])
        self.assertEqual(len(self.found("integration/settings/a.cc", '#include "integration/engine/sizing.h"\n')), 1)

    def test_only_the_settings_and_the_preload_read_the_environment(self):
        self.assertEqual(self.found("integration/settings/environment.cc", 'auto* a = getenv("A");\n'), [])
        self.assertEqual(len(self.found("integration/engine/engine.cc", 'auto* a = getenv("A");\n')), 1)
        (self.root / "integration/engine/engine.cc").unlink()
        self.assertEqual(self.found("io/comment.cc", "// getenv() is not called here\n"), [])
        self.assertEqual(len(self.found("io/engine.cc", 'auto* a = std::getenv("A");\n')), 1)

    def test_includes_are_written_from_the_root(self):
        self.put("io/engine.h")
        self.assertEqual(len(self.found("io/engine.cc", '#include "engine.h"\n')), 1)
        self.assertEqual(len(self.found("io/other.cc", '#include "../io/engine.h"\n')), 2)


class PreloadCallsTest(Planted):
    def found(self, **files):
        for name, text in files.items():
            self.put(f"integration/preload/{name}.c", f"/* Upper() is called by nobody here. */\n{text}\n")
        return preload_calls.find_problems(self.root)

    def test_one_direction_is_allowed(self):
        lower = "static int Upper(void) { return 1; }\nvoid* Lower(int a,\n            int b) {\n  return 0;\n}"
        self.assertEqual(self.found(low=lower, up="int Upper(void) { Lower(1, 2); return 0; } /* Lower() */"), [])

    def test_both_directions_are_found(self):
        found = self.found(low="void Lower(void) { Upper(); }", up="int Upper(void) { Lower(); return 0; }")
        self.assertEqual(len(found), 1)
        self.assertIn("low.c uses Upper of up.c", found[0])

    def test_an_address_and_a_way_over_a_third_are_found(self):
        self.assertEqual(len(self.found(a="int A(void) { return B(); }", b="int B(void) { return C(); }",
                                        c="int C(void) {\n  return (int)(long)A;\n}")), 1)  # fmt: skip


class SettingsPageTest(Planted):
    ROWS = ('// SETTING(name, type, default, accepted, meaning)\nSETTING_WORDS(Mode, kOn, kOff)\n'
            'MODE_SETTING(spillway, Word<Mode>, "on", "on or off", "What is done")\n'
            'SETTING(dirs, Directories,\n        "none", "paths, or \\"none\\"", "Where spilled "\n        "bytes (all of them) go")\n'
            'RETIRED_SETTING(gds, "off")\n')  # fmt: skip
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

    def test_a_row_of_another_form_a_long_cell_and_a_retired_name_are_found(self):
        self.assertEqual(len(self.found(rows=self.ROWS + 'SETTING(log, Word, "warn", "a word")\n')), 1)
        self.assertEqual(len(self.found(rows=self.ROWS.replace("What is done", "x" * 121))), 3)
        self.assertEqual(len(self.found(notes="`SPILLWAY_GDS` is not there\n")), 1)

    def test_words_without_enumerators_are_found(self):
        self.assertEqual(len(self.found(rows=self.ROWS.replace("kOff", "kOff, kMaybe"))), 1)

    def test_update_writes_a_table_that_passes(self):
        self.assertNotEqual(self.found(table=self.TABLE.replace("none", "nothing")), [])
        settings_page.update(self.root)
        self.assertEqual(settings_page.find_problems(self.root), [])
        self.assertEqual((self.root / "docs/environment.md").read_text(), f"# Settings\n\n{self.TABLE}\nNotes\n")


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
