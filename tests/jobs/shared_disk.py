"""Jobs whose disk is not theirs alone, on a small ext4 in a file (as root, where loop mounts are permitted; else skipped).

filled: another process takes the disk in mid-run; what is allocated stays usable, an allocation is out of memory, and
goes through again when the space has come back. two: two jobs that need 1.2 GiB each of 3 GiB. two_large: 2 GiB each.
restart: after SIGKILL the next job has the space at once. frozen: the drive stops answering (fsfreeze): the launch is
refused at SPILLWAY_WAIT_LIMIT, and the job leaves at once all the same.
"""

import contextlib
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import harness
import job
from harness import MIB
from wait_until import wait_until

SCRIPT = harness.HERE / "shared_disk_script.py"
GPU = 160  # MiB, of which tensors may take 144; no host memory, so the rest is on the disk
ANSWER_SECONDS = 120
GONE = "gone"  # the answer of a job that has ended
SPACE_SECONDS = 10  # after a kill, by when the next job has what the killed one had
WAIT_LIMIT = 12  # seconds; a line about the wait comes after 10
EXIT_SECONDS = 3  # of a processor of its own; ours take 2 s at most, the rest is Python's own end


class Disk:
    """An ext4 of `megabytes` in a file, mounted; SkipTest-like None from make() where that is not permitted."""

    def __init__(self, folder, megabytes):
        self.image, self.path = folder / "image", folder / "mount"
        self.path.mkdir()
        with open(self.image, "wb") as file:
            file.truncate(megabytes * MIB)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(self.image)], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "loop", str(self.image), str(self.path)], check=True, capture_output=True)

    def free(self):
        return harness.free_bytes(self.path) // MIB

    def close(self):
        command = ["umount", str(self.path)]
        # A process that has just ended may still hold a file.
        if not wait_until(lambda: subprocess.run(command, capture_output=True, check=False).returncode == 0, 5):
            subprocess.run(["umount", "-l", str(self.path)], check=False)


@contextlib.contextmanager
def disk(args, megabytes):
    args.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.work) as folder:
        made = Disk(Path(folder), megabytes)
        try:
            yield made
        finally:
            made.close()


def why_not(args):
    """Why no disk of our own can be mounted here; None when it can."""
    try:
        with disk(args, 64):
            return None
    except (OSError, subprocess.CalledProcessError) as error:
        words = getattr(error, "stderr", None)
        return words.decode(errors="replace").strip() if words else str(error)


class Job:
    """shared_disk_script.py in a process of its own."""

    def __init__(self, args, name, folder, *, policy="plan", host="0", variables=None, **settings):
        here = harness.machine(args, name)
        here.work.mkdir(parents=True, exist_ok=True)
        cap = job.Cap(GPU * MIB, host, str(folder), {"gpu_memory": f"{GPU}MiB", "disk_reserve": "0", "policy": policy, **settings})
        env = job.environment(here, job.PRELOAD, cap, here.work / "metrics.json") | (variables or {})
        command = job.command(here, job.PRELOAD, cap, [], here.work / "unused.json", SCRIPT)
        self.name, self.log = name, here.work / "log"
        self.answers = queue.Queue()
        with open(self.log, "wb") as log:
            self.child = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for text in self.child.stdout:
            self.answers.put(text.strip())
        self.answers.put(GONE)

    def answer(self):
        try:
            text = self.answers.get(timeout=ANSWER_SECONDS)
        except queue.Empty:
            return f"no answer within {ANSWER_SECONDS} s"
        if text == GONE:
            self.answers.put(GONE)  # for the next question too
        return text

    def say(self, text):
        try:
            print(text, file=self.child.stdin, flush=True)
        except OSError:
            pass  # it is gone, which the answer tells

    def ask(self, text):
        self.say(text)
        answer = self.answer()
        print(f"   {self.name}: {text}: {answer[:160]}", flush=True)
        return answer

    def end(self):
        """The exit status; killed after 20 s."""
        self.say("end")
        try:
            return self.child.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
            return "no end within 20 s"

    def seconds_to_leave(self, most):
        """From the question on until the job's main thread has ended; others may be stuck in the kernel."""
        begun = time.monotonic()
        self.say("end")
        stat = Path(f"/proc/{self.child.pid}/stat")
        wait_until(lambda: stat.read_text().rsplit(")", 1)[1].split()[0] == "Z", most)
        return time.monotonic() - begun

    def kill(self):
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()

    def words(self):
        return self.log.read_text(errors="replace")[-1500:]


