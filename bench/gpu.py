#!/usr/bin/env python3
"""Speed and memory of Ebb beside PyTorch's fast way on one GPU: a table in Markdown.

    python3 bench/gpu.py [--bin PATH] [--peers DIR] [--rows LIST] [--rounds N] [--steps N]
                         [--profile] [--only ebb|peer] [--csv FILE] [--limit S] [--time S]
                         [--work DIR] [--python PATH] [--ceilings A,B,C,D] [--device cuda|cpu]

PATH of --bin is the program `ebb`, the folder that it is in, or a bundle; without it `build`, where
`./do build` puts it. It makes each model once, at random, in bfloat16. A step is one record of
random ids below 256, the same on both sides; loss over every token, AdamW without weight decay, a
constant rate, gradients clipped to a norm of 1. LoRA: rank 16 on every linear layer. For each row a
process of Ebb's and one of PyTorch's run in turn, --rounds times; its speed is the median of the
steps after the first two (where a row has only two: of the second), then of the rounds.

PyTorch: transformers' model with random weights made on the GPU, SDPA, PEFT, fused AdamW, bfloat16
throughout; Ebb's adapters are float32. Where every weight is trained Ebb has bfloat16 weights with
float32 masters and moments; PyTorch has no such AdamW, so the peer has float32 parameters and
moments under autocast to bfloat16. A row names the peer's best mode, joined with "+": ac (layers
checkpointed), liger (its kernels and fused loss; else the loss is made in chunks), trl (TRL's hooks
move what is saved to the host), tune (torchtune's, where TRL's are missing), or plain. DIR of
--peers: liger_kernel/, trl_offload.py (TRL's trl/models/activation_offloading.py), tune_offload.py
(torchtune/training/_activation_offloading.py), peft/ where it is not installed. With a part missing
the best that is left runs, and is named. --python is the peer's interpreter.

Memory: Ebb's arena predicted and measured, which must be equal; what PyTorch's allocator gave out
and reserved at most. --profile runs Ebb once more a row, prints where a step's time goes and writes
it beside the CSV (-profile.json). `share` is what the step's work needs at the ceilings, over the
step: FLOPs of products and the head, of attention, bytes of memory-bound ops and the optimizer.
Ceilings are those the profile measured, and for attention the rates it saw; or --ceilings: TFLOP/s
of products, attention forward and backward, and TB/s.

--limit: seconds for a process; --time: for all. --device cpu tries the script on tiny models and
says nothing of speed. Exit 0: all is there; 1: an arena is not as predicted; 2: a run is missing,
or something that every run needs (the program, a GPU, torch and transformers), which is said before
any.
SPDX-License-Identifier: Apache-2.0
"""

import argparse
import collections
import contextlib
import csv
import datetime
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from statistics import median

from peers import torch_side
from peers.torch_side import ALPHA, RANK

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GIB, WARMUP = 2**30, 2
MODELS = {"qwen2.5-7b": 15, "llama-3.2-1b": 3, "qwen2.5-0.5b": 1, "tiny-llama": 0}  # GiB of files
KEEP = ["gradient_checkpointing=false", "activation_offloading=false"]
AWAY = ["gradient_checkpointing=true", "activation_offloading=true"]
RICH = ["activations={x: host, qkv: host, o: host, x2: host}"]
XO = ["activations={x: host, o: host}"]
BUDGET = ["memory_budget=22.4GiB"]
LEAN = "ac+liger+trl"

