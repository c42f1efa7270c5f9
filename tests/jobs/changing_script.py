"""Small training jobs whose iterations differ, each in a way of its own (--kind): for streams of launches
(tests/policy/streams/record.py) and for bench/lost_share.py. Plain PyTorch.

Writes losses and hashes as train_gpt.py does, and a list more: what each step was, how long it took, and Spillway's figures
after it where Spillway runs.
"""

import argparse
import copy
import hashlib
import json
import random
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "integration" / "examples"), str(ROOT / "integration" / "python")]

import torch  # noqa: E402  (the path comes first)
import train_gpt  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import spillway  # noqa: E402

WIDTH, HEADS, VOCABULARY, SEQUENCE = 512, 8, 1024, 64
KEEP_LAYER, EVALUATE, WITHOUT_TEACHER = 0.75, 0.35, 0.25  # chances
EVALUATE_EVERY, SMALLER_EVERY, SAMPLE_EVERY = 3, 5, 4
EXPERTS, RANK, PROMPT = 4, 64, 24


# ---- models ----------------------------------------------------------------------------------------------------


class Adapted(nn.Linear):
    """A frozen layer, and a product of two narrow matrices that is trained."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.requires_grad_(False)
        self.down = nn.Parameter(0.02 * torch.randn(RANK, inputs))
        self.up = nn.Parameter(torch.zeros(outputs, RANK))

    def forward(self, x):
        return super().forward(x) + F.linear(F.linear(x, self.down), self.up)


class Attention(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.inner, self.outer = linear(WIDTH, 3 * WIDTH), linear(WIDTH, WIDTH)

    def forward(self, x, cache):
        """`cache`: keys and values of earlier tokens, to which these are added; None: there are none to keep."""
        batch, tokens, _ = x.shape
        query, key, value = self.inner(x).view(batch, tokens, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        if cache is not None:
            if cache:
                key, value = torch.cat([cache[0], key], 2), torch.cat([cache[1], value], 2)
            cache[:] = key, value
        weights = torch.softmax(query @ key.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5, -1)
        return self.outer((weights @ value).transpose(1, 2).reshape(batch, tokens, WIDTH))


class Network(nn.Module):
    def __init__(self, linear, width):
        super().__init__()
        self.inner, self.outer = linear(WIDTH, width), linear(width, WIDTH)

    def forward(self, x):
        return self.outer(F.gelu(self.inner(x)))


class Experts(nn.Module):
    """Each token goes to one expert, by its content: how many go to each differs from step to step."""

    def __init__(self, linear):
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleList(Network(linear, 2 * WIDTH) for _ in range(EXPERTS))

    def forward(self, x):
        flat = x.reshape(-1, WIDTH)
        weights = torch.softmax(self.router(flat), -1)
        chosen, out = weights.argmax(-1), torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            tokens = (chosen == number).nonzero().squeeze(-1)
            if tokens.numel() > 0:
                out = out.index_add(0, tokens, expert(flat[tokens]) * weights[tokens, number : number + 1])
        return out.view_as(x)


class Layer(nn.Module):
    def __init__(self, linear, experts):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention(linear)
        self.network = Experts(linear) if experts else Network(linear, 4 * WIDTH)

    def forward(self, x, cache=None):
        x = x + self.attention(self.first(x), cache)
        return x + self.network(self.second(x))


class Model(nn.Module):
    def __init__(self, layers=3, outputs=VOCABULARY, linear=nn.Linear, experts=False):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer(linear, experts) for _ in range(layers))
        self.head = nn.Linear(WIDTH, outputs, bias=False)

    def body(self, x, kept=None, caches=None):
        for number, layer in enumerate(self.layers):
            if kept is None or kept[number]:
                x = layer(x, None if caches is None else caches[number])
        return x

    def forward(self, tokens, kept=None):
        return self.head(self.body(self.tokens(tokens), kept))

    def loss(self, tokens, targets, kept=None):
        return F.cross_entropy(self(tokens, kept).reshape(-1, VOCABULARY), targets.reshape(-1))


# ---- jobs ------------------------------------------------------------------------------------------------------


class Job:
    """Nothing changes; the base of the others. A step returns its name and its loss."""

    def __init__(self, args):
        self.batch, self.device = args.batch, torch.device("cuda")
        self.chance = random.Random(args.seed)
        self.generator = torch.Generator().manual_seed(args.seed)
        self.model = self.make_model().to(self.device)
        self.optimizer = self.make_optimizer(self.model)

    def make_model(self):
        return Model()

    def make_optimizer(self, model):
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        return torch.optim.AdamW(trained, lr=1e-3, foreach=False)

    def trained(self):
        """Models with their optimizers."""
        return [(self.model, self.optimizer)]

    def data(self, batch=None, length=SEQUENCE):
        rows = torch.randint(VOCABULARY, (batch or self.batch, length + 1), generator=self.generator).to(self.device)
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    def noise(self):
        return torch.randn(self.batch, SEQUENCE, WIDTH, generator=self.generator).to(self.device)

    @torch.no_grad()
    def evaluate(self, batches):
        self.model.eval()
        losses = [self.model.loss(*self.data(self.batch // 2)) for _ in range(batches)]
        self.model.train()
        return torch.stack(losses).sum()

    def train(self, batches=1, batch=None, length=SEQUENCE, kept=None):
        self.optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for _ in range(batches):
            loss = self.model.loss(*self.data(batch, length), kept) / batches
            loss.backward()
            total += loss.item()
        self.optimizer.step()
        return total

    def step(self, number):
        return "same", self.train()


class AnyLength(Job):
    """Sequences of any length."""

    def step(self, number):
        length = self.chance.randint(33, 96)
        return f"length {length}", self.train(length=length)


class LayerDrop(Job):
    """Layers but the first are left out at random."""

    def step(self, number):
        kept = [True] + [self.chance.random() < KEEP_LAYER for _ in self.model.layers[1:]]
        return "layers " + "".join(str(int(one)) for one in kept), self.train(kept=kept)


class SmallerFifth(Job):
    """Every fifth batch is smaller, as the last of an epoch."""

    def step(self, number):
        batch = self.batch if number % SMALLER_EVERY else self.batch // 2 + 1
        return f"batch {batch}", self.train(batch=batch)


class Mixed(Job):
    """One to three micro-batches, now and then an evaluation before them."""

    def step(self, number):
        batches = self.chance.randint(1, 3)
        evaluations = self.chance.randint(1, 3) if self.chance.random() < EVALUATE else 0
        if evaluations:
            self.evaluate(evaluations)
        return f"{batches} batches, {evaluations} evaluations", self.train(batches)


class Accumulation(Job):
    """One to four micro-batches; an evaluation every third step."""

    def step(self, number):
        batches, evaluation = self.chance.randint(1, 4), number % EVALUATE_EVERY == 0
        if evaluation:
            self.evaluate(2)
        return f"{batches} batches, {int(evaluation)} evaluations", self.train(batches)


class MixtureOfExperts(Job):
    """Routing by data."""

    def make_model(self):
        return Model(layers=2, experts=True)


class Gan(Job):
    """Two networks, whose optimizers step by turns."""

    def make_model(self):
        self.critic = Model(layers=2, outputs=1).to(self.device)
        self.critic_optimizer = self.make_optimizer(self.critic)
        return Model(layers=2)

    def trained(self):
        return [(self.model, self.optimizer), (self.critic, self.critic_optimizer)]

    def fake(self, tokens):
        return self.model.body(self.model.tokens(tokens))

    def judge(self, x):
        return self.critic.head(self.critic.body(x))

    def step(self, number):
        tokens, _ = self.data()
        real = self.noise()
        self.critic_optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            fake = self.fake(tokens)
        critic_loss = F.softplus(-self.judge(real)).mean() + F.softplus(self.judge(fake)).mean()
        critic_loss.backward()
        self.critic_optimizer.step()
        total = critic_loss.item()
        self.optimizer.zero_grad(set_to_none=True)
        loss = F.softplus(-self.judge(self.fake(tokens))).mean()
        loss.backward()
        self.optimizer.step()
        return "both", total + loss.item()


class Generation(Job):
    """Tokens are generated with a cache that grows by concatenation; then the model is trained on some of them."""

    def make_model(self):
        return Model(layers=2)

    @torch.no_grad()
    def generate(self, tokens):
        caches = [[] for _ in self.model.layers]
        newest = torch.randint(VOCABULARY, (2 * self.batch, PROMPT), generator=self.generator).to(self.device)
        rows = [newest]
        for _ in range(tokens):
            x = self.model.body(self.model.tokens(newest), caches=caches)
            newest = self.model.head(x[:, -1:]).argmax(-1)
            rows.append(newest)
        return torch.cat(rows, 1)

    def data(self, batch=None, length=SEQUENCE):
        rows = self.generated[:batch]
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    def step(self, number):
        tokens, batch = self.chance.randint(6, 14), self.chance.randint(self.batch - 4, self.batch + 2)
        self.generated = self.generate(tokens)
        return f"{tokens} tokens, batch {batch}", self.train(batch=batch)


class Lora(Job):
    """Narrow matrices beside frozen layers are trained; an evaluation every third step."""

    def make_model(self):
        model = Model(layers=4, linear=Adapted)
        for module in (model.tokens, model.head, *(norm for norm in model.modules() if isinstance(norm, nn.LayerNorm))):
            module.requires_grad_(False)
        return model

    def step(self, number):
        evaluation = number % EVALUATE_EVERY == 0
        if evaluation:
            self.evaluate(2)
        return f"{int(evaluation)} evaluations", self.train()


class Diffusion(Job):
    """A model learns to take noise away; a mean of its weights follows it, which makes samples every fourth step."""

    def make_model(self):
        model = Model(outputs=WIDTH)
        self.average = copy.deepcopy(model).to(self.device).requires_grad_(False)
        return model

    @torch.no_grad()
    def sample(self, steps):
        x = self.noise()
        for _ in range(steps):
            x = x - self.average.head(self.average.body(x)) / steps

    @torch.no_grad()
    def follow(self):
        for mean, now in zip(self.average.parameters(), self.model.parameters()):
            mean.lerp_(now, 0.01)

    def step(self, number):
        steps = self.chance.randint(2, 4) if number % SAMPLE_EVERY == 0 else 0
        if steps:
            self.sample(steps)
        tokens, _ = self.data()
        noise = self.noise()
        share = torch.rand(self.batch, 1, 1, generator=self.generator).to(self.device)
        self.optimizer.zero_grad(set_to_none=True)
        mixed = (1 - share) * self.model.tokens(tokens) + share * noise
        loss = F.mse_loss(self.model.head(self.model.body(mixed)), noise)
        loss.backward()
        self.optimizer.step()
        self.follow()
        return f"{steps} sampling steps", loss.item()


class Teacher(Job):
    """A frozen model of more layers teaches another; now and then that learns from labels alone."""

    def make_model(self):
        self.teacher = Model(layers=4).to(self.device).requires_grad_(False)
        return Model(layers=2)

    def step(self, number):
        taught = self.chance.random() >= WITHOUT_TEACHER
        if not taught:
            return "labels", self.train()
        tokens, targets = self.data()
        with torch.no_grad():
            wanted = torch.softmax(self.teacher(tokens), -1)
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.model(tokens)
        loss = F.cross_entropy(logits.reshape(-1, VOCABULARY), wanted.reshape(-1, VOCABULARY))
        loss = loss + F.cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1))
        loss.backward()
        self.optimizer.step()
        return "teacher", loss.item()


KINDS = {
    "static": Job, "varlen": AnyLength, "layerdrop": LayerDrop, "fifth": SmallerFifth, "mixed": Mixed, "accumulation": Accumulation,
    "moe": MixtureOfExperts, "gan": Gan, "generation": Generation, "lora": Lora, "diffusion": Diffusion, "teacher": Teacher,
}  # fmt: skip


# ---- without products ------------------------------------------------------------------------------------------


def leave_out_products():
    """Large matrix products give zeros on the stand-in, where they take most of the time. Each is launched as ever."""
    library = torch.library.Library("aten", "IMPL", "CPU")

    def multiply(first, second):
        if second.shape[-1] == EXPERTS:  # a router's, by which launches differ
            return torch.from_numpy(first.detach().numpy() @ second.detach().numpy())
        return first.new_zeros(*first.shape[:-1], second.shape[-1])

    library.impl("mm", multiply)
    library.impl("bmm", multiply)
    library.impl("addmm", lambda bias, first, second, *, beta=1, alpha=1: multiply(first, second))
    return library


# ---- the run ---------------------------------------------------------------------------------------------------


def figures():
    """Spillway's figures of the first device; None where it does not run."""
    try:
        return spillway.stats()["devices"][0]
    except (spillway.NotActiveError, IndexError):
        return None


