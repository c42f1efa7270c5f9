"""LoRA by peft on a frozen bf16 Mistral (grouped-query attention); the adapter is saved and loaded onto a fresh base."""

import tempfile

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import MistralConfig, MistralForCausalLM


def make_base():
    torch.manual_seed(1)
    config = MistralConfig(vocab_size=4096, hidden_size=1024, intermediate_size=2816, num_hidden_layers=5,
                           num_attention_heads=16, num_key_value_heads=8, max_position_embeddings=256,
                           use_cache=False)  # fmt: skip
    return MistralForCausalLM(config).to(torch.bfloat16).cuda()


def main(steps):
    adapter = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, task_type="CAUSAL_LM",
                         target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])  # fmt: skip
    model = get_peft_model(make_base(), adapter).train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    data = torch.Generator().manual_seed(2)

    losses = []
    for _ in range(steps):
        tokens = torch.randint(4096, (4, 96), generator=data).cuda()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    trained = {name: value.cpu() for name, value in model.state_dict().items()}
    moments = optimizer.state_dict()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        del model
        loaded = PeftModel.from_pretrained(make_base(), folder, is_trainable=True)
    return losses, {"trained": trained, "loaded": loaded, "optimizer": moments}
