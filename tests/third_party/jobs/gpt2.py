"""Hugging Face GPT-2: dropout, gradient accumulation, a learning-rate schedule, an evaluation every second step."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, get_cosine_schedule_with_warmup

ACCUMULATION = 2


@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    total = sum(model(input_ids=tokens, labels=tokens).loss for tokens in batches)
    model.train()
    return (total / len(batches)).item()


def main(steps):
    torch.manual_seed(1)
    config = GPT2Config(vocab_size=1024, n_positions=128, n_embd=576, n_layer=3, n_head=9, use_cache=False)
    model = GPT2LMHeadModel(config).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.1, fused=True)
    schedule = get_cosine_schedule_with_warmup(optimizer, 2, 100)
    data = torch.Generator().manual_seed(2)
    held_out = [torch.randint(1024, (4, 64), generator=data).cuda() for _ in range(2)]

    losses = []
    for step in range(1, steps + 1):
        for _ in range(ACCUMULATION):
            tokens = torch.randint(1024, (2, 64), generator=data).cuda()
            loss = model(input_ids=tokens, labels=tokens).loss / ACCUMULATION
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 2 == 0:
            losses.append(evaluate(model, held_out))
    return losses, {"model": model, "optimizer": optimizer}
