"""`spillway report` of several files: the ranks of a job on one page, two runs side by side, as text, JSON and page."""

import json
import os
import sys
import tempfile
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import report_samples  # noqa: E402
from report_helpers import LIBRARY, ReportPage, figures, is_shown, report  # noqa: E402

NEEDS_LIBRARY = unittest.skipUnless(os.path.isfile(LIBRARY), "the drawing library is not there")
QUICK = "--no-what-if"


class Case(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)

    def path(self, name):
        return os.path.join(self.scratch.name, name)

    def write(self, named):
        return report_samples.write_all(self.scratch.name, named)

    def json_of(self, *arguments):
        run = report(*arguments, "--json")
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)

    def assert_refused(self, run, *words):
        self.assertEqual((run.returncode, run.stdout), (2, ""), run.stderr)
        for word in words:
            self.assertIn(word, run.stderr)

    def rows(self, section, table):
        return {row[0]["shown"]: row[1:] for row in section["tables"][table]["rows"]}

    def assert_page_says(self, page, model):
        self.assertEqual(page.data, model)
        shown = {key: one["shown"] for section in model["sections"].values() for key, one in section["figures"].items() if "value" in one}
        self.assertEqual(page.figures, shown)
        self.assertEqual(sorted(page.charts), sorted(key for section in model["sections"].values() for key in section["charts"]))
        for section in model["sections"].values():
            for key, table in section["tables"].items():
                self.assertEqual(page.tables[key][1:], [[cell["shown"] for cell in row] for row in table["rows"]], key)


class RanksTest(Case):
    def test_a_row_for_each_rank_and_all_of_the_slowest(self):
        paths = self.write(report_samples.ranks())
        model = self.json_of(*paths, QUICK)
        self.assertIn("4 ranks of the job: they are equally fast", model["verdict"][0])
        self.assertIn("node08, rank 1 lost most, 23.4 %", model["verdict"][0])
        ranks = model["sections"]["ranks"]
        times, moved = self.rows(ranks, "rank_times"), self.rows(ranks, "rank_bytes")
        self.assertEqual(list(times), ["node07, rank 0", "node07, rank 1", "node08, rank 0", "node08, rank 1"])
        for (name, time), data in zip(times.items(), report_samples.ranks().values()):
            device = data["figures"]["devices"][0]
            self.assertEqual(time[0]["value"], device["iteration"]["seconds"])
            self.assertAlmostEqual(time[2]["value"], sum(device["lost_seconds"].values()) / 6)
            self.assertEqual([cell["value"] for cell in moved[name][:5]],
                             [data["capacity"]["gpu_bytes"], device["peak_live_bytes"], device["host_spilled_bytes"],
                              device["disk_spilled_bytes"], device["fetched_bytes"]])  # fmt: skip
        self.assertEqual([row[5]["shown"] for row in times.values()], ["", "", "", "the slowest"])
        spilled = sum(data["figures"]["devices"][0]["spilled_bytes"] for data in report_samples.ranks().values())
        self.assertEqual(ranks["figures"]["all_spilled_bytes"]["value"], spilled)
        self.assertEqual(self.rows(ranks, "rank_differences")["gpu_memory"][1]["shown"], "16GiB: node08, rank 1")
        alone = figures(paths[3], QUICK)
        self.assertEqual({key: section for key, section in model["sections"].items() if key not in ("ranks", "slowest")}, alone["sections"])
        self.assertEqual(model["sections"]["slowest"]["words"], [" ".join(alone["verdict"])])

    def test_a_folder_stands_for_its_data_files(self):
        paths = self.write(report_samples.ranks())
        with open(self.path("metrics.json"), "w", encoding="utf-8") as file:
            json.dump({"spilled_bytes": 3}, file)
        self.assertEqual(self.json_of(self.scratch.name, QUICK), self.json_of(*paths, QUICK))

    def test_a_rank_whose_file_is_not_there_is_named(self):
        paths = self.write(report_samples.ranks())
        model = self.json_of(paths[0], paths[2], paths[3], QUICK)
        self.assertIn("node07: rank 1 of 2", " ".join(model["sections"]["ranks"]["missing"]))
        self.assertNotIn("No files of these ranks", json.dumps(self.json_of(*paths, QUICK)))

    def test_many_ranks_have_a_row_each(self):
        many = {f"{number:02}.json": report_samples.rank(number, iteration=2.4 + 0.1 * number) for number in range(40)}
        for data in many.values():
            data["job"]["local_size"] = 40
        self.write(many)
        ranks = self.json_of(self.scratch.name, QUICK)["sections"]["ranks"]
        self.assertEqual(len(ranks["tables"]["rank_times"]["rows"]), 40)
        self.assertEqual(ranks["missing"], [])
        self.assertIn("rank 39 is the slowest", report(self.scratch.name, "--text", QUICK).stdout)

    @NEEDS_LIBRARY
    def test_the_longest_iterations_of_many_have_bars(self):
        many = {f"{number:02}.json": report_samples.rank(number, iteration=2.4 + 0.1 * (number % 37)) for number in range(40)}
        self.write(many)
        self.assertEqual(report(self.scratch.name, QUICK).returncode, 0)
        values = ReportPage(self.path("ranks.html")).specs["parts"]["data"]["values"]
        names = list(dict.fromkeys(value["name"] for value in values))
        self.assertEqual(names, [f"rank {number}" for number in range(5, 37)])  # the last three are short again

    @NEEDS_LIBRARY
    def test_the_page_says_what_json_says_and_lies_beside_the_files(self):
        self.write(report_samples.ranks())
        run = report(self.scratch.name, QUICK)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stdout.splitlines()[-1], self.path("ranks.html"))
        page = ReportPage(self.path("ranks.html"))
        self.assert_page_says(page, self.json_of(self.scratch.name, QUICK))
        self.assertIn("parts", page.charts)


