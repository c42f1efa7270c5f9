"""A timm ViT with stochastic depth and timm's LAMB, fed by a DataLoader with two workers and pinned memory."""

import timm
import timm.optim
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    """Pictures that depend on nothing but their number."""

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, 112, 112, generator=generator), index % 100


def main(steps):
    torch.manual_seed(1)
    model = timm.create_model("vit_small_patch16_224", img_size=112, depth=6, num_classes=100, drop_path_rate=0.2,
                              proj_drop_rate=0.1).cuda().train()  # fmt: skip
    optimizer = timm.optim.create_optimizer_v2(model, opt="lamb", lr=2e-3, weight_decay=0.02)
    loader = DataLoader(Images(), batch_size=16, shuffle=True, num_workers=2, pin_memory=True)

    losses = []
    for _, (images, labels) in zip(range(steps), loader):
        images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {"model": model, "optimizer": optimizer}