# `steps` of 0: as --steps says; `ratio` and `gib` are aims: at least, at most; None: none.
Row = collections.namedtuple("Row", "name shape tokens full keys mode steps ratio gib")
ROWS = {"cuda": [
    Row("7b-8k-x", "qwen2.5-7b", 8192, False, AWAY, LEAN, 0, 1.2, 14.5),
    Row("7b-8k-rich", "qwen2.5-7b", 8192, False, RICH, LEAN, 0, 1.3, 16.5),
    Row("7b-8k-keep", "qwen2.5-7b", 8192, False, KEEP, "liger", 0, 1.12, 39),
    Row("7b-32k-xo", "qwen2.5-7b", 32768, False, XO, LEAN, 0, 1.2, 16),
    Row("7b-32k-best", "qwen2.5-7b", 32768, False, BUDGET, LEAN, 0, 1.28, 22.4),
    Row("7b-128k-xo", "qwen2.5-7b", 131072, False, XO, LEAN, 2, 1.22, 22.5),
    Row("1b-8k-keep", "llama-3.2-1b", 8192, False, KEEP, "liger", 0, 1.3, 9),
    Row("0.5b-8k-keep", "qwen2.5-0.5b", 8192, False, KEEP, "plain", 0, 1.8, 6.5),
    Row("0.5b-8k-x", "qwen2.5-0.5b", 8192, False, AWAY, LEAN, 0, 2.5, 1.6),
    Row("full-0.5b-8k", "qwen2.5-0.5b", 8192, True, KEEP, "liger", 0, 1.3, None),
    Row("full-1b-8k", "llama-3.2-1b", 8192, True, KEEP, "liger", 0, 1.3, None),
], "cpu": [
    Row("tiny-keep", "tiny-llama", 256, False, KEEP, "plain", 0, None, None),
    Row("tiny-x", "tiny-llama", 256, False, AWAY + ["memory_budget=200MiB"], LEAN, 0, None, None),
    Row("full-tiny", "tiny-llama", 256, True, KEEP, "liger", 0, None, None),
]}
FIELDS = ["row", "side", "round", "mode", "note", "tokens_per_second", "predicted", "measured",
          "process", "allocated", "reserved", "seconds", "losses"]


def records_of(tokens, steps):
    generator = random.Random(1)
    return [[generator.randrange(256) for _ in range(tokens)] for _ in range(steps)]


# ---- PyTorch, in a process of its own ------------------------------------------------------------


def train(task, parts, hooks, torch):
    """Seconds and losses of the steps, and the allocator's peaks."""
    cuda, side = task["device"] == "cuda", torch_side.Side(task, parts, hooks, torch)
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    seconds, losses = side.train(records_of(task["tokens"], task["steps"]))
    peaks = dict(allocated=torch.cuda.max_memory_allocated(),
                 reserved=torch.cuda.max_memory_reserved()) if cuda else {}
    return dict(peaks, seconds=seconds, losses=losses)


def peer_process(path):
    """Does the task in the file; the result lies beside it."""
    with open(path) as file:
        task = json.load(file)
    if task["peers"]:
        sys.path.insert(0, task["peers"])
    import torch

    parts, hooks, notes = torch_side.parts_that_run(task["mode"], task["device"] == "cuda")
    versions = [" ".join(pair) for pair in torch_side.versions().items()]
    result = {"mode": "+".join(parts), "versions": ", ".join(versions)}
    try:
        result.update(train(task, parts, hooks, torch))
    except (RuntimeError, MemoryError, ImportError) as error:  # out of memory is a result too
        notes.append(str(error).partition("\n")[0][:120] or type(error).__name__)
    with open(path + ".out", "w") as file:
        json.dump(dict(result, note="; ".join(notes)), file)


# ---- Processes -----------------------------------------------------------------------------------


def run_limited(args, command):
    """(what went wrong or "", stderr)"""
    seconds = min(args.limit, args.begin + args.time - time.time())
    if seconds <= 0:
        return "no time left", ""
    environment = dict(os.environ, HF_HUB_OFFLINE="1")
    environment.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    try:
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              timeout=seconds, env=environment, text=True, errors="replace")
    except subprocess.TimeoutExpired:
        return f"more than {seconds:.0f} s", ""
    except OSError as error:
        return f"{command[0]}: {error.strerror}", ""
    if done.returncode == 0:
        return "", done.stderr
    print(f"{shlex.join(command)}: exit {done.returncode}\n{done.stderr[-3000:]}", file=sys.stderr)
    lines = [line for line in done.stderr.splitlines() if line.strip()] or ["nothing said"]
    line = next((line for line in lines if line.startswith("ebb: error")), lines[-1])
    return f"exit {done.returncode}: {line.strip()[:160]}", done.stderr


def ebb_command(args, row, model, out):
    data = os.path.join(args.dir, f"{row.tokens}-{row.steps}.jsonl")
    if not os.path.exists(data):
        with open(data, "w") as file:
            for ids in records_of(row.tokens, row.steps):
                file.write(json.dumps({"input_ids": ids}) + "\n")
    lora = [] if row.full else ["use_peft=true", f"lora_r={RANK}", f"lora_alpha={ALPHA}"]
    return [args.ebb, "sft", "model_name_or_path=" + model, "dataset_name=" + data,
            "output_dir=" + out, "device=" + args.device, "dtype=bfloat16", "save_strategy=no",
            f"max_length={row.tokens}", f"max_steps={row.steps}", "per_device_train_batch_size=1",
            "shuffle=false", "dataset_cache=false", "lr_scheduler_type=constant", "weight_decay=0",
            f"learning_rate={1e-5 if row.full else 1e-4}", "max_grad_norm=1", *lora, *row.keys]


