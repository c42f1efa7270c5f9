"""Two steps of AdamW on a dozen weights of 2 MiB, in one of PyTorch's forms; prints a hash of the result."""

import argparse
import hashlib
import json
from pathlib import Path

import torch

FORMS = {"foreach": {"foreach": True}, "fused": {"fused": True}, "plain": {"foreach": False, "fused": False}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--form", choices=FORMS, required=True)
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    generator = torch.Generator().manual_seed(1)
    weights = [torch.nn.Parameter(torch.randn(512, 1024, generator=generator).cuda()) for _ in range(12)]
    optimizer = torch.optim.AdamW(weights, lr=1e-2, **FORMS[args.form])
    for step in range(2):
        for i, weight in enumerate(weights):
            weight.grad = torch.full_like(weight, 0.01 * (i + 1 + step))
        optimizer.step()
    digest = hashlib.sha256(b"".join(weight.detach().cpu().numpy().tobytes() for weight in weights))
    args.json.write_text(json.dumps({"sha256": digest.hexdigest()}))


if __name__ == "__main__":
    main()
