#!/usr/bin/env python3
"""Memory and speed of `ebb kd` beside PyTorch: a frozen teacher, a LoRA student, forward KL.

    python tools/compare_kd.py --bin DIR [--device cuda|cpu] [--lengths 2048,8192,32768] [--quick]
                               [--teacher SHAPE[:LAYERS]] [--student SHAPE[:LAYERS]] [--steps 6]
                               [--budget 0.6] [--only ebb|torch] [--csv FILE] [--limit S] [--time S]
                               [--work DIR] [--threads N] [-- KEY=VALUE ...]

DIR holds the program `ebb`, which makes teacher and student at random (shapes are in
compare_kit.py); the adapter is of rank 16 on every linear layer, B zero; both sides load the same
files. The data is text, the project's own documentation with one token a byte: one record of
exactly --lengths ids a step, a micro-batch each, so that the loss is over all tokens. Loss:
0.5 cross-entropy + 0.5 KL(teacher, student), AdamW, linear schedule, gradients clipped to a norm
of 1. Keys after -- go to `ebb kd`. --quick is the shortest length only.

Ebb, bfloat16 with float32 adapters:
  ebb kept      everything that the backward pass needs stays on the device
  ebb offload   gradient_checkpointing and activation_offloading: inputs of layers go to the host
  ebb planned   memory_budget of --budget of what `kept` planned; where weights alone are about as
                much, what `offload` planned and a quarter of the way from there to `kept`
PyTorch, as torchtune's recipe of knowledge distillation does it: bfloat16 throughout, the student
with PEFT and each layer checkpointed, the teacher under no_grad, both models' logits in 8 chunks
that live together, torchtune's formula of forward KL with chunked output, one chunk in float32 at
a time:
  torch ckpt    that
  torch offload and what the checkpoints save moves to the host: by torchtune's OffloadActivations
                where torchtune can be imported, else by torch's save_on_cpu with pinned memory

What must hold, at each length: |loss(ebb) - loss(torch)| at most 0.05 in every step, of the loss
and of its two parts (torchtune's forward KL leaves the teacher's entropy out; it is measured after
the timed steps and taken off); norms of gradients at most a tenth apart; the first step's loss is
the same bits in all plans of Ebb; Ebb's arena is exactly as predicted, and within the budget; bytes
move where they should; the loss falls, so that something was compared. PyTorch out of memory, or
a part of it beyond --limit seconds or beyond --time seconds of the whole, is said in the table; it
fails nothing as long as one run of PyTorch's is there to compare with at some length. Where a run
of Ebb's is missing, the exit code is 2.

The table, one row a run: Ebb's arena predicted and measured, its process as the driver counts it;
what PyTorch's allocator gave out and reserved at most, what the whole device has in use at the end;
tokens a second (the median step without the first two); what moved to the host in a step; and the
largest difference of a loss from the other side. On the CPU device memory is simulated and
PyTorch's is not counted. Exit 0: all holds; 1: it does not; 2: something could not run.
SPDX-License-Identifier: Apache-2.0
"""

import argparse
import csv
import gc
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from math import isfinite

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import compare_kit as kit

import torch
from torch.nn.functional import cross_entropy, log_softmax, softmax

KD_RATIO, RANK, ALPHA, WEIGHT_DECAY, RATE, CHUNKS, IGNORE = 0.5, 16, 32, 0.01, 3e-4, 8, -100
ALONE, NORMS = 0.05, 0.1
WARMUP = 2
NO_MEMORY = ["out of memory", "ALLOC_FAILED"]  # of allocators, and of libraries
EBB = {"kept": ["gradient_checkpointing=false", "activation_offloading=false"],
       "offload": ["gradient_checkpointing=true", "activation_offloading=true"],
       "planned": []}
MODES = ["ckpt", "offload"]
DEFAULTS = {"cuda": ("qwen2-1.5b", "qwen2-0.5b", "2048,8192,32768"),
            "cpu": ("tiny-qwen2-wide", "tiny-qwen2", "128,256,512")}
