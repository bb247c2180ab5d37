#!/usr/bin/env python3
"""Fifty steps of `ebb sft` beside transformers, PEFT and torch's AdamW: loss, memory, time.

    python tools/compare_curve.py --bin DIR [--device cuda|cpu] [--model SHAPE[:LAYERS]]
                                  [--method lora|full] [--length 2048] [--steps 50]
                                  [--exact-steps N] [--by-init] [--learning-rate X] [--csv FILE]
                                  [--work DIR] [--threads N] [-- KEY=VALUE ...]

DIR holds the program `ebb`. The model (shapes are in compare_kit.py) and the adapter (rank 16 on
every linear layer, B zero) are made at random and loaded by both sides. The data is text, the
project's own documentation with one token a byte, so that there is something to learn: one record
of --length ids a step, in the order of the file, a micro-batch each. Keys after -- go to `ebb sft`.

Three runs from the same start, with the same batches, linear schedule from --learning-rate, AdamW
(weight decay 0.01 on matrices), gradients clipped to a norm of 1, no dropout:
  ebb      bfloat16, with what Ebb keeps exact: adapters, or every weight, as float32 masters
  torch    the same arithmetic: for LoRA a bfloat16 model with PEFT's float32 adapters under
           autocast, for all weights a bfloat16 model whose float32 masters AdamW updates
  exact    float32 throughout, TF32 off; the first --exact-steps steps (all, but 10 where the model
           has more than two thousand million weights; 0: it is left out, and ebb and torch may be
           0.05 apart)

What must hold: of |loss - exact| over the steps, ebb's largest and its root mean square are at most
twice torch's, or 0.001 (of the loss itself: no curve is nearer to another than its rounding); the
learning rates are the same; the loss of the last five steps is below four fifths of the first, so
that something was compared.

Prints the curves, the differences, and of both sides memory and time: Ebb's start-up is until step
1 begins, its bytes are those of metrics.jsonl and run.json; PyTorch's are what its allocator
counts, and what the whole device has in use at the end. Both step times are medians without the
first five. Exit 0: all holds; 1: it does not; 2: something could not run.
SPDX-License-Identifier: Apache-2.0
"""

import argparse
import csv
import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import compare_kit as kit

import torch

WEIGHT_DECAY = 0.01
RATIO, FLOOR, FALL = 2.0, 1e-3, 0.8
ALONE = 0.05  # where there is no exact run to compare with
RATES = {"lora": 1e-3, "full": 2e-4}
DEFAULTS = {"cuda": ("qwen2.5-0.5b", 2048), "cpu": ("tiny-qwen2", 256)}
LARGE = 2e9
WARMUP = 5


# ---- Ebb -----------------------------------------------------------------------------------------


def by_ebb(args, model_dir, adapter_dir, data):
    """(metrics of the steps, run.json, seconds until step 1 began, seconds in all)."""
    out = os.path.join(args.dir, "ebb")
    command = [os.path.join(args.bin, "ebb"), "sft", "model_name_or_path=" + model_dir,
               "dataset_name=" + data, "output_dir=" + out, "device=" + args.device,
               "dtype=bfloat16", "shuffle=false", "dataset_cache=false", "save_strategy=no",
               f"max_steps={args.steps}", f"learning_rate={args.learning_rate}",
               "lr_scheduler_type=linear", f"weight_decay={WEIGHT_DECAY}", "max_grad_norm=1"]
    if adapter_dir:
        command.append("adapter_name_or_path=" + adapter_dir)
    if args.threads:
        command.append(f"threads={args.threads}")
    start, first, lines = time.time(), None, []
    process = subprocess.Popen(command + args.more, stderr=subprocess.PIPE,
                               stdout=subprocess.DEVNULL, text=True)
    for line in process.stderr:
        lines.append(line)
        if first is None and line.startswith("step "):
            first = time.time() - start
    if process.wait() != 0:
        kit.fail(f"{' '.join(command)}: exit {process.returncode}\n" + "".join(lines))
    whole = time.time() - start
    with open(os.path.join(out, "metrics.jsonl")) as file:
        steps = [json.loads(line) for line in file]
    with open(os.path.join(out, "run.json")) as file:
        record = json.load(file)
    steps = [step for step in steps if "learning_rate" in step]
    if len(steps) != args.steps:
        kit.fail(f"ebb made {len(steps)} steps instead of {args.steps}")
    shutil.rmtree(out)
    return steps, record, (first or whole) - steps[0]["step_seconds"], whole


# ---- PyTorch -------------------------------------------------------------------------------------


