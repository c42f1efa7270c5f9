"""A timm MLP-Mixer; batches are uploaded on a stream of their own, and a third stream keeps the averaged weights.

Blocks change hands between streams by events and record_stream, so that none is given away while another stream uses it.
"""

import timm
import torch
from torch.nn import functional as F


class Uploader:
    """Copies the next batch to the device while the current one is trained on."""

    def __init__(self):
        self.stream = torch.cuda.Stream()
        self.generator = torch.Generator().manual_seed(2)
        self.start()

    def start(self):
        images = torch.randn(8, 3, 160, 160, generator=self.generator).pin_memory()
        labels = torch.randint(100, (8,), generator=self.generator).pin_memory()
        with torch.cuda.stream(self.stream):
            self.images = images.cuda(non_blocking=True).mul_(0.5).add_(0.1)
            self.labels = labels.cuda(non_blocking=True)
            self.ready = self.stream.record_event()

    def next(self):
        current = torch.cuda.current_stream()
        current.wait_event(self.ready)
        images, labels = self.images, self.labels
        images.record_stream(current)
        labels.record_stream(current)
        self.start()
        return images, labels


def average(averaged, model, stream):
    """averaged += (weights - averaged) / 10, beside the next step's forward pass."""
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), torch.no_grad():
        for mean, weight in zip(averaged, model.parameters()):
            snapshot = weight.detach().clone()
            mean.lerp_(snapshot, 0.1)
        return stream.record_event()


def main(steps):
    torch.manual_seed(1)
    model = timm.create_model("mixer_s32_224", img_size=160, num_classes=100).cuda().train()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4)
    averaged = [weight.detach().clone() for weight in model.parameters()]
    batches, averaging = Uploader(), torch.cuda.Stream()
    averaged_once = torch.cuda.Event()

    losses = []
    for _ in range(steps):
        images, labels = batches.next()
        loss = F.cross_entropy(model(images), labels)
        del images  # its bytes may be used again only when both streams are done with it
        optimizer.zero_grad()
        loss.backward()
        torch.cuda.current_stream().wait_event(averaged_once)  # the averaging reads what the optimiser writes
        optimizer.step()
        averaged_once = average(averaged, model, averaging)
        losses.append(loss.detach())
    torch.cuda.current_stream().wait_stream(averaging)
    return [loss.item() for loss in losses], {"model": model, "optimizer": optimizer, "averaged": averaged}
