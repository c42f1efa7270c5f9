"""Children of a process that spills: a forked one has no engine, no ring and no spill descriptors, and its frees do
nothing; one that is spawned starts an engine of its own; workers of a DataLoader and ranks of torchrun are such children.
"""

import re
import sys
import unittest

from routing_case import OVERSUBSCRIBE, PYTHON, RoutingCase

# In each process: its spill files (unlinked, so their names end in " (deleted)"), its rings, and its threads.
FACTS = """
import os
def descriptors():
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            pass
    return sum(name.startswith(os.environ["SPILL"]) or "io_uring" in name for name in found)
def threads():
    return len(os.listdir("/proc/self/task"))
"""

# The guard is for spawned children, which import the script.
MAIN = '\nif __name__ == "__main__":\n'


def body(text):
    return MAIN + "".join(f"    {line}\n" for line in text.strip().splitlines())


class ChildrenTest(RoutingCase):
    def test_forked_child_is_without_the_engine(self):
        code = FACTS + OVERSUBSCRIBE + """
assert descriptors() > 0, "the parent holds no spill file"
pid = os.fork()
if pid == 0:
    try:
        facts = (descriptors(), threads())
        blocks.clear()  # frees that must do nothing
        try:
            torch.ones(4 << 20, device="cuda")
            error = ""
        except RuntimeError as failure:
            error = str(failure)
        good = facts == (0, 1) and "Cannot re-initialize CUDA in forked subprocess" in error
        if not good:
            print(facts, error, flush=True)
        os._exit(0 if good else 1)
    except BaseException as failure:
        print(repr(failure), flush=True)
        os._exit(2)
print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), "parent", right())
"""
        done = self.run_job(code)
        self.assertEqual(done.stdout.splitlines(), ["child 0 parent True"])
        self.assertEqual(len(self.words(done, "spillway: summary")), 1, done.stderr)

    def test_forked_child_that_exits_in_the_ordinary_way(self):
        """Exit handlers, Python's and ours, run in the child: quietly, without the parent's summary."""
        code = OVERSUBSCRIBE + """
import multiprocessing, sys
def work(queue):
    queue.put(len(blocks))
context = multiprocessing.get_context("fork")
queue = context.Queue()
child = context.Process(target=work, args=(queue,))
child.start()
print(queue.get(timeout=100)); child.join(); print(child.exitcode, right(), flush=True)
import os
pid = os.fork()
if pid == 0:
    sys.exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), right())
"""
        done = self.run_job(code)
        self.assertEqual(done.stdout.splitlines(), ["16", "0 True", "5 True"])
        self.assertEqual(len(self.words(done, "spillway: summary")), 1, done.stderr)

    def test_spawned_child_has_an_engine_of_its_own(self):
        code = FACTS + "def work(queue):\n" + "".join(
            f"    {line}\n" for line in OVERSUBSCRIBE.splitlines()) + """
    queue.put((torch.cuda.memory.get_allocator_backend(), right(), descriptors() > 0))
""" + body("""
import multiprocessing, torch
kept = torch.ones(4 << 20, device="cuda")
context = multiprocessing.get_context("spawn")
queue = context.Queue()
child = context.Process(target=work, args=(queue,))
child.start()
print(queue.get(timeout=200)); child.join(); print(child.exitcode, kept.sum().item() == 4 << 20)
""")
        done = self.run_job(code)
        self.assertEqual(done.stdout.splitlines(), ["('spillway', True, True)", "0 True"])
        self.assertEqual(len(self.words(done, "spillway: spilling starts")), 1, done.stderr)

    def loader(self, method):
        """Two workers while the parent spills; each sample tells what its worker saw."""
        return FACTS + """
import torch
class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return torch.tensor([index, descriptors(), torch.utils.data.get_worker_info().id])
""" + body(OVERSUBSCRIBE + f"""
loader = torch.utils.data.DataLoader(Samples(), batch_size=2, num_workers=2, pin_memory=True, persistent_workers=True, multiprocessing_context="{method}")
seen = []
for round in range(2):
    for batch in loader:
        on_device = batch.to("cuda", non_blocking=True)
        for block in blocks[:2]:
            block.add_(1.0); block.sub_(1.0)
        seen += on_device.tolist()
print(sorted(index for index, _, _ in seen) == sorted(list(range(8)) * 2), sum(held for _, held, _ in seen), len(set(w for _, _, w in seen)), right())
""")

    def test_workers_of_a_loader_that_forks(self):
        done = self.run_job(self.loader("fork"))
        self.assertEqual(done.stdout.splitlines(), ["True 0 2 True"])
        self.assertEqual(len(self.words(done, "spillway: summary")), 1, done.stderr)

    def test_workers_of_a_loader_that_spawns(self):
        done = self.run_job(self.loader("spawn"))
        self.assertEqual(done.stdout.splitlines(), ["True 0 2 True"])
        self.assertEqual(len(self.words(done, "spillway: summary")), 1, done.stderr)

    def test_ranks_of_torchrun(self):
        """Both ranks spill; the launcher, which uses no CUDA, has no engine and says nothing."""
        script = self.folder / "rank.py"
        script.write_text(OVERSUBSCRIBE + """
import os
with open(f"rank{os.environ['RANK']}", "w") as file:
    file.write(f"{torch.cuda.memory.get_allocator_backend()} {right()}")
""")
        done = self.run_job([PYTHON, "-B", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script])
        for rank in range(2):
            self.assertEqual((self.folder / f"rank{rank}").read_text(), "spillway True", done.stderr)
        named = re.findall(r"^spillway: rank ([01]), pid \d+: summary", done.stderr, re.MULTILINE)
        self.assertEqual(sorted(named), ["0", "1"], done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
