"""`spillway run --report FILE.html -- COMMAND`: the command's data becomes a page, its exit status stays its own."""

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import report_samples  # noqa: E402
from report_helpers import BUILD, LIBRARY, PROGRAM, ReportPage  # noqa: E402

FAKES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "fakes")
sys.path.append(FAKES)

from wait_until import wait_until  # noqa: E402  (the path comes first)

# A command that writes what SPILLWAY_REPORT asks for, as a job's process does, and then does what it is told.
JOB = """
import json, os, shutil, sys, signal
def write_as(path, **job):
    with open(sys.argv[1]) as sample, open(path, "w") as file:
        data = json.load(sample)
        data["job"].update(job)
        json.dump(data, file)
os.chdir("/")
path = os.environ["SPILLWAY_REPORT"].replace("%p", str(os.getpid())).replace("%r", "0")
if sys.argv[1] != "none":
    shutil.copy(sys.argv[1], path)
    os.utime(path)
signals, write = os.pipe()
os.set_blocking(write, False)
signal.set_wakeup_fd(write)  # so that a signal is not missed that comes just before a read of the other end
exec(sys.argv[2])
"""


# Counts what SIGINT brings until its parent, which gets that signal as well, has woken for it and waits again.
COUNTS = r"""
import re
sys.path.append({fakes!r})
from wait_until import wait_until
count = []
signal.signal(signal.SIGINT, lambda *_: count.append(1))
def parent():
    text = open(f"/proc/{{os.getppid()}}/status").read()
    return re.search(r"^State:\s+(\S)", text, re.M)[1] == "S", int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.M)[1])
assert wait_until(lambda: parent()[0])
before = parent()[1]
open({ready!r}, "w").close()
assert wait_until(lambda: count and parent()[0] and parent()[1] > before)
sys.exit(40 + len(count))
"""


