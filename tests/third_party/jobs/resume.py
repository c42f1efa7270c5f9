"""Hugging Face T5, stopped in the middle: torch.save of model, optimiser, schedule and random state, then a new start.

The resumed run must end with the bits of the one that was not interrupted.
"""

import tempfile
from pathlib import Path

import torch
from transformers import T5Config, T5ForConditionalGeneration


class Training:
    def __init__(self):
        torch.manual_seed(1)
        config = T5Config(vocab_size=1024, d_model=576, d_kv=64, d_ff=2304, num_layers=2, num_heads=9,
                          decoder_start_token_id=0, use_cache=False)  # fmt: skip
        self.model = T5ForConditionalGeneration(config).cuda().train()
        self.optimizer = torch.optim.NAdam(self.model.parameters(), lr=1e-3)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 2e-3, total_steps=100)
        self.data = torch.Generator().manual_seed(2)

    def run(self, steps):
        losses = []
        for _ in range(steps):
            source = torch.randint(1, 1024, (8, 48), generator=self.data).cuda()
            target = torch.randint(1, 1024, (8, 32), generator=self.data).cuda()
            loss = self.model(input_ids=source, labels=target).loss
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            losses.append(loss.item())
        return losses

    def save(self, path):
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                    "schedule": self.schedule.state_dict(), "data": self.data.get_state(),
                    "random": torch.get_rng_state(), "cuda_random": torch.cuda.get_rng_state()}, path)  # fmt: skip

    def load(self, path):
        saved = torch.load(path, map_location="cuda", weights_only=True)
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.schedule.load_state_dict(saved["schedule"])
        self.data.set_state(saved["data"].cpu())
        torch.set_rng_state(saved["random"].cpu())
        torch.cuda.set_rng_state(saved["cuda_random"].cpu())


def main(steps):
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "checkpoint.pt"
        training = Training()
        losses = training.run(steps // 2)
        training.save(checkpoint)
        losses += training.run(steps - steps // 2)
        uninterrupted = {name: value.cpu() for name, value in training.model.state_dict().items()}
        del training

        again = Training()
        again.load(checkpoint)
        losses += again.run(steps - steps // 2)
    return losses, {"uninterrupted": uninterrupted, "resumed": again.model, "optimizer": again.optimizer}
