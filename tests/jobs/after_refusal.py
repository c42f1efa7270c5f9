"""A batch too large is refused and caught, and smaller ones come after it: each has the outcome of a fresh process.

Every child keeps four results of a forward pass, each of as many MiB as the batch has samples and made from the one
before, and goes back over them. Compared with native: that each smaller batch ends as in a process that tried nothing
before, and what comes out of 90 and 40. What became of 140 and 110 is a figure, since the budget decides.
"""

import argparse
import json
from pathlib import Path

import forks
import torch

FEATURES = 1 << 18  # 1 MiB
ORDERS = ((140, 110, 90, 40), (110,), (90,), (40,))
COMPARED = (90, 40)


def train(batch):
    """Two steps; at most two tensors of the batch's size in a launch."""
    values = []
    for step in range(2):
        kept = [torch.full((batch, FEATURES), 0.25 + step, device="cuda")]
        for _ in range(3):
            kept.append(kept[-1].sin())
        for result in reversed(kept):
            values.append(result.add_(1).sum().item().hex())
    return values


def try_batches(batches):
    """What each batch gave, or the name of the exception."""
    found = {}
    for batch in batches:
        try:
            found[batch] = train(batch)
        except RuntimeError as error:
            found[batch] = type(error).__name__
        torch.cuda.empty_cache()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--spill-folder", type=Path)
    args = parser.parse_args()
    found = []
    for order in ORDERS:
        child = forks.fork(try_batches, order)
        if child is None:
            return
        found.append(child.result or {str(batch): f"ended with {child.status}" for batch in order})
        print(f"{order}: {found[-1]}", flush=True)
    later, fresh = found[0], {batch: result for one in found[1:] for batch, result in one.items()}
    seen = [later[str(batch)] for batch in COMPARED]
    seen += [later[batch] == fresh[batch] or {"after": later[batch], "fresh": fresh[batch]} for batch in fresh]
    page = {"seen": seen, "hashes": {}, "figures": {"after": later, "fresh": fresh}}
    args.json.write_text(json.dumps({"pages": {"after_refusal": page}, "losses_sha256": None, "state_sha256": None}, indent=2) + "\n")


if __name__ == "__main__":
    main()