def by_ebb(args, row, profile=False):
    result = {"row": row.name, "side": "ebb"}
    model, out = (os.path.join(args.dir, name) for name in (row.shape, "out"))
    if row.shape not in args.made:
        args.made[row.shape] = run_limited(
            args, [args.ebb, "init", row.shape, model, "--tokenizer", "bytes", "dtype=bfloat16"])[0]
    if args.made[row.shape]:
        return dict(result, note="model: " + args.made[row.shape])
    shutil.rmtree(out, ignore_errors=True)
    command = ebb_command(args, row, model, out) + ["profile=true"] * profile
    wrong, text = run_limited(args, command)
    if wrong:
        return dict(result, note=wrong)
    with open(os.path.join(out, "metrics.jsonl")) as file:
        steps = [step for step in map(json.loads, file) if "learning_rate" in step]
    with open(os.path.join(out, "run.json")) as file:
        record = json.load(file)
    if len(steps) != row.steps:
        return dict(result, note=f"{len(steps)} steps instead of {row.steps}")
    result.update({key: max(step[name + "_device_bytes"] or 0 for step in steps) for key, name in
                   (("predicted", "predicted"), ("measured", "peak"), ("process", "process"))})
    versions = ", ".join(f"{key} {value}" for key, value in record["versions"].items() if value)
    return dict(result, note="", mode=record["plan"]["what"], versions=versions,
                seconds=[step["step_seconds"] for step in steps],
                losses=[step["loss"] for step in steps], profile=record.get("profile"),
                table=text[max(text.find("where a step's time"), 0):].rstrip())


def by_peer(args, row):
    path = os.path.join(args.dir, "peer")
    with open(os.path.join(ROOT, "configs", "shapes", row.shape + ".json")) as file:
        config = json.load(file)
    for key in ("torch_dtype", "architectures"):
        config.pop(key, None)
    with open(path, "w") as file:
        json.dump(dict(row._asdict(), config=config, device=args.device,
                       rate=1e-5 if row.full else 1e-4,
                       peers=args.peers and os.path.abspath(args.peers)), file)
    wrong, _ = run_limited(args, [args.python, os.path.abspath(__file__), "--peer", path])
    result = {"row": row.name, "side": "peer", "mode": row.mode, "note": wrong}
    if not wrong:
        with open(path + ".out") as file:
            result.update(json.load(file))
    return result


# ---- Result --------------------------------------------------------------------------------------


def speed_of(row, run):
    return row.tokens / median(run["seconds"][min(WARMUP, row.steps - 1):])


def share_of(args, profile, step):
    """What a step's work takes at the ceilings, over the step; None where one is not known."""
    parts, measured, given = profile["parts"], profile["ceilings"], args.ceilings or [None] * 4
    forward, backward = parts["attention_forward"], parts["attention_backward"]
    work = [(parts["matmul"]["flops"] + parts["head"]["flops"],
             given[0] or measured["matmul_flops_per_second"]),
            (forward["flops"], given[1] or forward["flops_per_second"]),
            (backward["flops"], given[2] or backward["flops_per_second"]),
            (parts["memory_bound"]["bytes"] + parts["optimizer"]["bytes"],
             given[3] or measured["device_bytes_per_second"])]
    if any(amount and not rate for amount, rate in work):
        return None
    return sum(amount / rate for amount, rate in work if amount) / step


def cells_of(args, row, runs, profile):
    """A row of the table, and what it is made of."""
    good = {side: [run for run in runs if run["side"] == side and "seconds" in run]
            for side in ("ebb", "peer")}
    speed = {side: median([speed_of(row, run) for run in mine]) if mine else None
             for side, mine in good.items()}
    ratio = speed["ebb"] / speed["peer"] if all(speed.values()) else None
    share = None
    if profile and profile.get("profile"):
        step = row.tokens / speed["ebb"] if speed["ebb"] else profile["profile"]["step_seconds"]
        share = share_of(args, profile["profile"], step)

    def number(value, form):
        return form.format(value) if value else "-"

    def gib(side, *keys):
        most = [max((run.get(key, 0) for run in good[side]), default=0) / GIB for key in keys]
        texts = (f"{value:.2f}" if value >= 1 else f"{value:.3g}" for value in most)
        return ", ".join(texts) if all(most) else "-"

    def losses(side):
        return "{0:.3f} to {1:.3f}".format(*(good[side][-1]["losses"][i] for i in (0, -1))) if (
            good[side]) else "-"

    return ratio, [
        row.name, f"{row.shape}, {row.tokens:,}" + ", full" * row.full,
        good["peer"][0]["mode"] if good["peer"] else row.mode, number(speed["ebb"], "{:,.0f}"),
        number(speed["peer"], "{:,.0f}"), number(ratio, "{:.2f}"), number(row.ratio, "{:.2f}"),
        gib("ebb", "predicted", "measured"), number(row.gib, "{:.1f}"),
        gib("peer", "allocated", "reserved"), number(share, "{:.1%}"), losses("ebb"),
        losses("peer")]


