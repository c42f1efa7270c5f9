"""state_dict, torch.save and Hugging Face's save_pretrained while most of the model is away, and everything loaded again."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def make(seed):
    torch.manual_seed(seed)
    return GPT2LMHeadModel(GPT2Config(vocab_size=4096, n_positions=64, n_embd=512, n_layer=5, n_head=8, use_cache=False)).cuda()


def main(scene):
    model = make(scene.seed).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.Generator().manual_seed(scene.seed)
    seen, kept = [], None
    for step in range(3):
        tokens = torch.randint(4096, (2, 24), generator=data).cuda()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seen.append(loss.item())
        kept = {name: value.cpu() for name, value in model.state_dict().items()}
        torch.save(optimizer.state_dict(), scene.folder / "optimizer.pt")
        model.save_pretrained(scene.folder)
    loaded = GPT2LMHeadModel.from_pretrained(scene.folder).cuda()
    saved = torch.load(scene.folder / "optimizer.pt", map_location="cpu")
    return seen, {"kept": kept, "loaded": loaded, "model": model, "optimizer": optimizer, "saved": saved}
