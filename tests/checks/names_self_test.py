"""As self_test, for the checks of names: types defined once, local functions that hide others, metrics, names that pages quote."""

import unittest

import metrics_page
import local_names
import page_names
import types_once
from planted import HEAD, Planted


class TypesOnceTest(Planted):
    def found(self):
        return types_once.find_problems(self.root)

    def test_types_with_names_of_their_own_pass(self):
        self.put("io/a.h", "struct Slot;\nclass Store final : public Slot {\n};\nstruct Store::State {\n};\nenum class Kind : int { kA };\n")
        self.put("io/b.h", "struct Slot {\n};\n")
        self.put("io/b.cc", "struct Slot {\n};\n")
        self.put("integration/simcuda/b.h", "struct Slot {\n};\n")
        self.assertEqual(self.found(), [])

    def test_a_name_of_two_types_is_found(self):
        for first, second in (("struct Slot {\n};\n", "class Slot {\n};\n"), ("enum class Slot { kA };\n", "struct [[nodiscard]] Slot {\n};\n")):
            self.put("io/a.h", first)
            self.put("policy/b.h", second)
            self.assertEqual(self.found(), ["Slot is defined in io/a.h, policy/b.h: name each after what it is"])

    def test_a_tree_that_was_not_read_is_found(self):
        self.assertEqual(types_once.find_problems(self.root, fewest=1), ["only 0 types found, expected 1"])


class LocalNamesTest(Planted):
    HEADER = "namespace spillway::io {\nint Count(long bytes);\n}\n"
    SOURCE = "namespace spillway::io {\nnamespace {\n\nint {}(const Json& state) {\n  return 0;\n}\n\n}  // namespace\n}\n"

    def found(self, path, name):
        self.put("io/os/a.h", self.HEADER)
        self.put(path, self.SOURCE.replace("{}", name, 1))
        return local_names.find_problems(self.root)

    def test_a_local_function_that_hides_a_headers_is_found(self):
        self.assertEqual(self.found("io/b.cc", "Count"), ["io/b.cc has a Count of its own, which hides that of io/os/a.h: name it after what it does"])

    def test_other_names_and_other_layers_pass(self):
        self.assertEqual(self.found("io/b.cc", "CountOf"), [])
        self.assertEqual(self.found("policy/b.cc", "Count"), [])
        self.put("io/c.cc", "namespace {\n}  // namespace\nint Count(long bytes) {\n}\n")
        self.assertEqual(local_names.find_problems(self.root), [])

    def test_a_tree_that_was_not_read_is_found(self):
        self.assertEqual(local_names.find_problems(self.root, fewest=1), ["only 0 functions found, expected 1"])


class FiguresPageTest(Planted):
    COUNTERS = ('// COUNTER(name, share, metric, help)\n#define COUNTER(...)\nGAUGE(live_bytes, "spillway_live_bytes", "blocks")\n'
                'METRIC("spillway_lost_seconds_total", "no work")\nSECONDS(lost_chunks_nanos, "lost_seconds.chunks", PER_ITERATION,\n'
                '        "spillway_lost_seconds_total cause=chunks",\n        "for "\n        "chunks")\n'
                'COUNTER(faults, TOTAL, "spillway_faults_total", "faults")\n')  # fmt: skip
    FIGURES = 'DISK_METRIC(read_bytes, "", "read")\nPAUSE_METRIC(paused_seconds, float, SecondsOf(pause.nanos), "", "paused")\n'

    def found(self, counters=COUNTERS, figures=FIGURES, write=True):
        self.put("allocator/residency/state/counters.def", counters)
        self.put("integration/report/job_metrics.def", figures)
        for path, parts in metrics_page.blocks([]).items():
            self.put(str(path), "".join(f"{begin}\n{end}\n" for begin, end in (metrics_page.marks(path, name) for name in parts)))
        if write:
            metrics_page.update(self.root)
        return metrics_page.find_problems(self.root)

    def test_what_update_writes_passes_and_has_each_row(self):
        self.assertEqual(self.found(), [])
        page, types = ((self.root / path).read_text() for path in (metrics_page.PAGE, metrics_page.TYPES))
        for line in ("| `live_bytes` | blocks | `spillway_live_bytes` |", "| `disk_read_bytes` | read | - |",
                     "| `lost_seconds`, chunks | for chunks | `spillway_lost_seconds_total` `cause=chunks` |"):  # fmt: skip
            self.assertIn(line, page.splitlines())
        for line in ("    lost_seconds: LostSeconds", "    chunks: float", "    faults: int", "    paused_seconds: float"):
            self.assertIn(line, types.splitlines())

    def test_a_page_that_was_not_written_is_found(self):
        self.assertEqual(len(self.found(write=False)), 6 + 5)  # all tables, and the lists that have rows

    def test_marks_that_are_not_there_are_found(self):
        self.found()
        self.put("docs/metrics.md", "# Figures\n")
        self.assertEqual(len(metrics_page.find_problems(self.root)), len(metrics_page.TABLES))

    def test_rows_of_another_form_are_found(self):
        for row in ('GAUGE(live_bytes, TOTAL, "spillway_x_bytes", "x")\n', 'COUNTER(faults, "", "x")\n', 'DISK_METRIC(x, "")\n'):
            self.assertEqual(len(self.found(counters=self.COUNTERS + row)), 1, row)

    def test_metrics_of_the_wrong_name_place_or_words_are_found(self):
        for row in ('GAUGE(x_bytes, "spillway_x_total", "x")\n', 'COUNTER(x, TOTAL, "spillway_x", "x")\n',
                    'GAUGE(x_bytes, "spillway_x_bytes tier=host", "x")\n', 'GAUGE(more_bytes, "spillway_live_bytes", "x")\n'):  # fmt: skip
            self.assertEqual(len(self.found(counters=self.COUNTERS + row)), 1, row)