STARTUP = 60  # seconds more for the first part of a process that imports PyTorch
PARTS = ("loss", "ce_loss", "kd_loss")
FIELDS = ["length", "side", "mode", "note", "predicted", "peak", "process", "allocated", "reserved",
          "device", "tokens_per_second", "bytes_out", "budget", "startup"]


# ---- Ebb -----------------------------------------------------------------------------------------


def run_limited(command, seconds):
    """(exit code or None where it took too long, seconds, last lines of stderr)"""
    start = time.time()
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                               text=True)
    try:
        errors = process.communicate(timeout=max(seconds, 1))[1]
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return None, time.time() - start, ""
    return process.returncode, time.time() - start, errors


def ebb_command(args, length, mode, budget):
    out = os.path.join(args.dir, "out")
    command = [os.path.join(args.bin, "ebb"), "kd", "model_name_or_path=" + args.student_dir,
               "teacher_model_name_or_path=" + args.teacher_dir,
               "adapter_name_or_path=" + args.adapter_dir,
               "dataset_name=" + data_of(args, length), "output_dir=" + out,
               "kd_loss=forward_kl", f"kd_ratio={KD_RATIO}", "device=" + args.device,
               "dtype=bfloat16", "shuffle=false", "dataset_cache=false", "save_strategy=no",
               f"max_steps={args.steps}", f"learning_rate={args.learning_rate}",
               "lr_scheduler_type=linear", f"weight_decay={WEIGHT_DECAY}", "max_grad_norm=1"]
    if budget:
        command.append(f"memory_budget={budget}")
    if args.threads:
        command.append(f"threads={args.threads}")
    return command + EBB[mode] + args.more


def by_ebb(args, length, mode, budget):
    """One row of the table."""
    row = {"length": length, "side": "ebb", "mode": mode, "note": "", "budget": budget}
    out, seconds = os.path.join(args.dir, "out"), part_seconds(args)
    if seconds <= 0:
        return dict(row, note="no time left")
    shutil.rmtree(out, ignore_errors=True)
    command = ebb_command(args, length, mode, budget)
    code, whole, errors = run_limited(command, seconds)
    if code is None:
        return dict(row, note=f"more than {seconds:.0f} s")
    if code != 0:
        print(f"{' '.join(command)}: exit {code}\n{errors}")
        return dict(row, note=f"exit {code}")
    with open(os.path.join(out, "metrics.jsonl")) as file:
        steps = [step for step in map(json.loads, file) if "learning_rate" in step]
    with open(os.path.join(out, "run.json")) as file:
        record = json.load(file)
    shutil.rmtree(out)
    if len(steps) != args.steps:
        return dict(row, note=f"{len(steps)} steps instead of {args.steps}")
    plan = record["plan"]
    row.update({key: [step[key] for step in steps] for key in PARTS + ("grad_norm",)})
    row["seconds"] = [step["step_seconds"] for step in steps]
    for key in ("predicted", "peak", "process"):
        row[key] = max(step[key + "_device_bytes"] or 0 for step in steps)
    return dict(row, bytes_out=steps[-1]["bytes_out"], startup=whole - sum(row["seconds"]),
                note=plan["what"], total=plan["total_bytes"], versions=record["versions"])


def ebb_rows(args, length):
    """The plans in turn; the later ones have budgets from what the earlier ones planned."""
    simulated = args.device == "cpu"  # nothing moves there without a budget
    kept = by_ebb(args, length, "kept", None)
    print_progress(kept)
    most = kept.get("total")
    offload = by_ebb(args, length, "offload", most or "90%" if simulated else None)
    print_progress(offload)
    budget = f"{round(100 * args.budget)}%"
    if most:
        least = offload.get("total", 0)
        budget = int(max(args.budget * most, least + (most - least) / 4))
    planned = by_ebb(args, length, "planned", budget)
    print_progress(planned)
    return [kept, offload, planned]


