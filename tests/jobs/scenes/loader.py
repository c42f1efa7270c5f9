"""DataLoaders with forked and with spawned workers, pinned memory too, begun while the job holds more than its GPU."""

import small
import torch
from torch.utils.data import DataLoader, Dataset


class Tokens(Dataset):
    def __init__(self, seed, size):
        self.seed, self.size = seed, size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(self.seed * 1000 + index)
        return torch.randint(small.VOCABULARY, (small.LENGTH + 1,), generator=generator)


def main(scene):
    model, optimizer = small.make(scene.seed)
    seen = []
    for way, workers, pinned in (("fork", 2, False), ("fork", 1, True), ("spawn", 1, False)):
        loader = DataLoader(Tokens(scene.seed, 8), batch_size=4, num_workers=workers, multiprocessing_context=way, pin_memory=pinned)
        seen += [way, *(small.step(model, optimizer, tokens).item() for tokens in loader)]
    return seen, {"model": model, "optimizer": optimizer}
