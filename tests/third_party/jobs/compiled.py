"""Hugging Face BERT (masked words) under torch.compile(backend="aot_eager"): traced, functionalised, then run op by op."""

import torch
from transformers import BertConfig, BertForMaskedLM


def main(steps):
    torch.manual_seed(1)
    config = BertConfig(vocab_size=2048, hidden_size=576, num_hidden_layers=3, num_attention_heads=9,
                        intermediate_size=2304, max_position_embeddings=128)  # fmt: skip
    model = BertForMaskedLM(config).cuda().train()
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    data = torch.Generator().manual_seed(2)

    losses = []
    for _ in range(steps):
        words = torch.randint(2048, (8, 64), generator=data)
        hidden = torch.rand(8, 64, generator=data) < 0.15
        labels = torch.where(hidden, words, -100).cuda()
        loss = compiled(input_ids=torch.where(hidden, 0, words).cuda(), labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {"model": model, "optimizer": optimizer}