# ---- PyTorch, in a process of its own ------------------------------------------------------------


def chunked_forward_kl(student, teacher, labels):
    """torchtune's ForwardKLWithChunkedOutputLoss: cross-entropy of the teacher's distribution."""
    total, count = 0.0, (labels != IGNORE).sum()
    for s, t, l in zip(student, teacher, labels.tensor_split(CHUNKS, dim=1)):
        s, t, mask = s.flatten(0, 1), t.flatten(0, 1), (l != IGNORE).int().flatten()
        p = softmax(t, dim=-1, dtype=torch.float32)
        log_q = log_softmax(s, dim=-1, dtype=torch.float32)
        each = torch.masked_fill(p * log_q, torch.isinf(s), 0).sum(-1)
        total = total - (each * mask).sum()
    return total / count


def chunked_ce(student, labels):
    total, count = 0.0, (labels != IGNORE).sum()
    for s, l in zip(student, labels.tensor_split(CHUNKS, dim=1)):
        total = total + cross_entropy(s.flatten(0, 1).float(), l.flatten(), ignore_index=IGNORE,
                                      reduction="sum")
    return total / count


def logits_of(model, ids, context=None):
    """The head's output in chunks; what the layers save is saved within the context."""
    if context is None:
        hidden = model.model(input_ids=ids).last_hidden_state
    else:
        with context:
            hidden = model.model(input_ids=ids).last_hidden_state
    return [model.lm_head(chunk) for chunk in hidden.tensor_split(CHUNKS, dim=1)]


def shifted(ids):
    return torch.cat([ids[:, 1:], torch.full_like(ids[:, :1], IGNORE)], dim=1)


class Offloading:
    """Saved-tensor hooks that move to the host, and how many bytes they moved."""

    def __init__(self, device):
        self.moved = 0
        try:
            from torchtune.training import OffloadActivations

            self.context, self.name, least = OffloadActivations(), "OffloadActivations", 1024
        except Exception:  # not there, or not whole: it imports much that it does not need here
            pinned = device == "cuda"
            self.context = torch.autograd.graph.save_on_cpu(pin_memory=pinned)
            self.name, least = "save_on_cpu", 0
        pack = self.context.pack_hook

        def counted(tensor):
            fixed = isinstance(tensor, (torch.nn.Parameter, torch.nn.Buffer))
            if not (least and (fixed or tensor.nbytes < least)):
                self.moved += tensor.nbytes
            return pack(tensor)

        self.context.pack_hook = counted


def load_pair(args):
    """(teacher, PEFT's student, its base model)"""
    teacher = kit.load(args.teacher_dir, torch.bfloat16, args.device).eval().requires_grad_(False)
    student = kit.load(args.student_dir, torch.bfloat16, args.device, args.adapter_dir, wide=False)
    base = student.get_base_model()
    base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return teacher, student, base


def take_step(teacher, base, ids, context):
    """(loss, cross-entropy, torchtune's forward KL), with the gradients made."""
    labels = shifted(ids)
    student_logits = logits_of(base, ids, context)
    with torch.no_grad():
        teacher_logits = logits_of(teacher, ids)
    kd = chunked_forward_kl(student_logits, teacher_logits, labels)
    ce = chunked_ce(student_logits, labels)
    del student_logits, teacher_logits  # as the recipe does: else they are there in the backward
    loss = (1 - KD_RATIO) * ce + KD_RATIO * kd
    loss.backward()
    return loss.item(), ce.item(), kd.item()


@torch.no_grad()
def entropy_of(teacher, ids):
    """The mean that torchtune's forward KL has and the divergence has not."""
    hidden = teacher.model(input_ids=ids).last_hidden_state[0, :-1]
    total = 0.0
    for chunk in hidden.split(1024):
        log_p = log_softmax(teacher.lm_head(chunk), dim=-1, dtype=torch.float32)
        total -= (log_p.exp() * log_p).sum().item()
    return total / hidden.shape[0]


