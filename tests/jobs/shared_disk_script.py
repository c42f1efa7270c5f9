"""A job whose driver says when it takes memory, when it uses it and when it ends: tensors of 32 MiB in plain PyTorch.

CUDA is first used by the first command. Commands on standard input, one answer on standard output each:
  take N   N MiB more, filled; "took N", or "refused TAKEN ERROR" where an allocation was refused
  claim N  the same, but not touched yet: it is promised and takes no time
  use      adds one to everything; "used", or "failed ERROR"
  check    "right", or "wrong COUNT", where COUNT tensors do not hold what they must
  drop N   lets the newest N MiB go; "dropped N"
  figures  Spillway's figures in JSON
  end      leaves
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "integration" / "python"))

import torch  # noqa: E402  (the path comes first)

import spillway  # noqa: E402

MIB = 1 << 20
TENSOR = 32


class Job:
    def __init__(self):
        self.held, self.number = [], 0

    def claim(self, megabytes):
        return self.take(megabytes, fill=False)

    def take(self, megabytes, fill=True):
        """Only the allocation may be refused; a launch that is ends the job."""
        taken = 0
        while taken < int(megabytes):
            try:
                tensor = torch.empty(TENSOR * MIB // 4, device="cuda")
            except RuntimeError as error:
                return f"refused {taken} {type(error).__name__}"
            self.number += 1
            self.held.append((tensor.fill_(self.number % 1000) if fill else tensor, self.number % 1000))
            taken += TENSOR
        return f"took {taken}"

    def use(self):
        try:
            for tensor, _ in self.held:
                tensor += 1
            torch.cuda.synchronize()
        except RuntimeError as error:
            return f"failed {type(error).__name__} {error}".splitlines()[0]
        self.held = [(tensor, number + 1) for tensor, number in self.held]
        return "used"

    def check(self):
        wrong = sum(not bool((tensor.min() == number) & (tensor.max() == number)) for tensor, number in self.held)
        return f"wrong {wrong}" if wrong else "right"

    def drop(self, megabytes):
        del self.held[len(self.held) - int(megabytes) // TENSOR :]
        return f"dropped {megabytes}"

    def figures(self):
        return json.dumps(spillway.stats())


def main():
    job = Job()
    print("ready", flush=True)
    for line in sys.stdin:
        name, *words = line.split()
        if name == "end":
            break
        print(getattr(job, name)(*words), flush=True)


if __name__ == "__main__":
    main()
