"""Processes of one node that share its host memory, each a job of its own in plain PyTorch.

slurm: eight ranks, known by srun's variables alone, claim all they can, one before the others begin: each gets an eighth.
half: of two ranks each has half, though the other needs none.
newcomer: nothing says how many there are. The first has nearly everything and keeps it; a second spills to its disk, and has
host memory when the first has been killed. What was moved is checked byte by byte.
"""

import contextlib
import json
import os
import tempfile
import time

import harness
from harness import MIB
from shared_disk import started
from wait_until import wait_until

HOST = 1024  # MiB of the node
SECONDS = 60  # at most; what it takes is printed, and is to be below 10 on a quiet machine
STAGING = 128  # MiB at most, of a part, that is no storage


def slurm(rank, size):
    return {"SLURM_STEP_ID": "0", "SLURM_LOCALID": str(rank), "SLURM_NODEID": "0", "SLURM_STEP_TASKS_PER_NODE": str(size),
            "SLURM_JOB_ID": str(os.getpid())}  # fmt: skip


def host_bytes(child):
    child.say("figures")
    return json.loads(child.answer())["host_capacity_bytes"]


def wait_for(what, seconds=SECONDS):
    """Seconds until what() is true; None when it does not become so in time."""
    begun = time.monotonic()
    return time.monotonic() - begun if wait_until(what, seconds) else None


def expect_answers(problems, children, question, wanted):
    for child in children:
        if question:
            child.say(question)
    answers = [child.answer() for child in children]
    words = "".join(child.words() for child in children if child.answers.empty())
    problems.expect(all(answer.startswith(wanted) for answer in answers), f"{question}: {answers}\n{words[-3000:]}")
    return answers


def eight(args, problems):
    with contextlib.ExitStack() as stack:
        ranks = [stack.enter_context(started(args, f"slurm-{rank}", "none", host=f"{HOST}MiB", variables=slurm(rank, 8)))
                 for rank in range(8)]  # fmt: skip
        expect_answers(problems, ranks, None, "ready")
        expect_answers(problems, ranks[:1], "claim 4096", "refused")
        expect_answers(problems, ranks[1:], "claim 4096", "refused")
        pinned = [host_bytes(rank) // MIB for rank in ranks]
        print(f"   pinned: {pinned} MiB of {HOST}", flush=True)
        problems.expect(all(one <= HOST // 8 for one in pinned), f"slurm: one has more than its eighth: {pinned}")
        problems.expect(sum(pinned) >= HOST * 9 // 10, f"slurm: their parts are not there: {pinned}")
        expect_answers(problems, ranks, "use", "used")
        ranks[3].kill()
        late = stack.enter_context(started(args, "slurm-late", "none", host=f"{HOST}MiB", variables=slurm(3, 8)))
        expect_answers(problems, [late], None, "ready")
        expect_answers(problems, [late], "claim 4096", "refused")
        pinned = host_bytes(late) // MIB
        problems.expect(pinned >= HOST // 8 * 9 // 10, f"slurm: the one that came late has {pinned} MiB")


@contextlib.contextmanager
def two(args, name, variables):
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, contextlib.ExitStack() as stack:
        yield [stack.enter_context(started(args, f"{name}-{i}", folder, host=f"{HOST}MiB", variables=variables(i))) for i in range(2)]


def use_all(problems, child, mib):
    expect_answers(problems, [child], f"take {mib}", "took")
    expect_answers(problems, [child], "use", "used")
    return host_bytes(child) // MIB


def half(args, problems):
    with two(args, "half", lambda rank: slurm(rank, 2)) as ranks:
        expect_answers(problems, ranks, None, "ready")
        for i, rank in enumerate(ranks):
            had = use_all(problems, rank, 1088)
            problems.expect(HOST // 2 - STAGING <= had <= HOST // 2, f"half: rank {i} has {had} MiB")
        expect_answers(problems, ranks, "check", "right")


def newcomer(args, problems):
    with two(args, "newcomer", lambda rank: {}) as (first, second):
        expect_answers(problems, [first, second], None, "ready")
        had = use_all(problems, first, 1088)
        problems.expect(had > HOST * 2 // 3, f"newcomer: the first has {had} MiB while nobody else needs any")
        left = use_all(problems, second, 640)
        print(f"   the first has {had} MiB, the second {left} MiB", flush=True)
        problems.expect(had + left <= HOST, f"newcomer: together they have {had} and {left} MiB")
        problems.expect(host_bytes(first) // MIB >= had, "newcomer: the first had to give back")
        expect_answers(problems, [first, second], "check", "right")
        first.kill()
        expect_answers(problems, [second], "take 448", "took")
        # It grows as its evictions ask for more, so what it does decides how long that takes.
        seconds = wait_for(lambda: second.ask("use") == "used" and host_bytes(second) // MIB > HOST * 3 // 4)
        problems.expect(seconds is not None, f"newcomer: alone again it has {host_bytes(second) // MIB} MiB")
        expect_answers(problems, [second], "check", "right")


SCENES = {"slurm": eight, "half": half, "newcomer": newcomer}


def main():
    args = harness.arguments(__doc__, ("--only", {"nargs": "+", "choices": list(SCENES)}))
    args.work = args.work / "ranks"
    problems = harness.Problems()
    for name in args.only or SCENES:
        print(f"== {name}", flush=True)
        begun = time.monotonic()
        SCENES[name](args, problems)
        print(f"   {time.monotonic() - begun:.0f} s", flush=True)
    problems.exit()


if __name__ == "__main__":
    main()