class ReportRunTest(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        os.mkdir(self.path("data"))
        self.sample = report_samples.write(self.path("data"), "fits")

    def path(self, name):
        return os.path.join(self.scratch.name, name)

    def command(self, page, ending, sample=None):
        return [PROGRAM, "run", "--report", self.path(page), "--", sys.executable, "-c", JOB, sample or self.sample, ending]

    def run_job(self, page, ending, sample=None):
        return subprocess.run(self.command(page, ending, sample), capture_output=True, text=True, check=False, timeout=100)

    def test_the_page_is_made_and_the_status_passed_on(self):
        for status in (0, 3, 255):
            run = self.run_job("x.html", f"sys.exit({status})")
            self.assertEqual(run.returncode, status, run.stderr)
            self.assertIn("spillway: report: " + self.path("x.html"), run.stderr)
            self.assertIn("Nothing had to leave the GPU", ReportPage(self.path("x.html")).text)
            self.assertTrue(os.path.isfile(self.path("x.json")))
            os.remove(self.path("x.html"))

    def test_a_page_that_cannot_be_written_is_refused_by_its_own_name(self):
        run = self.run_job("no/folder/x.html", "")
        self.assertEqual(run.returncode, 2)
        page = self.path("no/folder/x.html")
        self.assertIn(f"--report={page} is invalid; expected: the path of a file that can be written ({page}: No such", run.stderr)
        self.assertNotIn(".json", run.stderr)

    def test_a_signal_that_ends_the_command_is_passed_on(self):
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV):
            run = self.run_job("x.html", f"os.kill(os.getpid(), {int(number)})")
            self.assertEqual(run.returncode, -number, run.stderr)
            self.assertTrue(os.path.isfile(self.path("x.html")))
            os.remove(self.path("x.html"))

    def is_ready(self, job):
        wait_until(lambda: os.path.exists(self.path("ready")) or job.poll() is not None)
        return os.path.exists(self.path("ready"))

    def test_a_signal_to_us_reaches_the_command(self):
        ending = f"open({self.path('ready')!r}, 'w').close()\nos.read(signals, 1)"
        with subprocess.Popen(self.command("x.html", ending), stderr=subprocess.PIPE, text=True) as job:
            self.assertTrue(self.is_ready(job))
            job.send_signal(signal.SIGTERM)
            words = job.communicate(timeout=60)[1]
        self.assertEqual(job.returncode, -signal.SIGTERM)
        self.assertIn("spillway: report: ", words)

    def send_when_ready(self, number, ending):
        """The signal to our process alone, as kill does; the command's exit status and our words."""
        code = f"open({self.path('ready')!r}, 'w').close()\nos.read(signals, 1)"
        with subprocess.Popen(self.command("x.html", ending + code), stderr=subprocess.PIPE, text=True) as job:
            self.assertTrue(self.is_ready(job))
            job.send_signal(number)
            words = job.communicate(timeout=60)[1]
        os.remove(self.path("ready"))
        return job.returncode, words

    def test_every_signal_that_a_process_sends_us_reaches_the_command(self):
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGALRM, signal.SIGXCPU, signal.SIGVTALRM,
                       signal.SIGPROF, signal.SIGPWR, signal.SIGXFSZ):  # fmt: skip
            handler = f"signal.signal({int(number)}, lambda *_: os._exit(40))\n"
            status, words = self.send_when_ready(number, handler)
            self.assertEqual(status, 40, f"{number!r}: {words}")
            self.assertIn("spillway: report: ", words)

    def test_a_terminal_reaches_the_command_once(self):
        """Ctrl-C goes to the foreground group, in which the command is: a second one would end its clean-up."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(PROGRAM, self.command("x.html", COUNTS.format(fakes=FAKES, ready=self.path("ready"))))
        self.assertTrue(wait_until(lambda: os.path.exists(self.path("ready"))))
        os.write(terminal, b"\x03")
        try:
            while os.read(terminal, 4096):
                pass
        except OSError:  # the terminal's way to say that nobody is there any more
            pass
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 41)

    def test_the_command_ends_when_we_are_killed(self):
        ending = f"signal.signal(signal.SIGTERM, lambda *_: (open({self.path('ended')!r}, 'w').close(), os._exit(0)))\n"
        self.assertEqual(self.send_when_ready(signal.SIGKILL, ending)[0], -signal.SIGKILL)
        self.assertTrue(wait_until(lambda: os.path.exists(self.path("ended"))))

    def test_each_process_has_its_page(self):
        ending = f"os.fork()\npid = os.getpid()\nwrite_as({self.path('')!r} + f'x-0-{{pid}}.json', pid=pid, rank=pid)\nos.wait() if path.endswith(f'{{pid}}.json') else None"
        run = self.run_job("x-%r-%p.html", ending)
        self.assertEqual(run.returncode, 0, run.stderr)
        pages = [name for name in os.listdir(self.scratch.name) if name.endswith(".html")]
        self.assertEqual(len(pages), 3, run.stderr)  # and one of both
        self.assertIn("x-ranks-all.html", pages)

    def test_ranks_that_were_given_one_path_have_a_page_each_and_one_of_all(self):
        run = self.run_job("x.html", f"write_as({self.path('x.rank1.json')!r}, rank=1, pid=2, command=['python', 'train.py', '--local_rank=1'])")
        self.assertEqual(run.returncode, 0, run.stderr)
        pages = sorted(name for name in os.listdir(self.scratch.name) if name.endswith(".html"))
        self.assertEqual(pages, ["x.html", "x.rank1.html", "x.ranks.html"], run.stderr)
        with open(self.path("x.ranks.html"), encoding="utf-8") as page:
            self.assertIn("2 ranks of the job", page.read())

    def test_jobs_one_after_another_have_no_page_of_all(self):
        later = report_samples.fits()["job"]["started_unix"] + 1e6
        run = self.run_job("x-%p.html", f"write_as({self.path('x-77.json')!r}, pid=77, started_unix={later})")
        self.assertEqual(run.returncode, 0, run.stderr)
        pages = [name for name in os.listdir(self.scratch.name) if name.endswith(".html")]
        self.assertEqual(len(pages), 2, run.stderr)
        self.assertIn("x-77.html", pages)

    def test_a_rank_that_was_started_by_itself_makes_its_own_page(self):
        """srun, mpirun: each rank has a parent of ours, and all of them write to one folder."""
        data = report_samples.fits()
        data["job"].update(rank=1, host=socket.gethostname())
        with open(self.path("one"), "w", encoding="utf-8") as file:
            json.dump(data, file)
        others = "".join(f"shutil.copy(sys.argv[1], {self.path(name)!r})\n" for name in ("x.json", "x.rank1.json", "x.rank2.json", "y-0.json", "y-1.json"))
        data["job"]["rank"] = 0
        others += f"json = {json.dumps(json.dumps(data))}\nopen({self.path('z-77.json')!r}, 'w').write(json)\n"
        ranks = {**os.environ, "SLURM_STEP_ID": "0", "SLURM_LOCALID": "1", "SLURM_NODEID": "0", "SLURM_STEP_TASKS_PER_NODE": "4"}
        for page, expected in (("x.html", "x.rank1.html"), ("y-%r.html", "y-1.html"), ("z-%p.html", None), ("w-%h.html", None)):
            command = self.command(page, others + f"shutil.copy(sys.argv[1], {self.path('w-' + socket.gethostname() + '.rank1.json')!r})", self.path("one"))
            run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, env=ranks)
            self.assertEqual(run.returncode, 0, run.stderr)
            pages = [name for name in os.listdir(self.scratch.name) if name.endswith(".html")]
            self.assertEqual(len(pages), 1, f"{page}: {pages}, {run.stderr}")
            self.assertIn(pages[0], (expected,) if expected else pages)
            self.assertNotEqual(pages[0], "z-77.html")
            os.remove(self.path(pages[0]))

    def test_a_command_without_data_gets_a_line(self):
        with open(self.path("x.json"), "w", encoding="utf-8") as file:
            json.dump(report_samples.fits(), file)
        earlier = time.time() - 0.05
        os.utime(self.path("x.json"), (earlier, earlier))  # of an earlier run
        run = self.run_job("x.html", "sys.exit(4)", "none")
        self.assertEqual(run.returncode, 4)
        self.assertIn(f"spillway: no report: the command wrote no {self.path('x.json')}", run.stderr)
        self.assertIn("to its end, or for a second before it was killed", run.stderr)
        self.assertFalse(os.path.exists(self.path("x.html")))

    def test_damaged_data_gets_a_line(self):
        with open(self.path("cut"), "w", encoding="utf-8") as file:
            file.write('{"format"')
        run = self.run_job("x.html", "sys.exit(5)", self.path("cut"))
        self.assertEqual(run.returncode, 5)
        self.assertIn("no page of " + self.path("x.json"), run.stderr)

    def test_a_command_that_is_not_there(self):
        run = subprocess.run([PROGRAM, "run", "--report", self.path("x.html"), "--", "/no/such"], capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 127)
        self.assertIn("cannot run /no/such", run.stderr)

    def test_a_path_is_that_of_the_folder_where_it_was_given(self):
        command = [PROGRAM, "run", "--report", "x.html", "--", sys.executable, "-c", JOB, self.sample, "pass"]
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, cwd=self.scratch.name)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertTrue(os.path.isfile(self.path("x.html")), run.stderr)

    def test_another_name_asks_for_data_alone(self):
        run = self.run_job("x.json", "sys.exit(6)")
        self.assertEqual(run.returncode, 6, run.stderr)
        self.assertTrue(os.path.isfile(self.path("x.json")))
        self.assertFalse(os.path.exists(self.path("x.html")))


if __name__ == "__main__":
    for needed in (LIBRARY, os.path.join(BUILD, "lib", "libspillway.so")):
        if not os.path.isfile(needed):
            print(f"skipped: {needed} is not there", file=sys.stderr)
            sys.exit(77)
    unittest.main()
