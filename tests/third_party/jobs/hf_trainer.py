"""Hugging Face Trainer with GPT-2: bf16, accumulation, evaluation, checkpoints; then resumed from one by a new Trainer."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(Dataset):
    """Sequences that depend on nothing but their number."""

    def __init__(self, first, count):
        self.first, self.count = first, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if not 0 <= index < self.count:
            raise IndexError(index)
        tokens = torch.randint(1024, (96,), generator=torch.Generator().manual_seed(self.first + index))
        return {"input_ids": tokens, "labels": tokens}


def make_trainer(folder, steps):
    config = GPT2Config(vocab_size=1024, n_positions=128, n_embd=576, n_layer=4, n_head=9, use_cache=False)
    torch.manual_seed(1)
    arguments = TrainingArguments(
        output_dir=folder, max_steps=steps, per_device_train_batch_size=2, gradient_accumulation_steps=2, bf16=True,
        learning_rate=5e-4, logging_steps=1, eval_strategy="steps", eval_steps=2, save_steps=steps // 2,
        gradient_checkpointing=True, report_to=[], seed=1, data_seed=1, disable_tqdm=True,
    )  # fmt: skip
    return Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Tokens(0, 64), eval_dataset=Tokens(1000, 8))


def logged(trainer):
    return [entry[key] for entry in trainer.state.log_history for key in ("loss", "eval_loss") if key in entry]


def main(steps):
    with tempfile.TemporaryDirectory() as folder:
        whole = make_trainer(folder, steps)
        whole.train()
        losses = logged(whole)
        uninterrupted = {name: value.cpu() for name, value in whole.model.state_dict().items()}
        del whole
        torch.cuda.empty_cache()

        resumed = make_trainer(folder, steps)
        resumed.train(resume_from_checkpoint=f"{folder}/checkpoint-{steps // 2}")
    state = {"uninterrupted": uninterrupted, "resumed": resumed.model, "optimizer": resumed.optimizer.optimizer}
    return losses + logged(resumed), state
