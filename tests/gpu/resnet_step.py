"""Trains a ResNet-50-shaped model for a few steps: bottleneck blocks, batch norms, stride-2 stages, SGD with momentum.

Plain PyTorch. Random pictures; prints and writes what train_gpt.py does.
"""

import torch
from torch import nn
from torch.nn import functional as F

import steps


class Bottleneck(nn.Module):
    def __init__(self, inward, width, stride):
        super().__init__()
        outward = width * 4
        self.first, self.first_norm = nn.Conv2d(inward, width, 1, bias=False), nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(width)
        self.third, self.third_norm = nn.Conv2d(width, outward, 1, bias=False), nn.BatchNorm2d(outward)
        self.shortcut = (
            nn.Identity()
            if inward == outward and stride == 1
            else nn.Sequential(nn.Conv2d(inward, outward, 1, stride, bias=False), nn.BatchNorm2d(outward))
        )

    def forward(self, x):
        inner = F.relu(self.first_norm(self.first(x)), inplace=True)
        inner = F.relu(self.second_norm(self.second(inner)), inplace=True)
        return F.relu(self.third_norm(self.third(inner)) + self.shortcut(x), inplace=True)


class ResNet(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, args.width, 7, 2, 3, bias=False), nn.BatchNorm2d(args.width), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        )
        blocks, inward = [], args.width
        for stage, count in enumerate((3, 4, 6, 3)[: args.stages]):
            for i in range(count):
                width = args.width << stage
                blocks.append(Bottleneck(inward, width, 2 if i == 0 and stage > 0 else 1))
                inward = width * 4
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inward, 1000)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def main():
    args = steps.parse_arguments("resnet_step", width=64, stages=4, picture=224, batch=64)
    device = steps.start(args)
    torch.backends.cudnn.benchmark = False
    model = ResNet(args).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    data = torch.Generator().manual_seed(args.seed)

    def loss_of_step():
        pictures = torch.randn(args.batch, 3, args.picture, args.picture, generator=data).to(device)
        labels = torch.randint(1000, (args.batch,), generator=data).to(device)
        return F.cross_entropy(model(pictures), labels)

    steps.train(args, model, optimizer, loss_of_step, samples=args.batch)


if __name__ == "__main__":
    main()
