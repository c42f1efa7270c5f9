"""torchvision ResNet-18: fp16 autocast with a GradScaler, channels_last, SGD with momentum."""

import torch
from torch.nn import functional as F
from torchvision.models import resnet18


def main(steps):
    torch.manual_seed(1)
    model = resnet18(num_classes=100).cuda().to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, nesterov=True)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**17)  # so large that the first step overflows and is skipped
    data = torch.Generator().manual_seed(2)

    losses = []
    for _ in range(steps):
        images = torch.randn(16, 3, 64, 64, generator=data).cuda().to(memory_format=torch.channels_last)
        labels = torch.randint(100, (16,), generator=data).cuda()
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = F.cross_entropy(model(images), labels, label_smoothing=0.1)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        losses += [loss.item(), scaler.get_scale()]
    return losses, {"model": model, "optimizer": optimizer, "scaler": scaler}
