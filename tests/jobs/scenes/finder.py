"""Accelerate's find_executable_batch_size looks for the batch, and training goes on inside it."""

import itertools

import halve
import small
import torch
from accelerate.utils import find_executable_batch_size


def main(scene):
    seen = []
    smaller = (halve.FIRST_BATCH >> n for n in itertools.count(1))  # halves, so that a little more memory changes nothing

    @find_executable_batch_size(starting_batch_size=halve.FIRST_BATCH, reduce_batch_size_fn=lambda: next(smaller))
    def train(batch):
        seen.append(batch)
        torch.manual_seed(scene.seed)
        model = small.Rows().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        seen.extend(halve.train(model, optimizer, batch, halve.STEPS, scene.seed))
        return model, optimizer

    model, optimizer = train()
    return seen, {"model": model, "optimizer": optimizer}
