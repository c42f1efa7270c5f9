"""The means of a GPU session, without a device: a hang is cut and kept, rows are written as they end."""

import argparse
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import warnings
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent))
import host_memory
import visit_facts
import visit_rows
import visit_watch
from wait_until import wait_until
from write_profile_test import DRIVER, block_row

HANGS = """
import signal, sys, threading
def lies_in_wait():
    signal.pause()
threading.Thread(target=lies_in_wait, name="waiter", daemon=True).start()
print("has begun", flush=True)
threading.Event().wait()
"""
HANGING = ("tail", "-f", "/dev/null")
HANDLES = visit_facts.Cases("wrong-kind handles", "handles")


class Quiet(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        out = contextlib.redirect_stdout(io.StringIO())
        out.__enter__()
        self.addCleanup(out.__exit__, None, None, None)

    def table(self, minutes=10):
        return visit_rows.Rows("first", {"machine": {}}, (self.folder,), self.folder, minutes)


class WatchTest(Quiet):
    def test_a_hang_is_cut_and_its_stacks_are_kept(self):
        ended = visit_watch.run([sys.executable, "-c", HANGS], self.folder / "hang.log", 2)
        self.assertTrue(ended.cut)
        self.assertLess(ended.seconds, 15 + visit_watch.STACKS)
        debugger = visit_watch.find_debugger()
        self.assertIn(f"by {Path(debugger).name}:" if debugger else "no native stacks", ended.text)
        # Both threads wait in the C library.
        if shutil.which("gdb") and "ptrace: Operation not permitted" not in ended.text:
            self.assertRegex(ended.text, r"#\d+ .*(pause|select|poll|futex|sem_)")
        for words in ("has begun", "cut off", "thread ", "waits in", "lies_in_wait", "Current thread"):
            self.assertIn(words, ended.text)

    def test_the_debugger_of_a_cuda_toolkit_is_found(self):
        bare, toolkits = self.folder / "bare", self.folder / "toolkits"
        for folder in (bare, toolkits / "cuda-12.4" / "bin", toolkits / "cuda-13.0" / "bin", self.folder / "home" / "bin"):
            folder.mkdir(parents=True)
        for name in ("timeout", "cat", "sh"):
            (bare / name).symlink_to(shutil.which(name))
        with mock.patch.object(visit_watch, "TOOLKITS", toolkits), mock.patch.dict("os.environ", {"PATH": str(bare)}):
            for variable in ("CUDA_HOME", "CUDA_PATH"):
                visit_watch.os.environ.pop(variable, None)
            self.assertIsNone(visit_watch.find_debugger())
            self.assertIn("none of gdb, eu-stack, cuda-gdb", visit_watch.native_stacks(1, 5)[0])
            for folder, words in ((toolkits / "cuda-12.4" / "bin", "of 12.4"), (toolkits / "cuda-13.0" / "bin", "of 13.0"),
                                  (self.folder / "home" / "bin", "of the home")):  # fmt: skip
                (folder / "cuda-gdb").write_text(f"#!/bin/sh\necho {words}: $*\n")
                (folder / "cuda-gdb").chmod(0o755)
                if words == "of the home":
                    visit_watch.os.environ["CUDA_HOME"] = str(self.folder / "home")
                child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, env={"PATH": "/bin:/usr/bin"})
                head, text = visit_watch.native_stacks(child.pid, 5)
                child.communicate()
                self.assertEqual(head, f"process {child.pid}, by cuda-gdb:")
                self.assertTrue(text.startswith(f"{words}: --batch") and text.endswith(f"-p {child.pid}"), text)

    def test_a_limit_grows_with_what_is_done(self):
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        given = []

        def more(*seconds):
            """The seconds, one after the other; with the last the command may end."""
            given.append(seconds[len(given)])
            if len(given) == len(seconds):
                fifo.write_text("")
            return given[-1]

        ended = visit_watch.run(["cat", fifo], self.folder / "a.log", 0.1, more=lambda: more(0.1, 0.3, 60))
        self.assertEqual((ended.cut, ended.status, given), (False, 0, [0.1, 0.3, 60]))
        given.clear()
        ended = visit_watch.run(HANGING, self.folder / "a.log", 0.1, more=lambda: more(0.1, 0.2, 0.2, 60))
        self.assertEqual((ended.cut, ended.out_of_time, given), (True, False, [0.1, 0.2, 0.2]))
        ended = visit_watch.run(HANGING, self.folder / "a.log", 0.5, left=2.5, more=lambda: 50)
        self.assertEqual((ended.cut, ended.out_of_time), (True, True), "the session's end comes before the limit as it has grown")

    def test_children_are_cut_too(self):
        command = ["/bin/sh", "-c", f"'{sys.executable}' -c '{HANGS}'; true"]
        ended = visit_watch.run(command, self.folder / "hang.log", 5)
        self.assertTrue(ended.cut)
        self.assertIn("lies_in_wait", ended.text)

    def test_what_ends_by_itself_is_not_cut(self):
        ended = visit_watch.run([sys.executable, "-c", "print('done'); raise SystemExit(3)"], self.folder / "end.log", 30)
        self.assertEqual((ended.cut, ended.status, ended.text), (False, 3, "done"))
        self.assertFalse(ended.out_of_time)

    def test_what_the_end_of_the_session_cuts_off_is_told_from_a_hang(self):
        command = [sys.executable, "-c", "import signal; print('begun', flush=True); signal.pause()"]
        ended = visit_watch.run(command, self.folder / "a.log", 50, left=2.5)
        self.assertEqual((ended.cut, ended.out_of_time), (True, True))
        self.assertIn("begun", ended.text)
        ended = visit_watch.run(command, self.folder / "a.log", 1, left=50)
        self.assertEqual((ended.cut, ended.out_of_time), (True, False))
        ended = visit_watch.run(command, self.folder / "a.log", 50, left=1)
        self.assertEqual((ended.out_of_time, ended.text, ended.seconds), (True, "", 0))
        self.assertNotIn("begun\n", (self.folder / "a.log").read_text(), "nothing was started")

    def test_what_outlives_its_kill_is_left_behind(self):
        warnings.simplefilter("ignore", ResourceWarning)  # of children that nobody has waited for

        def never(child, timeout=None):
            self.assertIsNotNone(timeout, "a wait without an end")
            raise subprocess.TimeoutExpired(child.args, timeout)

        with mock.patch.object(subprocess.Popen, "wait", never):
            ended = visit_watch.run(HANGING, self.folder / "a.log", 1)
            visit_watch.end(subprocess.Popen(HANGING), 1)
        self.assertEqual((ended.cut, ended.status), (True, -9))


    def test_the_devices_files_are_open_meanwhile(self):
        files = [self.folder / "nvidia0", self.folder / "nvidiactl"]
        for file in files:
            file.write_text("")
        log = self.folder / "held.log"
        with visit_watch.held([str(file) for file in [files[0], self.folder / "none" / "none", files[1]]], log) as holder:
            self.assertTrue(wait_until(lambda: "held" in log.read_text()))
            opened = {str(Path(link).resolve()) for link in Path(f"/proc/{holder.pid}/fd").iterdir()}
            self.assertLessEqual({str(file.resolve()) for file in files}, opened)
        self.assertIsNotNone(holder.returncode)
        self.assertIn("No such file", log.read_text())
        with visit_watch.held([], log) as holder:
            self.assertIsNone(holder)