def timed_steps(args, models, records, offloading):
    """The steps of one length from the adapter's start; returns a row."""
    teacher, student, base = models
    cuda, row = args.device == "cuda", {key: [] for key in PARTS + ("grad_norm", "seconds")}
    parameters = list(kit.trained(student).values())
    optimizer = torch.optim.AdamW(parameters, lr=args.learning_rate, betas=(0.9, 0.999), eps=1e-8,
                                  weight_decay=WEIGHT_DECAY, fused=cuda)
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    for step, record in enumerate(records):
        start = time.time()
        if offloading:
            offloading.moved = 0
        ids = torch.tensor([record], device=args.device)
        parts = take_step(teacher, base, ids, offloading.context if offloading else None)
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.param_groups[0]["lr"] = args.learning_rate * (args.steps - step) / args.steps
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        row["grad_norm"].append(norm.item())
        for key, value in zip(PARTS, parts):
            row[key].append(value)
        if cuda:
            torch.cuda.synchronize()
        row["seconds"].append(time.time() - start)
    row["bytes_out"] = offloading.moved if offloading else 0
    if cuda:
        free, total = torch.cuda.mem_get_info()
        row.update(allocated=torch.cuda.max_memory_allocated(),
                   reserved=torch.cuda.max_memory_reserved(), device=total - free)
    return row


def one_length(args, models, starts, length, offloading):
    """A row, or one that says why there is none."""
    teacher, student, _ = models
    with torch.no_grad():
        for parameter, start in zip(kit.trained(student).values(), starts):
            parameter.copy_(start)
            parameter.grad = None
    with open(data_of(args, length)) as file:
        records = [json.loads(line)["input_ids"] for line in file]
    try:
        row = timed_steps(args, models, records, offloading)
        for i, record in enumerate(records):
            entropy = entropy_of(teacher, torch.tensor([record], device=args.device))
            row["kd_loss"][i] -= entropy
            row["loss"][i] -= KD_RATIO * entropy
    except (RuntimeError, MemoryError) as error:
        text = str(error)
        if isinstance(error, RuntimeError) and not any(part in text for part in NO_MEMORY):
            raise
        return {"note": "out of memory", "detail": text.partition("\n")[0]}
    note = "inputs of layers stay, the rest is made again"
    return dict(row, note=f"{offloading.name}, the rest is made again" if offloading else note)


def worker(args):
    """A line of JSON for the start, and one a length."""
    def say(line):
        with open(result_of(args, args.worker), "a") as file:
            file.write(json.dumps(line) + "\n")

    start = time.time()
    models = load_pair(args)
    starts = [parameter.detach().clone() for parameter in kit.trained(models[1]).values()]
    say({"versions": kit.versions(), "load": time.time() - start})
    for length in args.lengths:
        offloading = Offloading(args.device) if args.worker == "offload" else None
        row = one_length(args, models, starts, length, offloading)
        say(dict(row, length=length))
        del offloading
        gc.collect()
        kit.release(args.device)


# ---- PyTorch, from outside -----------------------------------------------------------------------


def read_lines(path):
    """The whole lines so far."""
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def watch(args, process, path):
    """Waits until the process ends, or a part of it takes too long; returns why rows miss."""
    seen, begin, seconds = 0, time.time(), part_seconds(args, STARTUP)
    while process.poll() is None:
        time.sleep(0.1)
        lines = len(read_lines(path))
        if lines > seen:
            seen, begin, seconds = lines, time.time(), part_seconds(args)
        if time.time() - begin > seconds:
            process.kill()
            process.wait()
            return f"more than {seconds:.0f} s" if seconds > 0 else "no time left"
    if process.returncode < 0:
        return f"ended by {signal.Signals(-process.returncode).name}"
    return f"exit {process.returncode}"


