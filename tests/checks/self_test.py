"""Plants a violation for every rule of the checks and expects it to be found; a clean tree must pass.

Here the checks of includes, calls, folders, libraries and the table of tests; text_self_test has those of text.
"""

import argparse
import subprocess
import unittest
import unittest.mock

import headers_alone
import include_chains
import include_direction
import libraries
import preload_calls
import test_table
import top_level
from planted import HEAD, Planted


class IncludeDirectionTest(Planted):
    def found(self, path, text):
        self.put(path, HEAD + text)
        return include_direction.find_problems(self.root)

    def test_downward_is_allowed(self):
        self.put("io/engine.h")
        self.put("integration/simcuda/driver/device.cc", HEAD + '#include "integration/simcuda/driver/device.h"\n')
        self.put("tests/integration/a_test.cc", HEAD + '#include "integration/simcuda/driver/device.h"\n')
        self.assertEqual(self.found("allocator/tier/ssd.cc", '#include "io/engine.h"\n#include "policy/model/machine.h"\n'), [])

    def test_upward_is_found(self):
        self.assertEqual(len(self.found("io/engine.cc", '#include "allocator/tier/tier.h"\n')), 1)

    def test_io_and_policy_do_not_know_each_other(self):
        self.assertEqual(len(self.found("policy/plan.cc", '#include "io/engine.h"\n')), 1)
        self.assertEqual(len(self.found("io/engine.cc", '  #  include "policy/units.h"\n')), 2)

    def test_folders_of_a_layer(self):
        self.assertEqual(self.found("integration/hooks/a.h", '#include "integration/escape/b.h"\n'), [])
        self.assertEqual(self.found("integration/engine/a.h", '#include "integration/hooks/a.h"\n'), [])
        self.assertEqual(len(self.found("integration/escape/b.h", '#include "integration/hooks/a.h"\n')), 1)
        self.assertEqual(len(self.found("integration/prediction/c.h", '#include "integration/escape/b.h"\n')), 2)

    def test_folders_of_a_layer_below(self):
        self.assertEqual(self.found("integration/torch/a.h", '#include "io/os/sync.h"\n'), [])
        self.assertEqual(len(self.found("integration/torch/a.h", '#include "allocator/tier/b.h"\n')), 1)
        self.assertEqual(len(self.found("allocator/driver/a.h", '#include "io/engine.h"\n')), 2)
        self.assertEqual(len(self.found("io/os/a.h", '#include "io/engine.h"\n')), 3)

    def test_a_single_file_of_a_folder(self):
        for folder, file in (("engine", "preload/shim_abi"), ("torch", "engine/spillway"), ("cli/doctor", "preload/conf_text")):
            good, bad = (f'#include "integration/{name}.h"\n' for name in (file, file + "_b"))
            self.assertEqual(self.found(f"integration/{folder}/a.h", good), [])
            self.assertEqual(len(self.found(f"integration/{folder}/a.h", bad)), 1)
            (self.root / f"integration/{folder}/a.h").unlink()

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