class RowsTest(Quiet):
    def test_each_row_is_written_as_it_ends(self):
        table = self.table()
        for number, status in enumerate(visit_rows.STATUSES, 1):
            table.add(f"row {number}", status, "words", 1.25, bytes=7)
            self.assertEqual(len(json.loads((self.folder / "first.json").read_text())["rows"]), number)
        with self.assertRaises(ValueError):
            table.add("row", "splendid")

    def test_the_exit_status_says_what_was_wrong(self):
        table = self.table()
        table.add("a", visit_rows.PASSED)
        table.add("b", visit_rows.NEEDS_HARDWARE)
        table.add("c", visit_rows.MISSING)
        self.assertEqual(table.finish(), 0)
        table.add("d", visit_rows.LEFT_OUT)
        self.assertEqual(table.finish(), 3)
        table.add("e", visit_rows.FAILED)
        self.assertEqual(table.finish(), 1)

    def test_an_error_of_the_sessions_own_is_a_failed_row(self):
        table = self.table()
        with table.guarded("a row"):
            raise IndexError("no such word")
        with table.guarded("another"):
            table.add("another", visit_rows.PASSED)
        self.assertEqual([row["status"] for row in table.rows], [visit_rows.FAILED, visit_rows.PASSED])
        self.assertIn("IndexError: no such word", table.rows[0]["words"])
        self.assertIn("raise IndexError", "\n".join(table.rows[0]["traceback"]))
        with self.assertRaises(SystemExit), table.guarded("told to stop"):
            raise SystemExit("told to stop")

    def test_a_report_that_cannot_be_written_ends_nothing(self):
        table = self.table()
        with mock.patch.object(visit_rows.os, "replace", side_effect=OSError(28, "No space left on device")), \
                contextlib.redirect_stderr(io.StringIO()) as said:  # fmt: skip
            table.add("a", visit_rows.PASSED, figures={"path": self.folder})
        self.assertIn("No space left", said.getvalue())
        table.pack()
        with tarfile.open(self.folder / "first.tar.gz") as archive:
            self.assertEqual([row["row"] for row in json.load(archive.extractfile("report.json"))["rows"]], ["a"])

    def test_a_page_is_written_with_the_rows_and_never_stops_them(self):
        def page(head, rows):
            return f"{head['machine']} {1 / len(rows)}"

        table = visit_rows.Rows("table", {"machine": "a GPU"}, (self.folder,), self.folder, 1, page)
        self.assertIn("ZeroDivisionError", (self.folder / "table.md").read_text())
        table.add("a", visit_rows.QUOTED)
        self.assertEqual((self.folder / "table.md").read_text(), "a GPU 1.0")
        self.assertEqual(table.finish(), 0)

    def test_report_and_archive_lie_in_each_folder(self):
        folders = (self.folder / "work", self.folder / "brought" / "home")
        visit_rows.Rows("second", {}, folders, self.folder, 1).pack()
        for folder in folders:
            self.assertEqual({path.name for path in folder.iterdir()}, {"second.json", "second.tar.gz"})

    def test_what_ends_the_session_leaves_an_archive(self):
        table = self.table()
        table.add("a", visit_rows.PASSED)
        self.assertFalse((self.folder / "first.tar.gz").exists())
        with mock.patch.object(visit_rows, "PACK_EVERY", 0):
            table.add("b", visit_rows.PASSED)
        self.assertTrue((self.folder / "first.tar.gz").exists())

    def test_the_archive_holds_the_report_and_the_ends_of_logs(self):
        table = self.table()
        (self.folder / "long.log").write_bytes(b"a" * visit_rows.LARGEST_LOG + b"the end")
        table.pack()
        with tarfile.open(self.folder / "first.tar.gz") as archive:
            self.assertIn("report.json", archive.getnames())
            content = archive.extractfile("long.log").read()
        self.assertTrue(content.endswith(b"the end"))
        self.assertEqual(len(content), visit_rows.LARGEST_LOG)

    def test_the_archive_holds_json_whole_or_not_at_all(self):
        table = self.table()
        whole = json.dumps(["a" * visit_rows.LARGEST_LOG])
        (self.folder / "figures.json").write_text(whole)
        (self.folder / "z.json").write_bytes(b"1" * (visit_rows.LARGEST_ARCHIVE + 1))
        for number in range(80):  # newer, and more than there is space for
            (self.folder / f"{number}.log").write_bytes(b"a" * visit_rows.LARGEST_LOG)
        table.pack()
        with tarfile.open(self.folder / "first.tar.gz") as archive:
            self.assertEqual(archive.extractfile("figures.json").read().decode(), whole)
            self.assertNotIn("z.json", archive.getnames())
            self.assertLessEqual(sum(member.size for member in archive), visit_rows.LARGEST_ARCHIVE + 10_000)