def torch_rows(args, mode):
    rows = [{"length": length, "side": "torch", "mode": mode, "note": "no time left"}
            for length in args.lengths]
    if part_seconds(args) <= 0:
        return rows
    path = result_of(args, mode)
    command = [sys.executable, os.path.abspath(__file__), "--bin", args.bin, "--worker", mode,
               "--work", args.dir, "--device", args.device, "--steps", str(args.steps),
               "--lengths", ",".join(map(str, args.lengths)), "--threads", str(args.threads),
               "--learning-rate", str(args.learning_rate)]
    with open(path + ".err", "w") as errors:
        process = subprocess.Popen(command, stderr=errors)
        missing = watch(args, process, path)
    lines = read_lines(path)
    found = {line["length"]: line for line in lines if "length" in line}
    for row in rows:
        row.update(found.get(row["length"], {"note": missing}))
        print_progress(row)
    if lines:
        print(f"torch {mode}: {lines[0]['versions']}; models loaded in {lines[0]['load']:.1f} s")
    if process.returncode > 0:
        with open(path + ".err") as file:
            print(f"torch {mode}: exit {process.returncode}\n{file.read()[-4000:]}")
    return rows


# ---- Result --------------------------------------------------------------------------------------


def measured(row):
    return "seconds" in row


def seconds_of(row):
    return statistics.median(row["seconds"][WARMUP:])


def print_progress(row):
    text = row["note"]
    if measured(row):
        text = f"step {seconds_of(row):.4f} s, loss {row['loss'][0]:.4f} to {row['loss'][-1]:.4f}"
    print(f"  {row['length']:6} {row['side']} {row['mode']}: {text}", flush=True)


def apart(a, b, keys=PARTS):
    """The largest difference over all steps; what is not a number is as far as can be."""
    pairs = [(x, y) for key in keys for x, y in zip(a[key], b[key])]
    if not all(isfinite(x) and isfinite(y) for x, y in pairs):
        return float("inf")
    return max(abs(x - y) for x, y in pairs)


def farthest(row, rows):
    """From any run of the other side at this length; None where there is none."""
    others = [other for other in rows if measured(other) and other["length"] == row["length"]
              and other["side"] != row["side"]]
    return max((apart(row, other) for other in others), default=None)


def print_table(args, rows):
    unit, name = (2**30, "GiB") if args.device == "cuda" else (2**20, "MiB")

    def size(row, key):
        return f"{row[key] / unit:.3f}" if row.get(key) is not None else "-"

    print(f"\n| tokens | run | arena predicted, {name} | arena, or allocated, {name} | reserved, "
          f"{name} | process, or device in use, {name} | tokens/s | to the host a step, {name} | "
          "largest loss difference | how |\n"
          "| --: | --- | --: | --: | --: | --: | --: | --: | --: | --- |")
    for row in rows:
        how = row["note"]
        if row.get("budget"):
            budget = row["budget"]
            budget = budget if isinstance(budget, str) else f"{budget / unit:.3f} {name}"
            how = f"budget {budget}: {how}"
        speed = f"{row['length'] / seconds_of(row):.0f}" if measured(row) else "-"
        far = farthest(row, rows) if measured(row) else None
        print(f"| {row['length']} | {row['side']} {row['mode']} | {size(row, 'predicted')} | "
              f"{size(row, 'peak' if row['side'] == 'ebb' else 'allocated')} | "
              f"{size(row, 'reserved')} | "
              f"{size(row, 'process' if row['side'] == 'ebb' else 'device')} | {speed} | "
              f"{size(row, 'bytes_out')} | {'-' if far is None else f'{far:.1e}'} | {how} |")


