"""Trainings on the stand-in GPU: the same bits twice for every form of AdamW and every size of list groups, autocast,
a gradient scaler, convolution nets, recurrent nets, checkpoints and activation checkpointing."""

import argparse
import hashlib
import io
import os
import subprocess
import sys
import unittest

from torch_common import CUDA, torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

WIDTH, LAYERS, TOKENS, BATCH, HEADS = 64, 2, 32, 4, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        batch, tokens, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, tokens, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.out(heads.transpose(1, 2).reshape(batch, tokens, WIDTH)))
        return x + self.drop(self.mlp(self.norm2(x)))


class Gpt(nn.Module):
    def __init__(self, recompute=False):
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, WIDTH), nn.Parameter(torch.randn(TOKENS, WIDTH) * 0.02)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256, bias=False)
        self.recompute = recompute

    def forward(self, ids):
        x = self.tokens(ids) + self.places
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.head(self.norm(x))


def digest(model, optimizer):
    state = hashlib.sha256()
    for tensor in model.state_dict().values():
        state.update(tensor.cpu().numpy().tobytes())
    for slots in optimizer.state_dict()["state"].values():
        for value in slots.values():
            state.update(value.detach().cpu().numpy().tobytes())
    return state.hexdigest()


def train(form="foreach", steps=6, seed=1, autocast=None, scaler=None, recompute=False):
    """Losses as exact texts, and a hash of parameters and optimiser state."""
    torch.manual_seed(seed)
    model = Gpt(recompute).to(CUDA)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=form == "foreach", fused=form == "fused")
    data = torch.randint(0, 256, (steps, BATCH, TOKENS + 1))
    losses = []
    for step in range(steps):
        batch = data[step].to(CUDA, non_blocking=True)
        with torch.autocast("cuda", dtype=autocast or torch.bfloat16, enabled=autocast is not None):
            loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        (scaler.scale(loss) if scaler else loss).backward()
        if scaler:
            scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        losses.append(loss.detach())
    return [loss.item().hex() for loss in losses], digest(model, optimizer)


class TrainingTest(unittest.TestCase):
    def test_twice_the_same_bits_for_every_form(self):
        results = {form: (train(form), train(form)) for form in ("foreach", "fused", "plain")}
        for form, (first, second) in results.items():
            with self.subTest(form=form):
                self.assertEqual(first, second)
                self.assertEqual(len(set(first[0])), len(first[0]))
        self.assertNotEqual(train(seed=2)[0], results["foreach"][0][0])

    def test_the_size_of_list_groups_changes_no_bit(self):
        script = [sys.executable, os.path.abspath(__file__), "--train"]
        outputs = []
        for group in ("1", "3", "4096"):
            run = subprocess.run(script, env={**os.environ, "SIMCUDA_FOREACH_GROUP": group}, capture_output=True,
                                 text=True, check=True)
            outputs.append(run.stdout)
        self.assertIn("0x", outputs[0])
        self.assertEqual(len(set(outputs)), 1)

    def test_it_learns(self):
        torch.manual_seed(1)
        model = Gpt().to(CUDA)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        batch = torch.randint(0, 256, (BATCH, TOKENS + 1), device=CUDA)
        losses = []
        for _ in range(30):
            loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.assertLess(losses[-1], losses[0] / 2)

    def test_autocast(self):
        first, second = train(autocast=torch.bfloat16), train(autocast=torch.bfloat16)
        self.assertEqual(first, second)
        self.assertNotEqual(first, train())

    def test_gradient_scaler(self):
        first = train(autocast=torch.float16, scaler=torch.amp.GradScaler("cuda"))
        self.assertEqual(first, train(autocast=torch.float16, scaler=torch.amp.GradScaler("cuda")))

    def test_activation_checkpointing_changes_no_bit(self):
        self.assertEqual(train(recompute=True), train())

    def test_convolution_net(self):
        def run():
            torch.manual_seed(3)
            net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                                nn.Conv2d(8, 8, 3, groups=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
            net.to(CUDA)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
            for _ in range(4):
                x, y = torch.randn(8, 3, 16, 16, device=CUDA), torch.randint(0, 10, (8,), device=CUDA)
                optimizer.zero_grad()
                F.cross_entropy(net(x), y).backward()
                optimizer.step()
            return torch.cat([p.detach().flatten() for p in net.parameters()]).cpu()

        first = run()
        self.assertTrue(torch.equal(first, run()))
        self.assertTrue(first.isfinite().all())

    def test_save_and_load(self):
        torch.manual_seed(1)
        model = Gpt().to(CUDA)
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        other = Gpt().to(CUDA)
        other.load_state_dict(torch.load(file, map_location=CUDA))
        for a, b in zip(model.parameters(), other.parameters()):
            self.assertTrue(torch.equal(a, b))

    def test_compiled_with_aot_eager(self):
        function = torch.compile(lambda x: (x.sin() * 2).sum(), backend="aot_eager")
        x = torch.arange(6.0, device=CUDA, requires_grad=True)
        function(x).backward()
        torch.testing.assert_close(x.grad.cpu(), torch.arange(6.0).cos() * 2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--train", action="store_true", help="print one training's losses and hash")
    arguments, rest = parser.parse_known_args()
    if arguments.train:
        print(*[train(form) for form in ("foreach", "fused")])
    else:
        unittest.main(argv=[sys.argv[0], *rest])