def heading(args, seen):
    print(f"    {shlex.join(['python3', 'bench/gpu.py', *sys.argv[1:]])}\n")
    if args.device == "cuda":
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            asked = subprocess.run(["nvidia-smi", "--format=csv,noheader",
                                    "--query-gpu=name,driver_version,memory.total"],
                                   capture_output=True, text=True, timeout=30)
            print("GPU, driver, memory:", asked.stdout.strip() or asked.stderr.strip())
    for versions in dict.fromkeys((run["side"], run["versions"]) for run in seen
                                  if "versions" in run):
        print(*versions, sep=": ")
    print(f"{datetime.date.today()}; rounds: {args.rounds}, steps: {args.steps}\n")
    titles = ["row", "model, tokens", "peer", "Ebb tok/s", "PyTorch tok/s", "ratio", "aim (ratio)",
              "arena GiB predicted, measured", "aim (GiB)", "PyTorch GiB allocated, reserved",
              "share", "losses Ebb", "losses PyTorch"]
    print(f"| {' | '.join(titles)} |\n|{' --- |' * len(titles)}")


def report(args, seen, profiles):
    """Prints everything; returns the exit code."""
    heading(args, seen)
    fast, small, notes, equal = [], [], [], True
    for row in args.rows:
        runs = [run for run in seen if run["row"] == row.name]
        ratio, cells = cells_of(args, row, runs, profiles.get(row.name))
        print(f"| {' | '.join(cells)} |")
        fast += [ratio >= row.ratio] if ratio and row.ratio else []
        for run in runs:
            if run.get("predicted") != run.get("measured"):
                equal = False
                notes.append(f"{row.name}: {run['measured']} bytes of arena measured, "
                             f"{run['predicted']} predicted")
            small += [run["measured"] <= row.gib * GIB] if run.get("measured") and row.gib else []
            notes += [f"{row.name}, {run['side']}: {run['note']}"] if run["note"] else []
        if row.steps <= WARMUP:
            notes.append(f"{row.name}: {row.steps} steps, the last one timed")
    notes += [f"{name}, profile: {run['note']}" for name, run in profiles.items() if run["note"]]
    print("\n" + "".join(f"* {note}\n" for note in dict.fromkeys(notes)))
    print(f"Aims reached: {sum(fast)} of {len(fast)} ratios, {sum(small)} of {len(small)} arenas")
    for name, run in profiles.items():
        if "table" in run:
            print(f"\n{name}:\n\n    " + run["table"].replace("\n", "\n    "))
    if any("seconds" not in run for run in [*seen, *profiles.values()]):
        return 2
    return 0 if equal else 1