def print_losses(rows):
    """Every step of every run: what the rules are about."""
    for length in dict.fromkeys(row["length"] for row in rows):
        print(f"\n{length} tokens: loss (cross-entropy, KL; norm) of each step")
        for row in rows:
            if row["length"] == length and measured(row):
                steps = zip(*(row[key] for key in PARTS), row["grad_norm"])
                print(f"  {row['side'] + ' ' + row['mode']:13} "
                      + " ".join(f"{l:.4f} ({c:.4f}, {k:.4f}; {n:.3f})" for l, c, k, n in steps))


def rules_between(length, ebb, peers):
    """Ebb's runs beside PyTorch's at one length."""
    for peer in peers:
        for row in ebb:
            name = f"{length}: ebb {row['mode']} and torch {peer['mode']}: "
            far = apart(row, peer)
            yield far <= ALONE, f"{name}losses at most {far:.1e} apart"
            norms = max(abs(a - b) / max(b, 1e-30)
                        for a, b in zip(row["grad_norm"], peer["grad_norm"]))
            yield norms <= NORMS, f"{name}norms at most {norms:.1%} apart"


def rules_of_ebb(length, ebb):
    first = {row["mode"]: row["loss"][0] for row in ebb}
    if len(first) > 1:
        yield len(set(first.values())) == 1, f"{length}: first loss of Ebb's plans: {first}"
    for row in ebb:
        name = f"{length}: ebb {row['mode']}: "
        yield row["peak"] == row["predicted"], (f"{name}arena {row['peak']} bytes, predicted "
                                                f"{row['predicted']}")
        if isinstance(row["budget"], int):
            yield row["total"] <= row["budget"], (f"{name}{row['total']} bytes planned of "
                                                  f"{row['budget']}")
        if row["mode"] != "planned":
            yield (row["bytes_out"] > 0) == (row["mode"] == "offload"), (
                f"{name}{row['bytes_out']} bytes to the host in a step")
        yield row["loss"][-1] < row["loss"][0], (f"{name}loss {row['loss'][0]:.4f} at first, "
                                                 f"{row['loss'][-1]:.4f} at last")


def judge(args, rows):
    """Prints each rule; returns the exit code."""
    rules, compared = [], False
    for length in args.lengths:
        here = [row for row in rows if row["length"] == length and measured(row)]
        ebb = [row for row in here if row["side"] == "ebb"]
        peers = [row for row in here if row["side"] == "torch"]
        rules += list(rules_between(length, ebb, peers)) + list(rules_of_ebb(length, ebb))
        rules += [(peer["bytes_out"] > 0, f"{length}: torch offload: {peer['bytes_out']} bytes to "
                                          "the host in a step")
                  for peer in peers if peer["mode"] == "offload"]
        compared = compared or bool(ebb and peers)
    print()
    for good, text in rules:
        print(f"{'ok  ' if good else 'FAIL'} {text}")
    broken = [f"{row['length']} {row['side']} {row['mode']}: {row['note']}" for row in rows
              if not measured(row) and (row["side"] == "ebb" or row["note"].startswith("exit"))]
    for row in rows:
        if "detail" in row:
            print(f"{row['length']} {row['side']} {row['mode']}: {row['detail']}")
    if not compared and not args.only:
        broken.append("no length has a run of both sides")
    for text in broken:
        print(f"could not run: {text}")
    if broken:
        return 2
    return 0 if all(good for good, _ in rules) else 1