class PageNamesTest(Planted):
    def found(self, text, page="docs/design.md", others=()):
        self.put("io/store/slot.h", HEAD + "class SlotTable;  // kMaxSlots, SPILLWAY_DIRS\n")
        self.put("integration/settings/settings.def", HEAD + "SETTING(host_memory)\n")
        self.put("bench/a.py", 'parser.add_argument("--pairs")\n')
        self.put("tests/nightly.sh", 'SHARDS="\nmutants      what catches each\n"\n')
        self.put(page, text)
        return page_names.find_problems(self.root, dict.fromkeys(others, "another project's"))

    def test_names_that_are_there_pass(self):
        for text in ("`SlotTable`", "`kMaxSlots`", "`io/store/slot.h`", "`io/store/slot`", "`io/store/{slot,slot}.h`", "`io/*.h`",
                     "`slot.h`", "`SPILLWAY_DIRS`", "`SPILLWAY_HOST_MEMORY`", "`--pairs 3`", "`--host-memory`", "`tests/nightly.sh mutants`",
                     "```\na.py --pairs 3\nOtherClass\n```"):  # fmt: skip
            self.assertEqual(self.found(text + "\n"), [], text)

    def test_names_that_are_gone_are_found(self):
        for text in ("`SlotList`", "`SlotTable::AllOfThem`", "`kMostSlots`", "`io/store/slots.h`", "`io/store/{slot,gone}.h`", "`slots.h`",
                     "`io/*.cc`", "`SPILLWAY_DIR`", "`SIMCUDA_NONE`", "`--pair`", "`tests/nightly.sh mutants links`", "```\na.py --pair 3\n```"):  # fmt: skip
            self.assertEqual(len(self.found(text + "\n")), 1, text)

    def test_what_only_a_comment_or_a_check_names_is_found(self):
        self.put("integration/simcuda/settings.cc", HEAD + '{"SCRUB", 1}\nint memory_size;\n')
        self.put("tests/checks/words.py", "kGone SPILLWAY_GONE --gone\n")
        self.assertEqual(self.found("`SIMCUDA_SCRUB`\n"), [])
        for text in ("`SPILLWAY_MEMORY_SIZE`", "`kGone`", "`SPILLWAY_GONE`", "`--gone`"):
            self.assertEqual(len(self.found(text + "\n")), 1, text)

    def test_text_without_marks_and_free_pages_may_have_any_name(self):
        self.assertEqual(self.found("SlotList, io/store/slots.h and --pair\n"), [])
        for page in ("docs/changelog.md", "docs/" + "decisions/0001-slots.md", "docs/" + "results/archive/2026-11-22-slots.md"):
            self.assertEqual(self.found("`SlotList`\n", page), [])

    def test_a_path_may_begin_at_the_folder_of_its_page(self):
        self.put("tests/io/store/slot_test.cc")
        self.assertEqual(self.found("`io/store/slot_test.cc`\n", "tests/README.md"), [])
        self.assertEqual(len(self.found("`io/store/slot_test.cc`\n")), 1)

    def test_a_name_of_another_project_needs_a_row_and_a_row_a_name(self):
        self.assertEqual(self.found("`SlotList`\n", others=["SlotList"]), [])
        self.assertEqual(len(self.found("`SlotTable`\n", others=["SlotList"])), 1)


if __name__ == "__main__":
    unittest.main()
