#!/usr/bin/env python3
"""Measures a training step of PyTorch with transformers (and PEFT) on the CPU, to compare with.

    python tools/bench_torch.py CONFIG.json [--method full|lora] [--dtype float32|bfloat16]
                                [--tokens 1024] [--documents 1] [--threads 2] [--steps 5]
                                [--warmup 2] [--checkpointing] [--lora-r 16] [--seed 1]
                                [--cpu-time]

The model is made from CONFIG.json with random weights. One step is one sequence batch of --tokens
tokens in all (--documents rows of equal length), every token but the first of a row a target:
forward with SDPA attention and the standard loss (all the logits at once, cross-entropy in
float32), backward, AdamW, gradients set to none. LoRA goes on every linear layer but
the head, with PEFT.

bfloat16 means weights, activations, gradients and AdamW's moments in bfloat16, as
`from_pretrained(dtype=bfloat16)` trains; PEFT keeps adapters in float32 there.

Prints one JSON object: tokens_per_second from the median of --steps steps after --warmup, each
step's seconds, peak resident memory of the process, parameters, first and last loss (falling, for
the same batch is used throughout), versions. Nothing else should run on the machine meanwhile:
load_before is its load average of the last minute when the measurement began. Where that cannot be
had, --cpu-time with --threads 1 counts processor seconds instead, which others disturb less.
SPDX-License-Identifier: Apache-2.0
"""

import argparse
import json
import os
import platform
import resource
import statistics
import sys
import time
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"  # read on import

import torch
import transformers


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("config")
    parser.add_argument("--method", choices=["full", "lora"], default="full")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--tokens", type=positive, default=1024)
    parser.add_argument("--documents", type=positive, default=1)
    parser.add_argument("--threads", type=positive, default=2)
    parser.add_argument("--steps", type=positive, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--lora-r", type=positive, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cpu-time", action="store_true")
    args = parser.parse_args()
    if args.tokens % args.documents or args.tokens // args.documents < 2:
        parser.error("--tokens must be a multiple of --documents, with at least 2 each")
    return args


def make_model(args):
    config = transformers.AutoConfig.from_pretrained(args.config)
    model = transformers.AutoModelForCausalLM.from_config(
        config, dtype=getattr(torch, args.dtype), attn_implementation="sdpa"
    )
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    if args.method == "lora":
        import peft

        versions["peft"] = peft.__version__
        model = peft.get_peft_model(
            model,
            peft.LoraConfig(
                r=args.lora_r,
                lora_alpha=2 * args.lora_r,
                lora_dropout=0.0,
                target_modules="all-linear",
                task_type="CAUSAL_LM",
            ),
        )
    if args.checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train(), config, versions


def measure(model, optimizer, ids, args):
    """Seconds and loss of each step, warm-up included."""
    seconds, losses = [], []
    clock = time.process_time if args.cpu_time else time.perf_counter
    for _ in range(args.warmup + args.steps):
        start = clock()
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(clock() - start)
        losses.append(float(loss.detach()))
    return seconds, losses


def main():
    args = arguments()
    load = os.getloadavg()[0]
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    model, config, versions = make_model(args)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.01)
    rows = args.tokens // args.documents
    ids = torch.randint(config.vocab_size, (args.documents, rows))
    seconds, losses = measure(model, optimizer, ids, args)
    timed = seconds[args.warmup :]
    if not all(loss == loss for loss in losses):
        sys.exit("bench_torch: the loss is not a number")
    print(
        json.dumps(
            {
                "config": args.config,
                "method": args.method,
                "dtype": args.dtype,
                "tokens": args.tokens,
                "documents": args.documents,
                "threads": args.threads,
                "checkpointing": args.checkpointing,
                "clock": "processor" if args.cpu_time else "wall",
                "parameters": sum(p.numel() for p in model.parameters()),
                "trainable": sum(p.numel() for p in trained),
                "tokens_per_second": round(args.tokens / statistics.median(timed), 2),
                "step_seconds_median": round(statistics.median(timed), 4),
                "step_seconds": [round(s, 4) for s in timed],
                "warmup_seconds": [round(s, 4) for s in seconds[: args.warmup]],
                "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                "first_loss": round(losses[0], 4),
                "last_loss": round(losses[-1], 4),
                "machine": {"cpu": cpu_name(), "cores": os.cpu_count(), "load_before": load},
                "versions": {"python": platform.python_version(), **versions},
            },
            indent=2,
        )
    )


def cpu_name():
    try:
        with open("/proc/cpuinfo") as f:
            return next(line.split(":")[1].strip() for line in f if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


if __name__ == "__main__":
    main()