@contextlib.contextmanager
def started(args, name, folder, **more):
    child = Job(args, name, folder, **more)
    try:
        yield child
    finally:
        if child.child.poll() is None:
            child.kill()


def expect(problems, child, question, wanted, why):
    """Asks, and compares the beginning of the answer."""
    answer = child.ask(question)
    return problems.expect(answer.startswith(wanted), f"{child.name}: {question}: {answer[:300]}, not {wanted} ({why})\n{child.words()}")


# ---- the scenes ------------------------------------------------------------------------------------------------


FILL = """
import os, sys
file = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)
end, size = 0, 1 << 28
while size >= 4096:
    try:
        os.posix_fallocate(file, end, size)
        end += size
    except OSError:
        size //= 2
"""


def fill_disk(folder):
    """Another process takes all that is free."""
    path = folder / "others"
    subprocess.run([job.sys.executable, "-c", FILL, str(path)], check=True)
    return path


def filled(args, problems, policy):
    with disk(args, 3072) as mounted, started(args, "filled", mounted.path, policy=policy) as child:
        problems.expect(child.answer() == "ready", f"filled: no start\n{child.words()}")
        expect(problems, child, "take 384", "took 384", "the disk is empty")
        expect(problems, child, "use", "used", "all of it fits")
        others = fill_disk(mounted.path)
        print(f"   others took {others.stat().st_blocks * 512 // MIB} MiB, {mounted.free()} MiB are free", flush=True)
        problems.expect(others.stat().st_blocks * 512 > 1024 * MIB, "filled: there was not much left to take, so nothing was shown")
        for question, wanted in (("use", "used"), ("check", "right")):
            expect(problems, child, question, wanted, "it was allocated before the disk was filled")
        expect(problems, child, "take 2048", "refused", "the disk is full")
        for question, wanted in (("use", "used"), ("check", "right"), ("drop 128", "dropped"), ("use", "used"), ("take 64", "took")):
            expect(problems, child, question, wanted, "after a refusal")
        others.unlink()
        problems.expect(wait_until(lambda: mounted.free() >= 1024), f"filled: {mounted.free()} MiB are free without the others")
        expect(problems, child, "take 512", "took 512", "the space has come back")
        expect(problems, child, "use", "used", "the space has come back")
        expect(problems, child, "check", "right", "at the end")
        problems.expect(child.end() == 0, f"filled: it did not end well\n{child.words()}")
        problems.expect(os.listdir(mounted.path) == ["lost+found"], f"filled: left behind: {os.listdir(mounted.path)}")


def both(children, question):
    """Both work at the same time."""
    for child in children:
        child.say(question)
    answers = [child.answer() for child in children]
    print(f"   both: {question}: {answers}", flush=True)
    return answers


def two(args, problems, policy):
    with disk(args, 3072) as mounted, contextlib.ExitStack() as stack:
        children = [stack.enter_context(started(args, f"two-{i}", mounted.path, policy=policy)) for i in range(2)]
        for question, wanted in ((None, "ready"), ("take 1216", "took 1216"), ("use", "used"), ("check", "right")):
            answers = both(children, question) if question else [child.answer() for child in children]
            problems.expect(answers == [wanted] * 2, f"two: {question}: {answers}\n{children[0].words()}\n{children[1].words()}")
        for child in children:
            problems.expect(child.end() == 0, f"{child.name}: it did not end well\n{child.words()}")


def two_large(args, problems, policy):
    """The second job comes to the end of the disk; the first never knows."""
    with disk(args, 3072) as mounted, contextlib.ExitStack() as stack:
        first, second = (stack.enter_context(started(args, f"two-large-{i}", mounted.path, policy=policy)) for i in range(2))
        problems.expect([first.answer(), second.answer()] == ["ready"] * 2, "two_large: no start")
        for child, question, wanted in ((first, "take 1024", "took"), (second, "take 1024", "took"), (first, "take 1024", "took"),
                                        (second, "take 1024", "refused"), (second, "use", "used"), (first, "use", "used"),
                                        (second, "check", "right")):  # fmt: skip
            expect(problems, child, question, wanted, "2 GiB each of 3 GiB")
        problems.expect(second.end() == 0, f"two_large: the second did not end well\n{second.words()}")
        for question, wanted in (("use", "used"), ("check", "right")):
            expect(problems, first, question, wanted, "alone again")
        problems.expect(first.end() == 0, f"two_large: the first did not end well\n{first.words()}")


