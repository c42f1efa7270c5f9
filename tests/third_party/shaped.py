"""Trains the model of a Hugging Face config file on random words, with the batch, sequence and optimizer that are asked for.

    python shaped.py CONFIG --batch 4 --sequence 64 --dtype autocast --optimizer adamw --steps 4 --json FILE

For estimates.py, which compares what `spillway estimate` says of the same options with what comes out here.
"""

import argparse
import contextlib
import json
import statistics
import time
from pathlib import Path

import torch
import transformers

MODELS = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "gpt2": "GPT2LMHeadModel", "bert": "BertForMaskedLM",
          "t5": "T5ForConditionalGeneration", "granite": "GraniteForCausalLM", "gpt_bigcode": "GPTBigCodeForCausalLM"}  # fmt: skip


def optimizer_of(name, parameters):
    if name.startswith("sgd"):
        return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9 if name == "sgd-momentum" else 0)
    forms = {"adamw": {}, "adamw-fused": {"fused": True}, "adamw-loop": {"foreach": False}}
    return torch.optim.AdamW(parameters, lr=1e-3, **forms[name])


def model_of(args):
    config = transformers.AutoConfig.from_pretrained(args.config)
    config.use_cache = False
    model = getattr(transformers, MODELS[config.model_type])(config)
    if args.dtype == "bf16":
        model = model.to(torch.bfloat16)
    model = model.cuda().train()
    if args.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model, config


def loss_of(model, config, args, data):
    def words(tokens):
        return torch.randint(1, config.vocab_size, (args.batch, tokens), generator=data).cuda()

    ids = words(args.sequence)
    labels = words(args.target or args.sequence) if config.model_type == "t5" else ids
    context = torch.autocast("cuda", torch.bfloat16) if args.dtype == "autocast" else contextlib.nullcontext()
    with context:
        return model(input_ids=ids, labels=labels).loss


def train(args):
    """Seconds of each iteration from the second on, by the clock and of processor time."""
    torch.manual_seed(1)
    model, config = model_of(args)
    optimizer = optimizer_of(args.optimizer, model.parameters())
    data = torch.Generator().manual_seed(2)
    seconds = []
    for _ in range(args.steps):
        torch.cuda.synchronize()
        begin = time.perf_counter(), time.process_time()
        for _ in range(args.accumulate):
            (loss_of(model, config, args, data) / args.accumulate).backward()
        if args.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        seconds.append((time.perf_counter() - begin[0], time.process_time() - begin[1]))
    return seconds[1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config")
    for name in ("batch", "sequence", "target", "accumulate"):
        parser.add_argument(f"--{name}", type=int, default=0 if name == "target" else 1)
    for name in ("dtype", "optimizer"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("checkpointing", "clip"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    wall, cpu = zip(*train(args))
    report = {"wall_s": statistics.median(wall), "cpu_s": statistics.median(cpu), "all_wall_s": wall, "all_cpu_s": cpu,
              "max_allocated_bytes": torch.cuda.max_memory_allocated(),
              "max_reserved_bytes": torch.cuda.max_memory_reserved()}  # fmt: skip
    args.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
