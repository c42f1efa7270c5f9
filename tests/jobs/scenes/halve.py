"""Out of memory is caught and the batch halved, by hand, until a step fits; then training goes on with that batch."""

import small
import torch

FIRST_BATCH, STEPS = 128, 3


def train(model, optimizer, batch, steps, seed):
    losses = []
    for step in range(steps):
        optimizer.zero_grad(set_to_none=True)
        loss = model(small.rows(batch, seed + step).cuda())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(scene):
    torch.manual_seed(scene.seed)
    model = small.Rows().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    seen, batch = [], FIRST_BATCH
    while batch:
        try:
            seen += [batch, *train(model, optimizer, batch, 1, scene.seed)]
            break
        except torch.cuda.OutOfMemoryError as error:
            seen.append(type(error).__name__)
        torch.cuda.empty_cache()
        batch //= 2
    seen += train(model, optimizer, batch, STEPS, scene.seed + 1)
    return seen, {"model": model, "optimizer": optimizer}
