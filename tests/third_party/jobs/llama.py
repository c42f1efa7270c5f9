"""Hugging Face Llama from random weights: bf16 autocast, gradient checkpointing, AdamW, clipped gradients."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def main(steps):
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=2048, hidden_size=640, intermediate_size=1728, num_hidden_layers=3,
                         num_attention_heads=10, max_position_embeddings=256, use_cache=False)  # fmt: skip
    model = LlamaForCausalLM(config).cuda()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.Generator().manual_seed(2)

    losses = []
    for _ in range(steps):
        tokens = torch.randint(2048, (4, 64), generator=data).cuda()
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses, {"model": model, "optimizer": optimizer}