class HostMemoryTest(Quiet):
    def machine(self, most):
        """One that begins with 2 GiB and gets 1 GiB more when less than 2 GiB is left, up to `most`."""
        state = {"total": 2 * host_memory.GIB, "taken": 0}

        def read():
            available = state["total"] - state["taken"]
            if available <= 2 * host_memory.GIB and state["total"] < most:
                state["total"] += host_memory.GIB
            return state["total"], available

        def take():
            state["taken"] += host_memory.PIECE
            self.assertLessEqual(state["taken"], state["total"] - host_memory.SPARE)

        return read, take

    def test_memory_that_grows_is_taken(self):
        self.assertEqual(host_memory.touch(16 * host_memory.GIB, *self.machine(64 * host_memory.GIB)), 16 * host_memory.GIB)

    def test_a_machine_that_does_not_grow_keeps_some(self):
        with mock.patch.object(host_memory, "PATIENCE", 0.1):
            taken = host_memory.touch(16 * host_memory.GIB, *self.machine(4 * host_memory.GIB))
        self.assertEqual(taken, 3 * host_memory.GIB - host_memory.PIECE)

    def test_enough_is_enough(self):
        with mock.patch.object(host_memory, "figures", lambda: (64 * host_memory.GIB, 1)):
            self.assertIsNone(host_memory.grow())
        with mock.patch.object(host_memory, "figures", lambda: (0, 0)):
            self.assertIsNone(host_memory.grow())