def write_csv(path, seen):
    """Bytes and seconds as they were; of each step in one field, with spaces between."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(FIELDS)
        for run in seen:
            writer.writerow([run.get(key, "") for key in FIELDS[:-2]]
                            + [" ".join(map(repr, run.get(key, []))) for key in FIELDS[-2:]])


def measure(args):
    """Runs the rows; files are written as far as it got, should something end this process."""
    seen, profiles = [], {}
    sides = [(side, run_of) for side, run_of in (("ebb", by_ebb), ("peer", by_peer))
             if args.only in (None, side)]
    for row in args.rows:
        for index in range(args.rounds):
            for side, run_of in sides:
                run = dict(run_of(args, row), round=index + 1)
                if "seconds" in run:
                    run["tokens_per_second"] = round(speed_of(row, run), 1)
                print(row.name, side, run.get("tokens_per_second", "none"), run["note"],
                      file=sys.stderr, flush=True)
                seen.append(run)
                if args.csv:
                    write_csv(args.csv, seen)
        if args.profile and args.only != "peer":
            profiles[row.name] = by_ebb(args, row, profile=True)
            if args.csv:
                with open(os.path.splitext(args.csv)[0] + "-profile.json", "w") as file:
                    json.dump({name: run.get("profile") for name, run in profiles.items()}, file)
    return report(args, seen, profiles)


# ---- Start ---------------------------------------------------------------------------------------


def stop(text):
    print("bench/gpu.py: " + text, file=sys.stderr)
    sys.exit(2)


def program_of(place):
    path = os.path.abspath(place)
    for name in ("", "ebb", os.path.join("bin", "ebb")):
        program = os.path.join(path, name) if name else path
        if os.path.isfile(program) and os.access(program, os.X_OK):
            return program
    return stop(f"--bin {place}: there is no program ebb ('./do build' makes build/ebb)")


def output_of(command, environment=None):
    """(exit code, the last line of stderr or "", stdout)"""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace",
                              timeout=300, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error), ""
    return done.returncode, (done.stderr.strip().splitlines() or [""])[-1], done.stdout


def check(args):
    """Stops where no row could run."""
    cuda = args.device == "cuda"
    if args.only != "peer":
        args.ebb = program_of(args.bin)
        code, wrong, text = output_of([args.ebb, "version"])
        if code:
            stop(f"{args.ebb} does not run: {wrong or f'exit {code}'}")
        lines = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
        if cuda and "cuda" not in lines.get("devices", ""):
            stop(f"no GPU for {args.ebb}: {lines.get('cuda', 'it knows none')} (--device cpu tries "
                 "the script)")
    if args.only != "ebb":
        paths = [path for path in (args.peers, os.environ.get("PYTHONPATH")) if path]
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(paths))
        code, wrong, text = output_of([args.python, "-c", "import torch, transformers; "
                                       "print(torch.cuda.is_available())"], environment)
        if code:
            stop(f"{args.python} lacks what PyTorch's side needs: {wrong} (--python PATH names "
                 "another, --only ebb does without)")
        if cuda and text.split()[-1:] != ["True"]:
            stop(f"torch of {args.python} finds no GPU (--only ebb does without)")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", default=os.path.join(ROOT, "build"), metavar="PATH",
                        help="the program ebb, or the folder it is in (default: build)")
    parser.add_argument("--peers", help="folder with Liger's package and the hooks")
    parser.add_argument("--python", default=sys.executable, metavar="PATH",
                        help="the peer's interpreter (default: this one)")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--rows", help="names, with commas between; all by default")
    parser.add_argument("--only", choices=["ebb", "peer"], help="one side: no ratios")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=6, help="of a process, the first two untimed")
    parser.add_argument("--profile", action="store_true", help="where Ebb's time goes")
    parser.add_argument("--ceilings", help="TFLOP/s of products, attention forward, backward; TB/s")
    parser.add_argument("--csv", help="write every run's numbers there")
    parser.add_argument("--limit", type=float, default=150, help="seconds for each process")
    parser.add_argument("--time", type=float, default=1800, help="seconds for everything")
    parser.add_argument("--work", help="where models go for a while")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    args = parser.parse_args()
    table = {row.name: row for row in ROWS[args.device]}
    names = dict.fromkeys(args.rows.split(",") if args.rows else table)
    if not table.keys() >= names.keys():
        parser.error(f"--rows takes {', '.join(table)}")
    if args.steps <= WARMUP or args.rounds < 1:
        parser.error(f"--steps from {WARMUP + 1} on, --rounds from 1 on")
    args.rows = [table[name]._replace(steps=table[name].steps or args.steps) for name in names]
    if args.ceilings:
        try:
            args.ceilings = [float(text) * 1e12 for text in args.ceilings.split(",")]
        except ValueError:
            args.ceilings = []
        if len(args.ceilings) != 4 or min(args.ceilings) <= 0:
            parser.error("--ceilings takes four numbers above 0")
    args.begin, args.made = time.time(), {}
    return args


def main():
    args = arguments()
    if args.peer:
        peer_process(args.peer)
        return
    check(args)
    room = GIB * (1 + sum(MODELS[shape] for shape in {row.shape for row in args.rows}))
    if args.work:
        os.makedirs(args.work, exist_ok=True)
    elif os.path.isdir("/dev/shm") and shutil.disk_usage("/dev/shm").free > room:
        args.work = "/dev/shm"
    args.dir = tempfile.mkdtemp(prefix="ebb_gpu_", dir=args.work)
    try:
        code = measure(args)
    finally:
        shutil.rmtree(args.dir, ignore_errors=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