class Masters:
    """AdamW on float32 values of the trained parameters; narrower ones are copies of them."""

    def __init__(self, model, rate):
        self.trained = list(kit.trained(model).values())
        self.masters = [p if p.dtype == torch.float32 else p.detach().float()
                        for p in self.trained]
        matrices = [p for p in self.masters if p.dim() > 1]
        vectors = [p for p in self.masters if p.dim() <= 1]
        fused = self.masters[0].is_cuda
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}], lr=rate,
            betas=(0.9, 0.999), eps=1e-8, weight_decay=WEIGHT_DECAY, fused=fused)

    def update(self, rate):
        """Returns the norm before clipping."""
        for parameter, master in zip(self.trained, self.masters):
            if master is not parameter:
                master.grad = parameter.grad.float()
                parameter.grad = None
        norm = torch.nn.utils.clip_grad_norm_(self.masters, 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            for parameter, master in zip(self.trained, self.masters):
                if master is not parameter:
                    parameter.copy_(master)
        return float(norm)


def rate_of(args, step):
    """transformers' linear schedule without warm-up; step from 0."""
    return args.learning_rate * (args.steps - step) / args.steps


def by_torch(args, model_dir, adapter_dir, records, dtype, steps):
    """{"loss", "grad_norm", "seconds": [steps], and bytes}"""
    start = time.time()
    model = kit.load(model_dir, dtype, args.device, adapter_dir)
    masters = Masters(model, args.learning_rate)
    autocast = adapter_dir is not None and dtype == torch.bfloat16
    result = {"loss": [], "grad_norm": [], "seconds": [], "load": time.time() - start}
    cuda = args.device == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    for step in range(steps):
        start = time.time()
        ids = torch.tensor([records[step]], device=args.device)
        with torch.autocast(args.device, torch.bfloat16, enabled=autocast):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        result["grad_norm"].append(masters.update(rate_of(args, step)))
        result["loss"].append(loss.item())
        if cuda:
            torch.cuda.synchronize()
        result["seconds"].append(time.time() - start)
    result["allocated"] = torch.cuda.max_memory_allocated() if cuda else 0
    result["reserved"] = torch.cuda.max_memory_reserved() if cuda else 0
    free, total = torch.cuda.mem_get_info() if cuda else (0, 0)
    result["device"] = total - free
    del model, masters, loss
    gc.collect()
    kit.release(args.device)
    return result


# ---- Result --------------------------------------------------------------------------------------


def differences(a, b):
    """(largest, root mean square) over the steps that both have."""
    apart = [abs(x - y) for x, y in zip(a, b)]
    return max(apart), statistics.fmean(d * d for d in apart) ** 0.5


def print_curves(ebb, torch_run, exact):
    print(f"\n{'step':>4} {'lr':>9} {'ebb':>9} {'torch':>9} {'exact':>9} {'ebb-exact':>10} "
          f"{'torch-exact':>11} {'ebb-torch':>10}   norms: ebb, torch, exact")
    for i, step in enumerate(ebb):
        loss, peer = step["loss"], torch_run["loss"][i]
        norms = f"{step['grad_norm']:.4f} {torch_run['grad_norm'][i]:.4f}"
        if i < len(exact["loss"]):
            want = exact["loss"][i]
            middle = f"{want:9.5f} {loss - want:10.2e} {peer - want:11.2e}"
            norms += f" {exact['grad_norm'][i]:.4f}"
        else:
            middle = f"{'':9} {'':10} {'':11}"
        print(f"{i + 1:4} {step['learning_rate']:9.3e} {loss:9.5f} {peer:9.5f} {middle} "
              f"{loss - peer:10.2e}   {norms}")


def print_costs(args, ebb, record, startup, whole, runs):
    gib, tail = 2**30, ebb[WARMUP:] or ebb
    seconds = statistics.median(step["step_seconds"] for step in tail)
    plan = record["plan"]
    peak = {key: max(step[key] or 0 for step in ebb) / gib
            for key in ("predicted_device_bytes", "peak_device_bytes", "process_device_bytes")}
    print(f"\nebb      plan: {plan['what']}; predicted {peak['predicted_device_bytes']:.3f} GiB "
          f"(plan's {plan['device_bytes'] / gib:.3f}, with driver and libraries "
          f"{plan.get('total_bytes', 0) / gib:.3f}), peak {peak['peak_device_bytes']:.3f} GiB, "
          f"process {peak['process_device_bytes']:.3f} GiB\n         start-up {startup:.1f} s, "
          f"weights {record['load_seconds']:.1f} s of it, step {seconds:.4f} s, "
          f"{args.length / seconds:.0f} tokens/s; {whole:.1f} s in all; {record['versions']}")
    for name, run in runs.items():
        seconds = statistics.median(run["seconds"][WARMUP:] or run["seconds"])
        print(f"{name:8} allocated {run['allocated'] / gib:.3f} GiB, reserved "
              f"{run['reserved'] / gib:.3f} GiB, device in use {run['device'] / gib:.3f} GiB; "
              f"loading {run['load']:.1f} s, step "
              f"{seconds:.4f} s, {args.length / seconds:.0f} tokens/s")


def judge(args, ebb, torch_run, exact):
    """Prints each rule; returns whether all hold."""
    losses = [step["loss"] for step in ebb]
    rates = [abs(step["learning_rate"] - rate_of(args, i)) for i, step in enumerate(ebb)]
    apart = differences(losses, torch_run["loss"])
    last = statistics.fmean(losses[-5:])
    count = len(exact["loss"])
    rules = []
    if count > 0:
        ours, theirs = (differences(run, exact["loss"]) for run in (losses, torch_run["loss"]))
        rules = [
            (ours[0] <= max(RATIO * theirs[0], FLOOR),
             f"largest |loss - exact| over {count} steps: ebb {ours[0]:.2e}, torch "
             f"{theirs[0]:.2e}"),
            (ours[1] <= max(RATIO * theirs[1], FLOOR),
             f"its root mean square: ebb {ours[1]:.2e}, torch {theirs[1]:.2e}"),
        ]
    else:
        rules = [(apart[0] <= ALONE, f"no exact run: |ebb - torch| at most {ALONE}")]
    rules += [
        (max(rates) <= 1e-12, f"learning rates: {max(rates):.1e} apart"),
        (last <= FALL * losses[0], f"loss {losses[0]:.4f} at first, {last:.4f} at last"),
    ]
    print(f"\n     largest |ebb - torch| over {len(losses)} steps: {apart[0]:.2e}, root mean "
          f"square {apart[1]:.2e}")
    for good, text in rules:
        print(f"{'ok  ' if good else 'FAIL'} {text}")
    return all(good for good, _ in rules)


def write_csv(path, ebb, torch_run, exact):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["step", "learning_rate", "ebb", "torch", "exact", "ebb_norm",
                         "torch_norm", "exact_norm"])
        for i, step in enumerate(ebb):
            known = i < len(exact["loss"])
            writer.writerow([i + 1, step["learning_rate"], step["loss"], torch_run["loss"][i],
                             exact["loss"][i] if known else "", step["grad_norm"],
                             torch_run["grad_norm"][i], exact["grad_norm"][i] if known else ""])


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", required=True, help="where the program ebb is")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--model", help="SHAPE[:LAYERS] of compare_kit.py")
    parser.add_argument("--method", choices=["lora", "full"], default="lora")
    parser.add_argument("--length", type=int)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--exact-steps", type=int, help="0: no exact run")
    parser.add_argument("--by-init", action="store_true",
                        help="`ebb init MODEL` makes the model, one of its built-in shapes")
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--csv")
    parser.add_argument("--work", help="where models go for a while")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("more", nargs="*", help="keys of ebb sft, after --")
    args = parser.parse_args()
    model, length = DEFAULTS[args.device]
    args.model, args.length = args.model or model, args.length or length
    args.learning_rate = args.learning_rate or RATES[args.method]
    if args.steps < 10:
        parser.error("--steps from 10 on")
    return args


