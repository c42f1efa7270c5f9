"""Runs the callbacks of docs/using.md as they stand there, each in the library that it is for, on a job that spills."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

BLOCKS = """
import torch
kept = [torch.ones(4 << 20, device="cuda") for _ in range(10)]  # 160 MiB: something has been spilled from here on
"""
LIGHTNING = (BLOCKS + """
class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
    def training_step(self, batch, index):
        return self.layer(batch).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

logger = pl.loggers.CSVLogger(".")
trainer = pl.Trainer(max_epochs=1, accelerator="cuda", devices=1, callbacks=[SpillwayFigures()], logger=logger, log_every_n_steps=1,
                     enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Model(), torch.utils.data.DataLoader(torch.randn(4, 8), batch_size=2))
import csv, pathlib
rows = list(csv.DictReader(open(next(pathlib.Path(".").rglob("metrics.csv")))))
print("spilled", [float(row["spillway/spilled_bytes"]) > 0 for row in rows])
""")  # fmt: skip
HUGGING_FACE = (BLOCKS + """
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2))
data = [{"input_ids": torch.arange(8), "labels": torch.arange(8)}] * 4
arguments = TrainingArguments(output_dir=".", max_steps=2, logging_steps=1, report_to=[], save_strategy="no", disable_tqdm=True)
trainer = Trainer(model=model, args=arguments, train_dataset=data, callbacks=[SpillwayFigures()])
trainer.train()
print("spilled", [entry["spillway_spilled_bytes"] > 0 for entry in trainer.state.log_history if "loss" in entry])
""")
TENSORBOARD = (BLOCKS + """
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter(".")
for step in range(2):
    write_figures(writer, step)
writer.close()
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(".")
events.Reload()
print("spilled", [event.value > 0 for event in events.Scalars("spillway/spilled_bytes")])
""")
# A name that stands in the block of the page, and the job that uses it.
JOBS = (("pl.Callback", LIGHTNING), ("TrainerCallback", HUGGING_FACE), ("def write_figures", TENSORBOARD))


def run(args, code, folder):
    script = Path(folder) / "job.py"
    script.write_text(code, encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPILLWAY", "PYTORCH_"))}
    environment.update(LD_PRELOAD=str(args.build / "lib" / "libspillway.so"), SPILLWAY_GPU_MEMORY="96MiB", SPILLWAY_DIRS="none",
                       SPILLWAY_HOST_MEMORY="1GiB", PYTHONPATH=str(ROOT / "integration" / "python"), OMP_NUM_THREADS="1")  # fmt: skip
    command = [args.build / "bin" / "simcuda-run", "--memory", "256MiB", "--mode", "strict", "--", sys.executable, script]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=250, check=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    args = parser.parse_args()
    page = (ROOT / "docs" / "using.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    failed = 0
    for name, job in JOBS:
        block = next(block for block in blocks if name in block)
        with tempfile.TemporaryDirectory() as folder:
            done = run(args, block + job, folder)
        good = done.returncode == 0 and "spilled [True, True]" in done.stdout
        print(f"{'passed' if good else 'FAILED'}  {name}", flush=True)
        if not good:
            print(done.stdout[-2000:] + done.stderr[-4000:])
        failed += not good
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