class IncludeChainsTest(Planted):
    MODULES = (include_chains.Module(("io",), chain=2, units=3),)

    def unit(self, name, *included):
        self.put(f"{name}.h", HEAD + "".join(f'#include "{other}.h"\n' for other in included))

    def found(self):
        return include_chains.find_problems(self.root, self.MODULES)

    def test_a_tree_passes_and_its_longest_chain_is_counted(self):
        self.unit("io/a", "io/b")
        self.unit("io/b")
        self.assertEqual(self.found(), [])
        self.unit("io/b", "io/os/c")
        self.unit("io/os/c")
        self.assertEqual(len(self.found()), 1)

    def test_a_chain_is_followed_through_other_modules(self):
        self.unit("io/a", "policy/x")
        self.unit("policy/x", "io/b")
        self.unit("io/b", "io/c")
        self.unit("io/c")
        self.assertIn("the longest chain of includes has 3 units", " ".join(self.found()))

    def test_too_many_units_are_found(self):
        for name in "abcd":
            self.unit(f"io/{name}")
        self.assertEqual(len(self.found()), 1)

    def test_a_folder_with_too_many_floors_is_found(self):
        for folder in ("bench", "bench/a"):  # four floors each: a folder's own are counted
            for lower, upper in ("ab", "bc", "cd"):
                self.unit(f"{folder}/{upper}", f"{folder}/{lower}")
            self.unit(f"{folder}/a")
        self.unit("bench/a/a", "bench/d")
        self.assertEqual(self.found(), [])
        for lower, upper in zip("defgh", "efghi"):
            self.unit(f"bench/{upper}", f"bench/{lower}")
        self.assertEqual(self.found(), ["bench: 9 floors, at most 8: i > h > g > f > e > d > c > b > a"])

    def test_a_circle_of_units_is_found_also_through_a_source(self):
        self.unit("io/a", "io/b")
        self.unit("io/b")
        self.put("io/b.cc", HEAD + '#include "io/b.h"\n#include "io/a.h"\n')
        self.assertEqual(self.found(), ["files include in a circle: io/a, io/b"])

    def test_a_circle_of_folders_is_found(self):
        self.unit("io/a", "io/os/b")
        self.unit("io/os/b")
        self.unit("io/c")
        self.put("io/os/b.cc", HEAD + '#include "io/c.h"\n')
        self.assertIn("folders include in a circle: io, io/os", self.found())


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

    def test_of_sources_compiled_together_only_the_first_shows_a_header(self):
        self.found(HEAD)
        self.put("io/b.cc", HEAD + '#include "io/bad.h"\n')
        database = self.root / "build" / "compile_commands.json"
        for sources, problems in ((["b", "a"], 0), (["a", "b"], 1)):
            self.put("build/Unity/unity_0_cxx.cxx", "".join(f'#include "{self.root}/io/{name}.cc"\n' for name in sources))
            database.write_text(database.read_text().replace(f"{self.root}/io/a.cc", f"{self.root}/build/Unity/unity_0_cxx.cxx"))
            self.assertEqual(len(headers_alone.find_problems(self.root, self.root / "build")), problems)

    def test_one_compilation_serves_headers_that_include_each_other(self):
        self.put("io/inner.h", HEAD + "#ifndef I\n#define I\n#include <string>\nstd::string I1();\n#endif\n")
        self.put("io/outer.h", HEAD + '#ifndef O\n#define O\n#include "io/inner.h"\nstd::string O1();\n#endif\n')
        self.put("io/other.h", HEAD + "#ifndef T\n#define T\n#endif\n")
        headers = [self.root / "io" / name for name in ("inner.h", "other.h", "outer.h")]
        chains = headers_alone.chains_of(headers, headers_alone.headers_below(headers, self.root))
        self.assertEqual(sorted([path.name for path in chain] for chain in chains), [["inner.h", "outer.h"], ["other.h"]])


class TestTableTest(Planted):
    ROWS = ("| `io` | io | a |", "| `allocator` | | b |", "| `allocator/tier` | unit | b |")
    TESTS = {"one": {"io"}, "two": {"unit", "brief"}, "three": {"nightly:b"}}

    def found(self, rows=ROWS, shards=("a", "b"), tests=TESTS):
        table = "\n".join(("| folder | labels | shards |", "|---|---|---|", *rows))
        self.put("tests/README.md", f"# Tests\n\n{test_table.BEGIN}\n{table}\n{test_table.END}\n")
        self.put("tests/nightly.sh", 'SHARDS="\n' + "".join(f"{name}  what it is\n" for name in shards) + '"\n')
        self.put("io/os/a.h")
        self.put("io/b.h")
        self.put("allocator/tier/c.cc")
        with unittest.mock.patch.object(test_table, "labels_of", lambda build: tests):
            return test_table.find_problems(argparse.Namespace(root=self.root, build=self.root))

    def test_a_complete_table_passes(self):
        self.assertEqual(self.found(), [])

    def test_a_folder_without_a_row_is_found_also_where_its_layer_has_one(self):
        self.assertEqual(len(self.found(self.ROWS[1:])), 4, "io, io/os, its label, its shard")
        self.assertEqual(len(self.found((*self.ROWS[:2], "| `bench` | unit | |"))), 2, "allocator/tier has none, bench is no folder")

    def test_labels_and_shards_must_be_named_and_be_there(self):
        self.assertEqual(len(self.found(shards=("a", "b", "c"))), 1)
        self.assertEqual(len(self.found((*self.ROWS[:2], "| `allocator/tier` | unit, job | b, c |"))), 2)
        self.assertEqual(len(self.found(tests={**self.TESTS, "four": {"torch"}})), 1)

    def test_a_test_has_a_label_and_one_shard_at_most(self):
        for labels in (set(), {"nightly"}, {"nightly:c"}, {"nightly:a", "nightly:b"}, {"io", "brief", "full"}):
            self.assertEqual(len(self.found(tests={**self.TESTS, "four": labels})), 1, labels)


if __name__ == "__main__":
    unittest.main()