def compare(args):
    begin = time.time()
    model_dir, adapter_dir = os.path.join(args.dir, "model"), None
    if args.by_init:
        kit.run_init(args.bin, "config=" + args.model, "dtype=bfloat16", "output_dir=" + model_dir)
    else:
        kit.make_model(model_dir, args.model, args.device)
    kit.release(args.device)
    kit.add_tokenizer(args.bin, args.dir, model_dir)
    if args.method == "lora":
        adapter_dir = os.path.join(args.dir, "adapter")
        kit.make_adapter(adapter_dir, args.model, 16, 32, 0.0)
    data = os.path.join(args.dir, "data.jsonl")
    records = kit.make_data(data, args.length, args.steps)
    exact_steps = args.exact_steps
    if exact_steps is None:
        exact_steps = 10 if args.parameters > LARGE else args.steps
    print(f"{kit.versions()}\n{args.model} ({args.parameters / 1e6:.0f} million weights), "
          f"{args.method}, length {args.length}, {args.steps} steps, learning rate "
          f"{args.learning_rate}; files in {args.dir}; made in {time.time() - begin:.1f} s",
          flush=True)

    ebb, record, startup, whole = by_ebb(args, model_dir, adapter_dir, data)
    runs = {"torch": by_torch(args, model_dir, adapter_dir, records, torch.bfloat16, args.steps)}
    exact = {"loss": [], "grad_norm": []}
    if exact_steps > 0:
        exact = runs["exact"] = by_torch(args, model_dir, adapter_dir, records, torch.float32,
                                         min(exact_steps, args.steps))
    print_curves(ebb, runs["torch"], exact)
    print_costs(args, ebb, record, startup, whole, runs)
    if args.csv:
        write_csv(args.csv, ebb, runs["torch"], exact)
    good = judge(args, ebb, runs["torch"], exact)
    print(f"{'PASS' if good else 'FAIL'} in {time.time() - begin:.0f} s")
    return good


def main():
    args = arguments()
    kit.quiet()
    if args.threads:
        torch.set_num_threads(args.threads)
    args.parameters = kit.parameters_of(args.model)[1]
    # The model in bfloat16; beside it the trained one, or adapters.
    room = (5 if args.method == "full" else 3) * args.parameters
    args.dir = kit.work_dir(args.work, "compare_curve_", room)
    try:
        good = compare(args)
    finally:
        shutil.rmtree(args.dir, ignore_errors=True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