class RunsTest(Case):
    def test_what_changed_by_how_much_and_why(self):
        before, after = report_samples.pair().values()
        model = self.json_of(*self.write(report_samples.pair()), QUICK)
        self.assertEqual(model["verdict"][0], "An iteration takes 2.10 s instead of 2.40 s: 12.5 % shorter.")
        self.assertIn("300 ms of it: the GPU waited for bytes to come back, since disk → GPU was 2.00 GiB instead of 9.00 GiB, since "
                      "host memory it may use was 24.0 GiB instead of 12.0 GiB, since SPILLWAY_HOST_MEMORY was 24GiB instead of 12GiB",
                      model["verdict"][1])  # fmt: skip
        self.assertEqual(model["verdict"][2], "Settings that differ: SPILLWAY_HOST_MEMORY 24GiB instead of 12GiB.")
        tables = model["sections"]["changes"]["tables"]
        expected = {
            ("changes_speed", "one iteration"): (2.4, 2.1),
            ("changes_speed", "time lost, of the run"): (11.7, 9.5),
            ("changes_lost", "waited for bytes to come back"): (0.4, 0.1),
            ("changes_moved", "disk → GPU"): (9 * 2**30, 2 * 2**30),
            ("changes_moved", "GPU → host"): (5 * 2**30, 12 * 2**30),
            ("changes_memory", "held at the peak"): (before["figures"]["devices"][0]["peak_live_bytes"],) * 2,
            ("changes_memory", "host memory it may use"): (before["capacity"]["host_bytes"], after["capacity"]["host_bytes"]),
            ("changes_rates", "disk → GPU, of the job"): (5.1e9, 5.1e9),
        }
        units = {"changes_speed": "seconds", "changes_lost": "seconds", "changes_moved": "bytes", "changes_memory": "bytes", "changes_rates": "bytes/s"}
        for (table, label), (first, second) in expected.items():
            row = self.rows({"tables": tables}, table)[label]
            self.assertAlmostEqual(row[0]["value"], first, msg=label)
            self.assertAlmostEqual(row[1]["value"], second, msg=label)
            self.assertAlmostEqual(row[2]["value"], second - first, msg=label)
            self.assertAlmostEqual(row[3]["value"], 100 * (second / first - 1), msg=label)
            if "time lost" not in label:
                self.assertTrue(is_shown(row[0]["shown"], first, units[table]), row)
                self.assertTrue(is_shown(row[2]["shown"].lstrip("+"), second - first, units[table]), row)
            self.assertEqual(bool(row[4]["shown"]), first != second, (label, row))
        self.assertEqual(self.rows(model["sections"]["settings"], "setting_changes"), {"host_memory": [{"shown": "12GiB"}, {"shown": "24GiB"}]})

    def test_the_other_way_round_it_is_the_opposite(self):
        before, after = self.write(report_samples.pair())
        model = self.json_of(after, before, QUICK)
        self.assertEqual(model["verdict"][0], "An iteration takes 2.40 s instead of 2.10 s: 14.3 % longer.")
        self.assertIn("was 12GiB instead of 24GiB", model["verdict"][1])

    def test_a_folder_of_two_runs_has_the_earlier_first(self):
        self.write(report_samples.pair())  # the name of the later one comes first
        self.assertIn("instead of 2.40 s", self.json_of(self.scratch.name, QUICK)["verdict"][0])

    def test_the_same_run_twice_has_nothing_to_explain(self):
        data = report_samples.pair()["before.json"]
        later = json.loads(json.dumps(data))
        later["job"].update(started_unix=1795430800.5, pid=5222)
        model = self.json_of(*self.write({"a.json": data, "b.json": later}), QUICK)
        self.assertIn("within the variation of the iterations of each run", model["verdict"][0])
        self.assertEqual(model["verdict"][1:], ["The settings are the same."])
        for table in model["sections"]["changes"]["tables"].values():
            for row in table["rows"]:
                self.assertEqual(row[5]["shown"], "", row)
                self.assertFalse(row[3]["shown"].startswith(("+", "-")), row)

    def test_of_several_ranks_the_slowest_stands_for_the_run(self):
        for name, seconds in (("one", 0), ("two", 9000)):
            os.mkdir(self.path(name))
            ranks = report_samples.ranks()
            for data in ranks.values():
                data["job"]["started_unix"] += seconds
                data["job"]["pid"] += seconds
            report_samples.write_all(self.path(name), ranks)
        model = self.json_of(self.path("one"), self.path("two"), QUICK)
        self.assertEqual([cell["shown"] for cell in self.rows(model["sections"]["runs"], "runs")["rank"]], ["node08, rank 1, the slowest of 4"] * 2)

    def test_files_that_know_little_say_so(self):
        other = report_samples.fits()
        other["job"]["started_unix"] += 9000
        model = self.json_of(*self.write({"a.json": report_samples.fits(), "b.json": other}), QUICK)
        self.assertIn("The speed of both runs is not known", model["verdict"][0])
        self.assertIn("Nothing was moved", " ".join(model["sections"]["changes"]["missing"]))
        empty = {"format": "spillway-report", "version": 1}
        self.assertIn("The speed of both runs is not known", self.json_of(*self.write({"c.json": empty, "d.json": empty}), "--as", "runs")["verdict"][0])

    @NEEDS_LIBRARY
    def test_the_page_says_what_json_says_and_lies_beside_the_first(self):
        paths = self.write(report_samples.pair())
        run = report(*paths)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stdout.splitlines()[-1], self.path("before-to-after.html"))
        page = ReportPage(self.path("before-to-after.html"))
        self.assert_page_says(page, self.json_of(*paths))
        self.assertEqual(page.charts, ["parts", "moved"])

    @NEEDS_LIBRARY
    def test_names_stay_names(self):
        hostile = report_samples.hostile()
        hostile["job"]["started_unix"] += 9000
        paths = self.write({"a.json": report_samples.small(), "b.json": hostile})
        self.assertEqual(report(*paths, QUICK, "--output", self.path("x.html")).returncode, 0)
        page = ReportPage(self.path("x.html"))
        self.assertEqual([tag for tag, _ in page.elements if tag in ("img", "svg", "b")], [])
        self.assertNotIn("\x1b", report(*paths, QUICK, "--text").stdout)