class FactsTest(Quiet):
    def program(self, device):
        args = argparse.Namespace(device=device, work=self.folder, build=self.folder, spill=None, size="small")
        return visit_facts.Program(args, self.table())

    def test_what_the_end_of_the_session_cuts_off_is_left_out(self):
        late = visit_watch.Ended(-9, 1.0, "", True, True)
        self.assertEqual(self.fact("gpu", late, None)["status"], visit_rows.LEFT_OUT)
        program = self.program("gpu")
        program.judged("program", late)
        with mock.patch.object(program, "run", lambda *_, **__: (late, None)):
            HANDLES.ask(program)
            visit_facts.driver_calls(program)
        self.assertEqual([row["status"] for row in program.table.rows], [visit_rows.LEFT_OUT] * 3)

    def test_answers_before_the_end_of_the_session_are_kept(self):
        program = self.program("gpu")
        ends = iter([(visit_watch.Ended(0, 1.0, "a of null\nb of null"), None), (visit_watch.Ended(0, 1.0, ""), {"result": 1}),
                     (visit_watch.Ended(-9, 1.0, "", True, True), None)])  # fmt: skip
        with mock.patch.object(program, "run", lambda *_, **__: next(ends)):
            HANDLES.ask(program)
        row = program.table.rows[0]
        self.assertEqual((row["status"], row["figures"]), (visit_rows.LEFT_OUT, {"a of null": {"result": 1}}))

    def test_a_question_that_ends_its_process_is_answered(self):
        good, crash = visit_watch.Ended(0, 1.0, ""), visit_watch.Ended(-11, 1.0, "last words")
        for device, status in (("gpu", visit_rows.MEASURED), ("simcuda", visit_rows.NEEDS_HARDWARE)):
            program = self.program(device)
            ends = iter([(good, {"second_map": 0}), (crash, None)])
            with mock.patch.object(program, "run", lambda *_, ends=ends, **__: next(ends)):
                visit_facts.Cases("row", "two-mappings", ("read", "write"), visit_facts.mapping_words).ask(program)
            row = program.table.rows[0]
            self.assertEqual(row["status"], status)
            self.assertIn({"read": {"second_map": 0}, "write": {"ended": -11, "cut": False}}, row.values())
        for cases in (("read",), None):
            with mock.patch.object(program, "run", lambda *_, **__: (visit_watch.Ended(-11, 1.0, ""), None)):
                visit_facts.Cases("row", "two-mappings", cases).ask(program)
            self.assertEqual(program.table.rows[-1]["status"], visit_rows.FAILED)

    def test_figures_of_another_form_are_kept(self):
        for figures in ({"rows": []}, {"rows": [{"bytes": None}]}, {}):
            program = self.program("gpu")
            with mock.patch.object(program, "run", lambda *_, figures=figures, **__: (visit_watch.Ended(0, 1.0, ""), figures)):
                for words in (visit_facts.copy_words, visit_facts.latency_words, visit_facts.loading_words):
                    program.fact("row", "copies", words=words)
            self.assertEqual([(row["status"], row["figures"]) for row in program.table.rows], [(visit_rows.MEASURED, figures)] * 3)
            self.assertIn("another form", program.table.rows[0]["words"])

    def test_a_line_of_figures_that_was_cut_off_is_none(self):
        program = self.program("gpu")
        ended = visit_watch.Ended(-9, 1.0, 'RESULT {"a": ')
        with mock.patch.object(visit_watch, "run", lambda *_, **__: ended):
            self.assertEqual(program.run("a", "gpu_facts"), (ended, None))

    def test_settings_of_the_machine_stay_and_the_self_test_spills_where_the_session_does(self):
        mine = {"SPILLWAY_DISK_RESERVE": "1GiB", "SPILLWAY_GPU_TEST_DIR": "/there", "SPILLWAY_TRUST": "strict"}
        program = self.program("gpu")
        with mock.patch.dict("os.environ", mine):
            kept = program.command("gpu_self_test")[1]
            program.args.spill = Path("/nvme0")
            spilling = program.command("gpu_self_test")[1]
        self.assertEqual({key: kept.get(key) for key in mine}, {**mine, "SPILLWAY_TRUST": None})
        self.assertEqual(spilling["SPILLWAY_GPU_TEST_DIR"], "/nvme0")

    def test_an_answer_of_another_form_is_kept(self):
        program = self.program("gpu")
        with mock.patch.object(program, "run", lambda *_, **__: (visit_watch.Ended(0, 1.0, ""), {"missing": "a call"})):
            visit_facts.Cases("row", "retain", ("",), visit_facts.retained_words).ask(program)
        self.assertEqual(program.table.rows[0]["status"], visit_rows.MEASURED)
        self.assertEqual(program.table.rows[0]["figures"], {"retain": {"missing": "a call"}})

    def test_the_machines_costs_are_brought_home(self):
        program = self.program("gpu")
        program.table.head["machine"] = {"platform": "a platform", "nvidia_smi": "a GPU"}
        visit_facts.hardware_profile(program, {**DRIVER, "device": "NVIDIA H100 PCIe"})
        profile = json.loads((self.folder / "hardware-profile.json").read_text())
        self.assertEqual(profile["calls"]["cuLaunchKernel"]["call_us"]["source"], "measured: NVIDIA H100 PCIe; a platform; a GPU")
        self.assertIn("the profile h100", profile["calls"]["cuModuleLoadData"]["call_us"]["assumed"])
        self.assertEqual(program.table.rows[0]["status"], visit_rows.MEASURED)

    def test_calls_of_the_driver_are_told_beside_a_kernel(self):
        beside = {**DRIVER, "blocks": [*DRIVER["blocks"], block_row(64, False, 7)]}
        self.assertIn("us idle/beside a kernel: create 5/5, map 81/74, set_access 81/74, unmap 81/74, release 81/74", visit_facts.driver_words(beside))

    def test_a_process_that_never_fills_the_gpu_is_not_waited_for(self):
        program = self.program("gpu")
        for script, taken, seconds in (("import signal; signal.pause()", False, 1.5),
                                       ("print('taken 7', flush=True); open(0).read()", True, 60)):  # fmt: skip
            command = ([sys.executable, "-c", script], None)
            with mock.patch.object(program, "command", lambda *_, command=command: command), \
                    mock.patch.object(visit_facts, "FILLING", seconds), visit_facts.filled(program) as found:  # fmt: skip
                self.assertEqual(found, taken)

    def fact(self, device, ended, figures):
        program = self.program(device)
        with mock.patch.object(program, "run", lambda *_, **__: (ended, figures)):
            program.fact("fact", "copies", words=visit_facts.copy_words)
        return program.table.rows[0]

    def test_figures_of_the_stand_in_do_not_pass(self):
        good = visit_watch.Ended(0, 1.0, "")
        self.assertEqual(self.fact("simcuda", good, {"a": 1})["status"], visit_rows.NEEDS_HARDWARE)
        self.assertEqual(self.fact("gpu", good, {"a": 1})["status"], visit_rows.MEASURED)

    def test_a_program_that_fails_is_a_problem(self):
        row = self.fact("gpu", visit_watch.Ended(-11, 1.0, "last words"), None)
        self.assertEqual(row["status"], visit_rows.FAILED)
        self.assertIn("last words", row["words"])


if __name__ == "__main__":
    unittest.main()