def write_csv(path, rows):
    """Bytes and seconds as they were; of each step in one field, with spaces between."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        lists = [*PARTS, "grad_norm", "seconds"]
        writer.writerow(FIELDS + lists)
        for row in rows:
            if measured(row):
                row = dict(row, tokens_per_second=row["length"] / seconds_of(row))
            writer.writerow([row.get(key, "") for key in FIELDS]
                            + [" ".join(map(repr, row.get(key, []))) for key in lists])


# ---- Running -------------------------------------------------------------------------------------


def data_of(args, length):
    return os.path.join(args.dir, f"data-{length}.jsonl")


def result_of(args, mode):
    return os.path.join(args.dir, f"torch-{mode}.jsonl")


def part_seconds(args, more=0):
    """What a part may take, within what is left of the whole."""
    return min(args.limit + more, args.begin + args.time - time.time())


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", required=True, help="where the program ebb is")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--teacher", help="SHAPE[:LAYERS] of compare_kit.py")
    parser.add_argument("--student", help="SHAPE[:LAYERS] of compare_kit.py")
    parser.add_argument("--lengths", help="tokens of a step, with commas between")
    parser.add_argument("--quick", action="store_true", help="the shortest length only")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--budget", type=float, default=0.6, help="share of what `kept` planned")
    parser.add_argument("--only", choices=["ebb", "torch"], help="one side: nothing is compared")
    parser.add_argument("--learning-rate", type=float, default=RATE)
    parser.add_argument("--limit", type=float, default=60, help="seconds for each part")
    parser.add_argument("--time", type=float, default=330, help="seconds for everything")
    parser.add_argument("--csv", help="write every run's numbers there")
    parser.add_argument("--work", help="where models go for a while")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--worker", choices=MODES, help=argparse.SUPPRESS)
    parser.add_argument("more", nargs="*", help="keys of ebb kd, after --")
    args = parser.parse_args()
    teacher, student, lengths = DEFAULTS[args.device]
    args.teacher, args.student = args.teacher or teacher, args.student or student
    args.lengths = sorted({int(n) for n in (args.lengths or lengths).split(",")})
    if args.quick:
        args.lengths = args.lengths[:1]
    if args.steps <= WARMUP or args.lengths[0] < 2 * CHUNKS:
        parser.error(f"--steps from {WARMUP + 1} on, --lengths from {2 * CHUNKS} on")
    args.begin = time.time()
    return args


def compare(args):
    kit.init_models(args.bin, [(args.teacher_dir, args.teacher, 7),
                               (args.student_dir, args.student, 42)])
    kit.add_tokenizer(args.bin, args.dir, args.student_dir)
    kit.make_adapter(args.adapter_dir, args.student, RANK, ALPHA, 0.0)
    for length in args.lengths:
        kit.make_data(data_of(args, length), length, args.steps, again=True)
    teacher, student = (count / 1e6 for count in args.sizes)
    print(f"{args.teacher} ({teacher:.0f} million weights) into {args.student} ({student:.0f} "
          f"million), LoRA of rank {RANK}, forward KL, kd_ratio {KD_RATIO}, {args.steps} steps, "
          f"learning rate {args.learning_rate}; files in {args.dir}; made in "
          f"{time.time() - args.begin:.1f} s", flush=True)
    rows = []
    if args.only != "torch":
        for length in args.lengths:
            rows += ebb_rows(args, length)
    if args.only != "ebb":
        for mode in MODES:
            rows += torch_rows(args, mode)
    rows.sort(key=lambda row: row["length"])  # stable: Ebb's first
    print_losses(rows)
    print_table(args, rows)
    for versions in {str(row["versions"]) for row in rows if "versions" in row}:
        print(f"\nebb: {versions}")
    if args.csv:
        write_csv(args.csv, rows)
    code = judge(args, rows)
    print(f"{['PASS', 'FAIL', 'COULD NOT RUN'][code]} in {time.time() - args.begin:.0f} s")
    return code


def set_folders(args):
    args.teacher_dir, args.student_dir, args.adapter_dir = (
        os.path.join(args.dir, name) for name in ("teacher", "student", "adapter"))


def main():
    args = arguments()
    kit.quiet()
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.worker:  # the folder is the parent's
        args.dir = args.work
        set_folders(args)
        worker(args)
        return
    args.sizes = [kit.parameters_of(name)[1] for name in (args.teacher, args.student)]
    args.dir = kit.work_dir(args.work, "compare_kd_", 3 * sum(args.sizes))
    set_folders(args)
    try:
        code = compare(args)
    finally:
        shutil.rmtree(args.dir, ignore_errors=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