def claim_all(child, megabytes, seconds):
    """As much as is promised in that time, asked again after each refusal; MiB."""
    taken = 0

    def has_all():
        nonlocal taken
        words = child.ask(f"claim {megabytes - taken}").split()
        if words[0] not in ("took", "refused"):
            return True  # there will be no more
        taken += int(words[1])
        return taken >= megabytes

    wait_until(has_all, seconds)
    return taken


def restart(args, problems, policy):
    """The first job's files go with it, and ext4 gives their space back a little later. The next job has been started
    already, and uses CUDA for the first time right after the kill.
    """
    with disk(args, 3072) as mounted, contextlib.ExitStack() as stack:
        first, second = (stack.enter_context(started(args, f"restart-{i}", mounted.path, policy=policy)) for i in range(2))
        problems.expect([first.answer(), second.answer()] == ["ready"] * 2, f"restart: no start\n{first.words()}")
        expect(problems, first, "take 1216", "took 1216", "the disk is empty")
        answer = first.ask("claim 4096").split()
        whole = 1216 + int(answer[1])
        problems.expect(answer[0] == "refused" and whole > 2560, f"restart: {answer} of a disk of 3 GiB")
        first.kill()
        killed, wanted = time.monotonic(), -(-whole * 95 // 100 // 32) * 32
        taken = claim_all(second, wanted, SPACE_SECONDS)
        print(f"   {taken} of {whole} MiB, the last {time.monotonic() - killed:.1f} s after the kill", flush=True)
        problems.expect(taken >= wanted, f"restart: only {taken} of {whole} MiB in {SPACE_SECONDS} s\n{second.words()}")
        expect(problems, second, "use", "used", "after the restart")


@contextlib.contextmanager
def no_answers(mounted):
    """Nothing can be written there until the end; reads are answered from what is there."""
    subprocess.run(["fsfreeze", "--freeze", str(mounted.path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", str(mounted.path)], check=True)


def frozen(args, problems, policy):
    with disk(args, 1024) as mounted, started(args, "frozen", mounted.path, policy=policy, wait_limit=f"{WAIT_LIMIT}s") as child:
        problems.expect(child.answer() == "ready", f"frozen: no start\n{child.words()}")
        for question, wanted in (("take 384", "took 384"), ("use", "used")):
            expect(problems, child, question, wanted, "the drive answers")
        with no_answers(mounted):
            expect(problems, child, "use", "failed AcceleratorError CUDA error: wait operation timed out", "nothing can leave the GPU")
            seconds = child.seconds_to_leave(20)
            print(f"   left after {seconds:.2f} s", flush=True)
            problems.expect(harness.in_time(seconds, EXIT_SECONDS), f"frozen: its end took {seconds:.1f} s\n{child.words()}")
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.child.wait(20)
        lines = [line for line in child.words().splitlines() if "waits" in line and str(mounted.path) in line]
        problems.expect(lines, f"frozen: no line says what is waited for, and where\n{child.words()}")


SCENES = {"filled": filled, "two": two, "two_large": two_large, "restart": restart, "frozen": frozen}


def main():
    args = harness.arguments(__doc__, ("--only", {"nargs": "+", "choices": list(SCENES)}),
                             ("--policy", {"nargs": "+", "choices": ["plan", "lru"], "default": ["plan"]}))  # fmt: skip
    args.work = args.work / "shared-disk"
    signal.signal(signal.SIGTERM, lambda *_: job.sys.exit(1))  # so that nothing stays mounted
    reason = why_not(args)
    if reason:
        print(f"skipped: no ext4 of our own can be mounted here: {reason}")
        job.sys.exit(harness.SKIPPED)
    problems = harness.Problems()
    for policy in args.policy:
        for name in args.only or SCENES:
            print(f"== {name}, {policy}", flush=True)
            begun = time.monotonic()
            SCENES[name](args, problems, policy)
            print(f"   {time.monotonic() - begun:.0f} s", flush=True)
    problems.exit()


if __name__ == "__main__":
    main()