class TextTest(Case):
    def test_text_has_every_sentence_figure_and_cell(self):
        pair, ranks = self.write(report_samples.pair()), self.write(report_samples.ranks())
        for files in (pair[:1], ranks, pair):
            model, run = self.json_of(*files, QUICK), report(*files, "--text", QUICK)
            self.assertEqual(run.returncode, 0, run.stderr)
            for sentence in model["verdict"]:
                self.assertIn(sentence + "\n", run.stdout)
            for section in model["sections"].values():
                for words in (*section["words"], *section["missing"], section["heading"]):
                    self.assertIn(words, run.stdout)
                for figure in section["figures"].values():
                    self.assertRegex(run.stdout, rf"(?m)^ +{figure['label']} +")
                    self.assertIn(figure.get("shown", figure.get("absent")), run.stdout)
                for table in section["tables"].values():
                    for row in table["rows"]:
                        for cell in row:
                            self.assertIn(cell["shown"], run.stdout)
        self.assertFalse([name for name in os.listdir(self.scratch.name) if name.endswith(".html")])

    def test_one_form_at_a_time(self):
        (path, _) = self.write(report_samples.pair())
        run = report(path, "--text", "--json")
        self.assertEqual((run.returncode, run.stdout), (2, ""))


class RefusalTest(Case):
    def test_three_runs(self):
        named = {f"{number}.json": report_samples.fits() for number in range(3)}
        for number, data in enumerate(named.values()):
            data["job"]["started_unix"] += 9000 * number
        paths = self.write(named)
        self.assert_refused(report(*paths, "--json"), "these are 3 runs", *paths, "--as ranks")
        self.assertIn("3 ranks of the job", self.json_of(*paths, "--as", "ranks", QUICK)["verdict"][0])

    def test_what_is_no_run_and_what_is_named_twice(self):
        (path, _) = self.write(report_samples.pair())
        os.mkdir(self.path("empty"))
        self.assert_refused(report(self.path("empty"), "--json"), self.path("empty") + ": has no data of a run; expected: ")
        self.assert_refused(report(path, path, "--json"), path + ": named twice")
        self.assert_refused(report(path, self.scratch.name, "--json"), "named twice")
        self.assert_refused(report(path, "--as", "runs", "--json"), "as=runs is invalid; expected: two files or folders")
        run = report(path, "--as", "jobs", "--json")
        self.assertEqual((run.returncode, run.stdout), (2, ""))

    def test_a_damaged_file_of_a_folder_is_not_passed_over(self):
        paths = self.write(report_samples.ranks())
        with open(paths[1], "r+b") as file:
            file.truncate(os.path.getsize(paths[1]) - 10)
        self.assert_refused(report(self.scratch.name, "--json"), paths[1] + ": damaged or cut off at byte")

    def test_no_data_is_written_over_and_a_chrome_trace_is_of_one_file(self):
        paths = self.write(report_samples.ranks())
        before = os.path.getsize(paths[2])
        self.assert_refused(report(*paths, "--json", "--output", paths[2]), "another path than that of the run's data")
        self.assert_refused(report(*paths, "--json", "--chrome-trace", self.path("t.json")), "one file of a run beside it")
        self.assertEqual(os.path.getsize(paths[2]), before)


if __name__ == "__main__":
    unittest.main()
