"""An index out of range in an embedding under pressure, with the job's thread in each place where it may wait then, and
what comes after: saving what is on the host, and the end of the process.

Every phase is a child of its own, since nothing of CUDA works after such an error. In most of them a slow kernel stands
before the bad launch, so that the job waits already when the error comes. Compared with native: the type of the exception,
the exit status and the bytes of the file; the seconds are figures.
"""

import argparse
import functools
import io
import json
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "integration" / "python"), str(HERE / "scenes")]

import forks  # noqa: E402  (the paths come first)
import small  # noqa: E402
import torch  # noqa: E402
from slowdown import slowdown  # noqa: E402

import spillway  # noqa: E402

MIB = 1 << 20
TENSOR = 16 * MIB
ANSWER_SECONDS = 60
CYCLES = 1_000_000_000  # of torch.cuda._sleep: half a second or more


class Job:
    """A small embedding and `count` tensors of 16 MiB, all of which have been used."""

    def __init__(self, count):
        torch.manual_seed(1)
        self.embedding = torch.nn.Embedding(1000, 64).cuda()
        self.good = torch.arange(8, device="cuda")
        self.bad = torch.full((8,), 10**6, device="cuda")
        self.held = [torch.full((TENSOR // 4,), float(i), device="cuda") for i in range(count)]
        for _ in range(2):  # the stand-in waits for the first call of each kind
            self.embedding(self.good).sum().item()
            torch.cat(self.held[-4:]).sum().item()
        self.on_host = [tensor.cpu() for tensor in (self.embedding.weight.detach(), self.held[0])]
        torch.cuda.synchronize()

    def launch_bad(self):
        self.embedding(self.bad)

    def touch(self, which):
        for tensor in self.held[which]:
            tensor += 1


class Training:
    """A model that has been trained for some steps, so that they are known and planned."""

    def __init__(self):
        self.model, self.optimizer = small.make(1)
        self.series = small.batches(1)
        for _ in range(6):
            small.step(self.model, self.optimizer, next(self.series))
        self.on_host = [value.cpu() for value in self.model.state_dict().values()]


def train(job):
    """A token that the embedding does not have; the steps go on until the error is seen."""
    tokens = next(job.series)
    tokens[0, 0] = 10**6
    for _ in range(3):
        small.step(job.model, job.optimizer, tokens)
        tokens = next(job.series)
    torch.cuda.synchronize()


def slowly(job):
    """The GPU is busy from now on, and then comes the error."""
    torch.cuda._sleep(CYCLES)
    job.launch_bad()


def claim(job):
    """One launch that names what is away and has nearly all others leave: the error comes while they do."""
    job.touch(slice(-8, None))
    torch.cuda.synchronize()
    torch.cuda._sleep(CYCLES // 10)
    job.launch_bad()
    torch.cat(job.held[:4]).sum().item()


def fault(job):
    """Memory is free; what is away must come back."""
    del job.held[-6:]
    slowly(job)
    job.touch(slice(0, 5))
    job.held[0].sum().item()


def evict(job):
    """The error has come, and the next launch is one that others must leave for."""
    job.launch_bad()
    time.sleep(0.2)
    more = [torch.empty(4 * TENSOR // 4, device="cuda").fill_(1) for _ in range(4)]
    more[0].sum().item()


def run_ahead(job):
    """Launches that name what is here until the host may run no further ahead."""
    slowly(job)
    for _ in range(400):
        job.touch(slice(-4, None))
    torch.cuda.synchronize()


def empty_cache(job):
    del job.held[-3:]
    slowly(job)
    torch.cuda.empty_cache()
    torch.cuda.synchronize()


def leave(job):
    """Nothing waits for the error: the process ends on top of it."""
    slowly(job)


def leave_evicting(job):
    """The same, when what is held is on its way out and back."""
    slowly(job)
    job.held[0] += 1


def allocate(job):
    """The error has come already, and nobody has asked the driver since."""
    job.launch_bad()
    time.sleep(0.2)
    more = [torch.empty(TENSOR // 4, device="cuda").fill_(1) for _ in range(3)]
    more[0].sum().item()


# The phase, and what it begins with: 18 tensors are twice what fits the budget of the scene, 4 leave chunks free.
PRESSED, FREE = functools.partial(Job, 18), functools.partial(Job, 4)
PHASES = {"claim": (claim, PRESSED), "fault": (fault, PRESSED), "evict": (evict, PRESSED), "run_ahead": (run_ahead, PRESSED),
          "empty_cache": (empty_cache, PRESSED), "leave": (leave, PRESSED), "leave_evicting": (leave_evicting, PRESSED),
          "allocate": (allocate, PRESSED), "train": (train, Training), "chunks_free": (allocate, FREE),
          "empty_cache_chunks_free": (empty_cache, FREE)}  # fmt: skip


def figures():
    try:
        return {key: spillway.stats()[key] for key in ("evictions", "spilled_bytes")}
    except spillway.NotActiveError:
        return {}


def saved(job):
    """The hash of nothing but what torch.save makes of host memory after the error."""
    file = io.BytesIO()
    torch.save(job.on_host, file)
    file.seek(0)
    return [tensor.double().sum().item().hex() for tensor in torch.load(file)]


def run_phase(name):
    phase, begin_with = PHASES[name]
    job = begin_with()
    result = {"figures": figures(), "raised": "nothing"}
    begin = time.monotonic()
    try:
        phase(job)
    except Exception as error:  # whatever it is, its type is what is compared
        result.update(raised=f"{type(error).__name__}: {str(error).splitlines()[0]}")
    result.update(seconds=time.monotonic() - begin, saved=saved(job))
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=PHASES, default=list(PHASES))
    parser.add_argument("--spill-folder", type=Path)
    args = parser.parse_args()
    pages = {}
    for name in args.only:
        child = forks.fork(run_phase, name, limit=ANSWER_SECONDS)
        if child is None:
            return  # this is the child: its end is what is looked at
        result = child.result or {"raised": f"no answer within {ANSWER_SECONDS} s", "saved": None, "seconds": None}
        pages[name] = {"seen": [result["raised"], child.status], "hashes": {"saved": result["saved"]},
                       "figures": {**result, "ending_seconds": child.ending_seconds, "slowdown": slowdown()}}  # fmt: skip
        print(f"{name}: {result['raised']} after {result['seconds']} s, ended with {child.status} after {child.ending_seconds:.2f} s", flush=True)
    args.json.write_text(json.dumps({"pages": pages, "losses_sha256": None, "state_sha256": None}, indent=2) + "\n")


if __name__ == "__main__":
    main()