def report(args, job, losses, notes):
    exact = [loss.hex() for loss in losses]
    states = [train_gpt.state_sha256(model, optimizer) for model, optimizer in job.trained()]
    return {
        "arguments": {**vars(args), "json": str(args.json)},
        "losses": exact,
        "losses_sha256": hashlib.sha256("\n".join(exact).encode()).hexdigest(),
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "state_sha256": hashlib.sha256("\n".join(states).encode()).hexdigest(),
        "notes": notes,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch", type=int, default=12, help="samples of 64 tokens")
    parser.add_argument("--seed", type=int, default=1, help="of weights, data and changes")
    parser.add_argument("--no-products", action="store_true", help="large matrix products are left out: for recordings on simcuda")
    parser.add_argument("--json", type=Path, help="write losses, hashes and figures here")
    args = parser.parse_args()
    library = leave_out_products() if args.no_products else None  # noqa: F841  (in force as long as it lives)
    torch.manual_seed(args.seed)
    torch.use_deterministic_algorithms(True, warn_only=True)
    job = KINDS[args.kind](args)
    losses, notes = [], []
    for number in range(1, args.steps + 1):
        begin = time.perf_counter()
        name, loss = job.step(number)
        torch.cuda.synchronize()
        losses.append(loss)
        notes.append({"step": name, "seconds": time.perf_counter() - begin, "figures": figures()})
    if args.json:
        args.json.write_text(json.dumps(report(args, job, losses, notes), indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
