"""`spillway report`: the page says what --json says and what the file knows; other files are refused in words."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import report_samples  # noqa: E402
from report_helpers import LIBRARY, PROGRAM, ReportPage, figures, is_shown, report  # noqa: E402

SECTIONS = ["overview", "memory", "transfers", "iteration", "stalls", "costs", "bound", "what_if", "wear", "energy", "active", "run"]


class Case(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)

    def path(self, name):
        return os.path.join(self.scratch.name, name)

    def write(self, name, data):
        with open(self.path(name), "w", encoding="utf-8") as file:
            json.dump(data, file)
        return self.path(name)


class MetricsTest(Case):
    def test_every_figure_shown_is_its_value(self):
        for name, make in report_samples.SAMPLES.items():
            model = figures(self.write(name + ".json", make()), "--price-per-kwh", "0.3")
            pauses = ["pauses"] if name in ("paused", "hostile") else []
            self.assertEqual(sorted(model["sections"]), sorted(SECTIONS + pauses))
            for key, section in model["sections"].items():
                for figure in section["figures"].values():
                    if "value" in figure:
                        self.assertTrue(is_shown(figure["shown"], figure["value"], figure["unit"]), (name, key, figure))
                    else:
                        self.assertTrue(figure["absent"], (name, key, figure))
                for table in section["tables"].values():
                    for row in table["rows"]:
                        for cell, column in zip(row, table["columns"], strict=True):
                            if "value" in cell:
                                self.assertTrue(is_shown(cell["shown"], cell["value"], column["unit"]), (name, key, cell))

    def test_pauses_have_rates_and_those_that_last_end_with_the_run(self):
        section = figures(self.write("paused.json", report_samples.paused()), "--no-what-if")["sections"]["pauses"]
        self.assertEqual({key: figure["value"] for key, figure in section["figures"].items()},
                         {"pauses": 3, "paused_by_job_seconds": 38, "paused_from_outside_seconds": 20})  # fmt: skip
        shown = [[cell["shown"] for cell in row] for row in section["tables"]["pauses"]["rows"]]
        self.assertEqual([row[1:4] for row in shown], [["the job", "weights", "20.0 s"], ["the job", "cache", "18.0 s"], ["outside", "everything", "20.0 s"]])
        self.assertEqual([row[7] for row in shown], ["17.2 GB/s", "", "537 MB/s"])

    def test_kernels_that_reached_host_memory_are_named(self):
        data = report_samples.small()
        self.assertNotIn("reaching_kernels", figures(self.write("small.json", data), "--no-what-if")["sections"]["costs"]["tables"])
        data["reaching_kernels"] = [{"kernel": "add", "launches": 3, "bytes": 6 * 2**30, "most_bytes": 2**31}]
        costs = figures(self.write("reaching.json", data), "--no-what-if")["sections"]["costs"]
        self.assertEqual([[cell["shown"] for cell in row] for row in costs["tables"]["reaching_kernels"]["rows"]],
                         [["add", "3", "6.00 GiB", "2.00 GiB"]])  # fmt: skip
        self.assertTrue(any("A budget that is larger" in words for words in costs["words"]), costs["words"])

    def test_figures_are_the_files(self):
        data = report_samples.run()
        sections = figures(self.write("run.json", data), "--watts", "500", "--price-per-kwh", "0.4", "--ssd-tbw", "1200")["sections"]
        device = data["figures"]["devices"][0]

        def value(section, key):
            return sections[section]["figures"][key]["value"]

        self.assertEqual(value("overview", "seconds"), 600)
        self.assertEqual(value("overview", "budget_bytes"), data["capacity"]["gpu_bytes"])
        self.assertAlmostEqual(value("overview", "lost_percent"), 11.7)
        self.assertEqual(value("transfers", "spilled_bytes"), device["spilled_bytes"])
        self.assertIn("25.0 GB/s to the GPU and 24.0 GB/s from it alone, 15.0 GB/s and 22.0 GB/s while both",
                      " ".join(sections["transfers"]["words"]))  # fmt: skip
        self.assertIn("at once)", " ".join(sections["what_if"]["words"]))
        self.assertAlmostEqual(value("transfers", "in_time_percent"), 100 * device["in_time_bytes"] / device["fetched_bytes"])
        written = data["figures"]["disk_written_bytes"]
        self.assertAlmostEqual(value("wear", "ssd_days"), 2 * 1200e12 / (written / 600 * 86400))
        self.assertEqual(value("energy", "joules"), 300e3)
        self.assertAlmostEqual(value("energy", "money"), 300e3 / 3.6e6 * 0.4)
        self.assertAlmostEqual(value("energy", "lost_joules_per_gb"), 300e3 * 0.117 / (18 * 2**30 / 1e9))
        self.assertAlmostEqual(value("active", "active_percent"), 2.31)
        self.assertAlmostEqual(value("bound", "ideal_seconds"), (1 + 40 + 80) * 0.012)
        self.assertAlmostEqual(value("bound", "percent_of_bound"), 100 * value("bound", "bound_seconds") / 2.4)
        with_pauses = value("bound", "ideal_seconds") + value("bound", "own_pauses_seconds")
        self.assertGreater(with_pauses, value("bound", "bound_seconds"))
        self.assertAlmostEqual(value("overview", "percent_with_pauses"), 100 * with_pauses / 2.4)

    def test_other_machines_are_what_the_simulator_says(self):
        sections = figures(self.write("run.json", report_samples.run()))["sections"]
        for key, own in (("what_if_gpu", 20 * 2**30), ("what_if_host", 12 * 2**30), ("what_if_disk", 5.1e9)):
            rows = sections["what_if"]["tables"][key]["rows"]
            times = [row[1]["value"] for row in rows]
            self.assertGreater(times[0], times[-1], key)
            mine = next(row for row in rows if row[0]["value"] == own)
            self.assertEqual(mine[4]["shown"], "this run's")
            self.assertEqual(mine[1]["value"], sections["what_if"]["figures"]["simulated_seconds"]["value"])
            self.assertAlmostEqual(mine[2]["value"], 100)

    def test_the_verdict_names_the_loss_its_cause_and_the_help(self):
        verdict = " ".join(figures(self.write("run.json", report_samples.run()))["verdict"])
        for words in ("38.0 GiB at its peak", "20.0 GiB of GPU memory", "lost 11.7 % of the time", "It ran 10 min 00 s",
                      "most of it for bytes to come back (49.2 s)", "What would help most: a larger SPILLWAY_HOST_MEMORY (now 12.00 GiB)",
                      "(simulated)", "of the speed that no plan of Spillway can beat"):  # fmt: skip
            self.assertIn(words, verdict)
        verdict = " ".join(figures(self.write("fits.json", report_samples.fits()))["verdict"])
        self.assertIn("Nothing had to leave the GPU", verdict)
        self.assertNotIn("help", verdict)
        verdict = " ".join(figures(self.write("killed.json", report_samples.killed()))["verdict"])
        self.assertIn("it had not ended then, or it was killed", verdict)


    def test_wear_is_told_of_all_ranks_and_of_the_drive_that_is_spent_first(self):
        data = report_samples.run()
        for disk in data["capacity"]["disks"]:
            disk.update(drive="nvme0n1", ranks=4)
        wear = figures(self.write("run.json", data), "--ssd-tbw", "1200")["sections"]["wear"]
        written = data["figures"]["disk_written_bytes"]
        self.assertAlmostEqual(wear["figures"]["ssd_days"]["value"], 1200e12 / (4 * written / 600 * 86400))
        self.assertEqual(wear["figures"]["disk_written_bytes"]["value"], written)
        self.assertIn("for each of 1 drive,", " ".join(wear["words"]))
        self.assertIn("4 ranks of the job write to it", " ".join(wear["words"]))

    def test_each_directory_has_its_bytes_and_its_wear(self):
        wear = figures(self.write("run.json", report_samples.run()))["sections"]["wear"]
        self.assertEqual(list(wear["tables"]), ["directories"])
        rows = wear["tables"]["directories"]["rows"]
        self.assertEqual([row[0]["shown"] for row in rows], ["/nvme0/spill", "/nvme1/spill"])
        self.assertEqual(rows[0][1]["shown"], "io_uring, direct")
        self.assertEqual(rows[0][2]["value"], wear["figures"]["disk_written_bytes"]["value"] // 2)
        in_all = sum(row[4]["value"] for row in rows) * 1e12
        self.assertAlmostEqual(in_all / wear["figures"]["written_per_day_bytes"]["value"], 1)
        self.assertIn("No transfer failed", " ".join(wear["words"]))

    def test_trouble_of_a_drive_is_shown_where_there_was_any(self):
        wear = figures(self.write("run.json", report_samples.troubled()))["sections"]["wear"]
        self.assertNotIn("No transfer failed", " ".join(wear["words"]))
        self.assertEqual(wear["tables"]["directories"]["rows"][0][1]["shown"], "threads, buffered")
        rows = [[cell["shown"] for cell in row] for row in wear["tables"]["directory_trouble"]["rows"]]
        self.assertEqual(rows, [["/nvme0/spill", "3", "41", "1", "2", "1", "failed (write at 0 of 4096 bytes: errno 5)"],
                                ["/nvme1/spill", "0", "0", "0", "0", "2", "still closed: it does not answer"]])  # fmt: skip

    def test_a_file_without_directories_has_no_table_of_them(self):
        self.assertEqual(figures(self.write("x.json", report_samples.without_disk()))["sections"]["wear"]["tables"], {})
        data = report_samples.run()
        for directory in data["figures"]["directories"]:
            del directory["errors"]  # as of a version that did not count them
        wear = figures(self.write("older.json", data))["sections"]["wear"]
        self.assertNotIn("No transfer failed", " ".join(wear["words"]))
        self.assertIn("is not in the file", " ".join(wear["missing"]))
        del data["figures"]["directories"]
        self.assertEqual(figures(self.write("oldest.json", data))["sections"]["wear"]["tables"], {})

    def test_an_iteration_that_fits_is_not_given_more(self):
        data = report_samples.run()
        data["capacity"]["gpu_bytes"] = 100 * report_samples.GIB
        section = figures(self.write("run.json", data))["sections"]["what_if"]
        self.assertEqual(list(section["tables"]), ["what_if_gpu"])
        rows = section["tables"]["what_if_gpu"]["rows"]
        self.assertEqual(rows[-1][4]["shown"], "this run's")
        self.assertLess(rows[-2][0]["value"], 100 * report_samples.GIB)
        self.assertIn("fits the GPU", " ".join(section["missing"]))


class AbsentTest(Case):
    def test_what_the_file_does_not_know_is_said_and_is_no_zero(self):
        empty = {"format": "spillway-report", "version": 1}
        model = figures(self.write("empty.json", empty))
        for key, section in model["sections"].items():
            for name, figure in section["figures"].items():
                self.assertTrue("value" not in figure or name == "teraio_active_percent", (key, figure))
            self.assertEqual(section["charts"], [], key)
        text = json.dumps(model)
        for words in ("no power was read", "no iteration was recorded", "no samples of it", "no recorded iteration", "names none"):
            self.assertIn(words, text)

    def test_each_sample_says_what_it_lacks(self):
        for make, section, words in (
            (report_samples.without_iteration, "what_if", "no recorded iteration"),
            (report_samples.without_iteration, "iteration", "it needs a whole iteration"),
            (report_samples.without_iteration, "energy", "no power was read"),
            (report_samples.without_iteration, "active", "no iteration was recorded"),
            (report_samples.killed, "costs", "No blocks"),
            (report_samples.without_disk, "wear", "had no disk"),
            (report_samples.without_disk, "what_if", "the run had no disk"),
            (report_samples.without_disk, "transfers", "had no disk"),
            (report_samples.large, "transfers", "The first 3,412,885 moves are not in the file"),
            (report_samples.run, "energy", "no price was given"),
        ):  # fmt: skip
            missing = figures(self.write("x.json", make()))["sections"][section]["missing"]
            self.assertTrue(any(words in line for line in missing), (make.__name__, section, missing))

    def test_phases_that_are_a_guess_are_called_one(self):
        for guessed in (False, True):
            data = report_samples.run()
            for phase in data["phases"][:2]:
                phase.update({"guessed": True} if guessed else {})
            path = self.write("x.json", data)
            self.assertEqual(report(path, "--no-what-if", "--output", self.path("x.html")).returncode, 0)
            page = ReportPage(self.path("x.html"))
            self.assertEqual("where the backward pass begins is a guess" in page.text, guessed)
            specs = json.dumps([page.specs[key] for key in ("iteration", "iteration_memory") if key in page.specs])
            self.assertEqual(('"backward?"' in specs, '"backward"' in specs), (guessed, not guessed))
            self.assertNotIn('"optimizer?"', specs)

    def test_a_trace_that_cannot_be_read_costs_the_simulation_alone(self):
        data = report_samples.run()
        data["iteration"] = data["iteration"][:400]
        model = figures(self.write("x.json", data))
        self.assertIn("the recorded iteration cannot be read", model["sections"]["what_if"]["missing"][0])
        self.assertIn("value", model["sections"]["overview"]["figures"]["seconds"])

    def test_no_simulation_when_it_is_not_wanted(self):
        model = figures(self.write("x.json", report_samples.run()), "--no-what-if")
        self.assertEqual(model["sections"]["what_if"]["missing"], ["Not simulated: it was switched off (--no-what-if)."])
        self.assertIn("absent", model["sections"]["overview"]["figures"]["percent_with_pauses"])


class RefusalTest(Case):
    def assert_refused(self, path, *words, options=()):
        for more in (["--json"], ["--output", self.path("never.html")]):
            run = report(path, *more, *options)
            self.assertEqual((run.returncode, run.stdout), (2, ""), run.stderr)
            for word in words:
                self.assertIn(word, run.stderr)
            self.assertEqual(len(run.stderr.splitlines()), 1, run.stderr)
        self.assertFalse(os.path.exists(self.path("never.html")))

    @unittest.skipUnless(os.path.isfile(LIBRARY), "the drawing library is not there")
    def test_files_that_are_no_data_of_a_run(self):
        whole = json.dumps(report_samples.small())
        for length in (0, 1, 100, len(whole) // 2, len(whole) - 1):
            with open(self.path("cut.json"), "w", encoding="utf-8") as file:
                file.write(whole[:length])
            self.assert_refused(self.path("cut.json"), "cut.json: damaged or cut off at byte", f"of {length};", "expected: ")
        with open(self.path("noise.json"), "wb") as file:
            file.write(bytes(range(256)) * 40)
        self.assert_refused(self.path("noise.json"), "damaged")
        self.assert_refused(self.path("absent.json"), "absent.json: No such file")
        self.assert_refused(self.scratch.name, "cut.json: damaged")  # a folder stands for its files
        self.assert_refused(self.write("metrics.json", {"spilled_bytes": 3}), "no data of a run", "expected: ")

    @unittest.skipUnless(os.path.isfile(LIBRARY), "the drawing library is not there")
    def test_versions_and_wrong_fields(self):
        later = {**report_samples.fits(), "version": 2}
        self.assert_refused(self.write("x.json", later), "x.json: version 2; expected: 1", "written by a later version of Spillway")
        wrong = report_samples.small()
        wrong["moves"]["kind"][17] = 9
        self.assert_refused(self.write("x.json", wrong), "moves.kind[17] is 9; expected: a whole number below 5")
        wrong = report_samples.small()
        wrong["memory"]["host_bytes"].pop()
        self.assert_refused(self.write("x.json", wrong), "memory.host_bytes is a list of 225; expected: 226")

    @unittest.skipUnless(os.path.isfile(LIBRARY), "the drawing library is not there")
    def test_options(self):
        path = self.write("x.json", report_samples.fits())
        for option, value in (("--ssd-tbw", "0"), ("--ssd-tbw", "-1"), ("--ssd-tbw", "nan"), ("--watts", "0"), ("--watts", "inf"), ("--price-per-kwh", "-2")):
            self.assert_refused(path, option[2:] + "=", "is invalid; expected: ", options=(option, value))
        run = report(path, "--output", "/proc/none/x.html")
        self.assertEqual(run.returncode, 2)
        self.assertIn("/proc/none/x.html: cannot be written", run.stderr)


    @unittest.skipUnless(os.path.isfile(LIBRARY), "the drawing library is not there")
    def test_the_data_is_not_written_over(self):
        path = self.write("x.html", report_samples.fits())  # a name that a hurried hand gives
        before = os.path.getsize(path)
        os.symlink(path, self.path("link.html"))
        for options in (("--output", path), ("--output", os.path.join(self.scratch.name, ".", "x.html")), ("--output", self.path("link.html")),
                        ("--json", "--output", path), ("--chrome-trace", path)):  # fmt: skip
            run = report(path, *options)
            self.assertEqual((run.returncode, run.stdout, len(run.stderr.splitlines())), (2, "", 1), run.stderr)
            self.assertIn("is invalid; expected: another path than that of the run's data", run.stderr)
            self.assertEqual(os.path.getsize(path), before)
        run = report(path, "--output", self.path("y"), "--chrome-trace", self.path("y"))
        self.assertEqual(run.returncode, 2)
        self.assertIn("another path than that of the page", run.stderr)
        self.assertFalse(os.path.exists(self.path("y")))


@unittest.skipUnless(os.path.isfile(LIBRARY), "the drawing library is not there")
class PageTest(Case):
    def page(self, name, data):
        path = self.write(name + ".json", data)
        run = report(path)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stdout.splitlines()[-1], self.path(name + ".html"))
        return ReportPage(self.path(name + ".html"))

    def test_the_page_says_what_json_says(self):
        for name, make in report_samples.SAMPLES.items():
            page = self.page(name, make())
            model = figures(self.path(name + ".json"))
            self.assertEqual(page.data, model)
            shown, absent, charts = {}, [], []
            for section in model["sections"].values():
                shown.update({key: one["shown"] for key, one in section["figures"].items() if "value" in one})
                absent += [key for key, one in section["figures"].items() if "value" not in one]
                charts += section["charts"]
                for key, table in section["tables"].items():
                    texts = [[cell["shown"] for cell in row] for row in table["rows"]]
                    self.assertEqual([[one.replace("\x00", "�").replace("\x1b", "�") for one in row] for row in texts], page.tables[key][1:])
                for line in section["missing"]:
                    self.assertIn(line, page.text)
            self.assertEqual((page.figures, sorted(page.absent), sorted(page.charts)), (shown, sorted(absent), sorted(charts)))
            self.assertEqual(set(page.specs), set(charts))

    def test_names_stay_names(self):
        page = self.page("hostile", report_samples.hostile())
        plain = self.page("small", report_samples.small())
        self.assertEqual([tag for tag, _ in page.elements if tag in ("script", "img", "svg", "title", "b", "style")],
                         [tag for tag, _ in plain.elements if tag in ("script", "img", "svg", "title", "b", "style")])  # fmt: skip
        for _, attributes in page.elements:
            self.assertFalse([name for name in attributes if name.startswith("on")], attributes)
        self.assertIn("</script><script>alert(1)</script>", page.text)

    def test_the_page_loads_nothing(self):
        page = self.page("run", report_samples.run())
        for tag, attributes in page.elements:
            for name in ("src", "href", "data", "action", "srcset"):
                self.assertIn(attributes.get(name, "data:,"), ("data:,",), (tag, attributes))
        policy = next(one["content"] for tag, one in page.elements if one.get("http-equiv") == "Content-Security-Policy")
        self.assertIn("default-src 'none'", policy)
        self.assertNotIn("http", policy)

    def test_ten_to_the_five_moves_are_drawn_small(self):
        path = self.write("large.json", report_samples.large())
        begin = time.monotonic()
        self.assertEqual(report(path).returncode, 0)
        self.assertLess(time.monotonic() - begin, 60)
        self.assertLess(os.path.getsize(self.path("large.html")), 6_000_000)
        self.assertLess(os.path.getsize(self.path("large.html")) - os.path.getsize(LIBRARY), 1_000_000)
        self.assertIn("sizes", ReportPage(self.path("large.html")).charts)

    def test_licences_are_in_the_page(self):
        self.page("fits", report_samples.fits())
        with open(self.path("fits.html"), encoding="utf-8") as file:
            self.assertIn("University of Washington Interactive Data Lab", file.read())

    def test_a_chrome_trace_beside_it(self):
        path = self.write("x.json", report_samples.small())
        self.assertEqual(report(path, "--chrome-trace", self.path("trace.json")).returncode, 0)
        with open(self.path("trace.json"), encoding="utf-8") as file:
            self.assertGreater(len(json.load(file)["traceEvents"]), 600)

    def test_a_page_is_replaced_as_a_whole(self):
        path = self.write("x.json", report_samples.fits())
        with open(self.path("old.html"), "w", encoding="utf-8") as file:
            file.write("before")
        os.symlink("old.html", self.path("x.html"))

        def full_disk():  # a file may have so many bytes
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))

        run = subprocess.run([PROGRAM, "report", path], capture_output=True, text=True, check=False, preexec_fn=full_disk, restore_signals=False)
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn("x.html: cannot be written: ", run.stderr)
        with open(self.path("old.html"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "before")
        self.assertEqual(sorted(os.listdir(self.scratch.name)), ["old.html", "x.html", "x.json"])
        self.assertEqual(report(path).returncode, 0)
        self.assertTrue(os.path.islink(self.path("x.html")))
        self.assertGreater(os.path.getsize(self.path("old.html")), 100_000)

    def test_a_page_goes_through_a_pipe(self):
        path = self.write("x.json", report_samples.fits())
        run = report(path, "--json", "--output", "/dev/stdout")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("<!doctype html>", run.stdout.lower())

    def test_both_forms_at_once(self):
        path = self.write("x.json", report_samples.fits())
        run = report(path, "--json", "--output", self.path("y.html"))
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(ReportPage(self.path("y.html")).data, json.loads(run.stdout))


class WithoutLibraryTest(Case):
    def test_it_says_what_is_missing(self):
        os.mkdir(self.path("bin"))
        program = shutil.copy(PROGRAM, self.path("bin"))
        path = self.write("x.json", report_samples.fits())
        run = report(path, program=program)
        self.assertEqual((run.returncode, run.stdout), (2, ""))
        self.assertIn(self.path("lib") + "/vega.js is missing", run.stderr)
        self.assertIn("fetch_vega.py", run.stderr)
        self.assertFalse(os.path.exists(self.path("x.html")))
        self.assertEqual(report(path, "--json", program=program).returncode, 0)


if __name__ == "__main__":
    unittest.main()
