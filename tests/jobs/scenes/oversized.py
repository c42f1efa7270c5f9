"""50 steps, of which one has a batch that only just fits all memory there is, and one a batch that does not; the latter is
caught and left out.
"""

import small
import torch

STEPS, LARGE_AT, TOO_LARGE_AT = 50, 20, 35
USUAL, LARGE, TOO_LARGE = 6, 16, 128


def main(scene):
    torch.manual_seed(scene.seed)
    model = small.Rows().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    held = [torch.full((4 << 20,), float(i), device="cuda") for i in range(6)]  # 96 MiB, used now and then
    seen = []
    for step in range(STEPS):
        batch = {LARGE_AT: LARGE, TOO_LARGE_AT: TOO_LARGE}.get(step, USUAL)
        optimizer.zero_grad(set_to_none=True)
        try:
            loss = model(small.rows(batch, scene.seed + step).cuda())
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
        except torch.cuda.OutOfMemoryError as error:
            seen.append(type(error).__name__)
        held[step % 6] += 1
    return seen, {"model": model, "optimizer": optimizer, "held": held}
