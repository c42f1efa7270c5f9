"""train_gpt.py with PyTorch's own way of saving device memory: activations wait in pinned host memory."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "integration" / "examples"))

import torch
import train_gpt

with torch.autograd.graph.save_on_cpu(pin_memory=True):
    train_gpt.main()
