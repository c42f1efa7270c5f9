"""Trains a model of the table (visit.sh --stage table) for a few iterations: natively, or with a peer's code.

    python table_step.py --model qwen3|vit|decoder [--peer torchao|torchtune|save_on_cpu] [--checkpointed 0]
                  [--part N] [--dtype fp32] [--json FILE]

Plain PyTorch with random weights and data. The models are written here in the shapes that were published: a machine with a GPU
may have no transformers and no timm. Qwen3-0.6B is trained in fp32 under bf16 autocast, DINOv2's ViT-giant and the decoder of 1B in
bf16 with checkpointed layers, all with fused AdamW. --checkpointed 0: the decoder's layers keep their activations. --part N: width,
depth and vocabulary divided by N. --dtype fp32: nothing is in bf16.
"""

import contextlib
import importlib
import importlib.util
import sys
import types

import steps
import torch
from llama_step import Decoder, Shape
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

CLASSES = 45  # of the pictures that the published ViT was trained on
PIECE = 4096  # tokens whose logits are there at once, where layers are checkpointed


class PictureLayer(nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.network_norm = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.query_key_value, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * hidden), nn.Linear(hidden, width)
        self.attention_scale, self.network_scale = (nn.Parameter(torch.full((width,), 1e-5)) for _ in range(2))

    def forward(self, x):
        parts = self.query_key_value(self.attention_norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2)
        x = x + self.attention_scale * self.out(attended)
        gate, value = self.up(self.network_norm(x)).chunk(2, -1)
        return x + self.network_scale * self.down(F.silu(gate) * value)


class PictureModel(nn.Module):
    """A vision transformer; its layers' activations are computed again in the backward pass."""

    def __init__(self, width, layers, heads, hidden, picture, patch):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, 1 + (picture // patch) ** 2, width))
        self.layers = nn.ModuleList(PictureLayer(width, heads, hidden) for _ in range(layers))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.output = nn.Linear(width, CLASSES)

    def forward(self, pictures):
        x = self.patches(pictures).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(len(x), -1, -1), x), 1) + self.positions
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return self.output(self.norm(x)[:, 0])


def make_pictures(args):
    """ViT-giant, 1.1B parameters, and its loss on so many random pictures."""
    model = PictureModel(1536 // args.part, 40 // args.part, 24 // args.part, 4096 // args.part, picture=224, patch=14)

    def loss(data):
        pictures = torch.randn(args.batch, 3, 224, 224, generator=data, device="cuda")
        return F.cross_entropy(model(pictures).float(), torch.randint(CLASSES, (args.batch,), generator=data, device="cuda"))

    return model, loss, args.batch


def make_decoder(args, shape):
    model = Decoder(shape)
    nn.init.normal_(model.tokens.weight, std=0.02)
    nn.init.normal_(model.output.weight, std=0.02)

    def of_piece(hidden, targets):
        return F.cross_entropy(model.output(hidden).float(), targets)

    def loss(data):
        tokens = torch.randint(shape.vocabulary, (args.batch, shape.sequence + 1), generator=data, device="cuda")
        hidden, targets = model.hidden(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()
        if not shape.checkpointed:
            return of_piece(hidden, targets)
        pieces = list(zip(hidden.split(PIECE), targets.split(PIECE)))
        return sum(checkpoint(of_piece, *piece, use_reentrant=False) for piece in pieces) / len(pieces)

    return model, loss, args.batch * shape.sequence


def make(args):
    """A model, its loss and the samples of one, by the name of --model."""
    n = args.part
    if args.model == "vit":
        return make_pictures(args)
    if args.model == "qwen3":
        return make_decoder(args, Shape(1024 // n, 28 // n, 3072 // n, 16 // n, max(1, 8 // n), 151936 // n, args.sequence, head_size=128,
                                        head_norms=True, tied=True))  # fmt: skip
    return make_decoder(args, Shape(2048 // n, 20 // n, 5440 // n, 32 // n, max(1, 8 // n), 32768 // n, args.sequence,
                                    checkpointed=bool(args.checkpointed)))  # fmt: skip


# ---- other people's code


def torchao_optimizer(parameters):
    from torchao.optim import CPUOffloadOptimizer

    return CPUOffloadOptimizer(parameters, torch.optim.AdamW, fused=True, lr=1e-4)


def torchtune_offloading(model):
    """OffloadActivations as torchtune's recipes use it. Its packages are made without what their __init__ files import, which wants
    packages for text and data sets; each file that is used is torchtune's own."""
    found = importlib.util.find_spec("torchtune")
    if found is None:
        raise ModuleNotFoundError("No module named 'torchtune'")
    for name in ("torchtune", "torchtune.modules", "torchtune.utils", "torchtune.training"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = ["/".join([found.submodule_search_locations[0], *name.split(".")[1:]])]
    sys.modules["torchtune.modules"].TiedLinear = importlib.import_module("torchtune.modules.tied_linear").TiedLinear
    sys.modules["torchtune.utils"].get_logger = importlib.import_module("torchtune.utils._logging").get_logger
    if importlib.util.find_spec("psutil") is None:  # a warning about the host's memory is all that hangs on it
        sys.modules["psutil"] = types.ModuleType("psutil")
        sys.modules["psutil"].virtual_memory = lambda: types.SimpleNamespace(percent=0.0)
    return importlib.import_module("torchtune.training._activation_offloading").get_act_offloading_ctx_manager(model, True)


def main():
    args = steps.parse_arguments("table_step", model="decoder", peer="", part=1, batch=1, sequence=1024, accumulation=1, checkpointed=1, dtype="bf16")
    device = steps.start(args)
    autocast = args.model == "qwen3" and args.dtype == "bf16"
    with device:
        torch.set_default_dtype(torch.float32 if autocast or args.dtype == "fp32" else torch.bfloat16)
        model, loss, samples = make(args)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} million parameters", flush=True)
    data = torch.Generator(device).manual_seed(args.seed)
    optimizer = torchao_optimizer(model.parameters()) if args.peer == "torchao" else torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    around = {"torchtune": torchtune_offloading, "save_on_cpu": lambda _: torch.autograd.graph.save_on_cpu(pin_memory=True)}
    context = around.get(args.peer, lambda _: contextlib.nullcontext())(model)

    def loss_of_step():
        with context, torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            return loss(data)

    steps.train(args, model, optimizer, loss_of_step, samples * args.accumulation, args.accumulation, hash_state=not args.peer)


if __name__ == "__main__":
    main()
