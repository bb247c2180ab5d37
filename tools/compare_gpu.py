#!/usr/bin/env python3
"""Every gradient of whole models by Ebb and by transformers with PEFT, on a GPU in one run.

    python tools/compare_gpu.py --bin DIR [--device cuda|cpu] [--cases CASE,...]
                                [--lengths 512,4096] [--all] [--csv FILE] [--work DIR]
                                [--threads N] [-- OPTION ...]

DIR holds the program `gradients` (cmake --build build --target gradients). A case is
SHAPE[:LAYERS]/full or SHAPE[:LAYERS]/lora; shapes are in compare_kit.py. Models, adapters (with a B
that is not zero) and batches are random; a batch is documents laid end to end. Options after -- go
to `gradients` as they are.

Three gradients of each batch are made by PyTorch or compared with it:
  exact    transformers in float32, TF32 off: each document by itself, losses added up. Documents
           never see each other, so this is what packed documents must give.
  torch    the same in bfloat16, as PyTorch trains: weights, activations and each document's
           gradients in bfloat16 (they are added up in float32); for LoRA a bfloat16 model with
           PEFT's float32 adapters under autocast. It says how large an error bfloat16 has.
  ebb      Ebb on the packed batch, in bfloat16 and in float32.

What must hold, by tensor t, with error(x) = |x - exact| / |exact| in the Euclidean norm:
  ratio    error(ebb) <= 2 error(torch)
  cosine   of ebb and exact at least 0.99 for tensors that are not negligible; of all tensors as one
           vector at least 0.999
  float32  error(ebb in float32) <= 1e-4
  loss     relative error of the loss at most twice torch's or 5e-4; in float32 1e-5
A tensor is negligible where its norm is below a thousandth of the largest norm among the tensors
of its own kind (the same name in another layer) and below a hundred-thousandth of all gradients'
norm: then |exact| is no scale for its error, and |ebb - exact| is taken against that threshold.

Prints a table by kind of tensor (with --all of every tensor), the worst of each rule and what
failed. Exit 0: everything holds; 1: something does not; 2: it could not run.
SPDX-License-Identifier: Apache-2.0
"""

import argparse
import collections
import csv
import gc
import json
import os
import re
import shutil
import subprocess
import sys
import time
from math import inf

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import compare_kit as kit

import torch
from safetensors import safe_open
from torch.nn.functional import cross_entropy

IGNORE = -100
CASES = {
    "cuda": "qwen2.5-0.5b/full,qwen2.5-0.5b/lora,llama-3.2-1b:4/full,llama-3.2-1b/lora,"
            "qwen3-0.6b:8/full,qwen3-0.6b:8/lora,tiny-llama/full,tiny-qwen2/full",
    "cpu": "tiny-llama/full,tiny-qwen2/full,tiny-qwen3/full,tiny-qwen3/lora",
}
LENGTHS = {"cuda": "512,4096", "cpu": "192"}
RATIO, COSINE, COSINE_ALL, FLOAT32, LOSS, LOSS_FLOAT32 = 2.0, 0.99, 0.999, 1e-4, 5e-4, 1e-5
NEGLIGIBLE_OF_KIND, NEGLIGIBLE_OF_ALL = 1e-3, 1e-5


# ---- Batches -------------------------------------------------------------------------------------


def make_micro(length, vocab, generator):
    """Documents of some ten to one sizes, one of a single token; of the second a third is a prompt.
    """
    shares = [0.42, 0.27, 0.17, 0.09]
    sizes = [max(2, int(share * length)) for share in shares] + [1]
    sizes.append(length - sum(sizes))
    starts, ids, targets = [0], [], []
    for number, size in enumerate(sizes):
        document = torch.randint(vocab, (size,), generator=generator).tolist()
        following = document[1:] + [IGNORE]
        if number == 1:
            following[: size // 3] = [IGNORE] * (size // 3)
        ids += document
        targets += following
        starts.append(len(ids))
    return {"ids": ids, "targets": targets, "doc_starts": starts}


def make_batches(lengths, vocab):
    """One step a length; the first of two micro-batches, so that they are added up somewhere."""
    generator = torch.Generator().manual_seed(7)
    return [[make_micro(length, vocab, generator) for _ in range(2 if number == 0 else 1)]
            for number, length in enumerate(lengths)]


# ---- PyTorch -------------------------------------------------------------------------------------


def documents_of(micro, device):
    ids = torch.tensor(micro["ids"], device=device)
    targets = torch.tensor(micro["targets"], device=device)
    for begin, end in zip(micro["doc_starts"], micro["doc_starts"][1:]):
        if (targets[begin:end] != IGNORE).any():
            yield ids[begin:end], targets[begin:end]


def by_torch(model, steps, device, autocast):
    """[(loss sum, {name: gradient in float32})] of the steps."""
    parameters, results = kit.trained(model), []
    for step in steps:
        loss, sums = 0.0, {}
        for micro in step:
            for ids, targets in documents_of(micro, device):
                with torch.autocast(device, torch.bfloat16, enabled=autocast):
                    logits = model(input_ids=ids[None]).logits[0]
                part = cross_entropy(logits.float(), targets, ignore_index=IGNORE, reduction="sum")
                part.backward()
                loss += part.item()
                for name, parameter in parameters.items():
                    if name in sums:
                        sums[name] += parameter.grad
                    else:
                        sums[name] = parameter.grad.float()
                    parameter.grad = None
        results.append((loss, sums))
    return results


def torch_results(model_dir, adapter_dir, steps, device, dtype):
    model = kit.load(model_dir, dtype, device, adapter_dir)
    autocast = adapter_dir is not None and dtype == torch.bfloat16
    results = by_torch(model, steps, device, autocast)
    del model
    gc.collect()
    kit.release(device)
    return results


# ---- Ebb -----------------------------------------------------------------------------------------


def start_ebb(args, model_dir, adapter_dir, batches, out, dtype):
    command = [os.path.join(args.bin, "gradients"), model_dir, batches, out, "--device",
               args.device, "--dtype", dtype]
    if adapter_dir:
        command += ["--adapter", adapter_dir]
    if args.threads:
        command += ["--threads", str(args.threads)]
    return subprocess.Popen(command + args.more, stderr=subprocess.PIPE, text=True)


def finish_ebb(process, out):
    errors = process.communicate()[1]
    print(errors, end="")
    if process.returncode != 0:
        print(f"compare_gpu: {' '.join(process.args)}: exit {process.returncode}")
        sys.exit(2)
    with open(os.path.join(out, "result.json")) as file:
        return json.load(file)


# ---- Comparing -----------------------------------------------------------------------------------


def kind_of(name):
    return re.sub(r"\.\d+\.", ".N.", name).removeprefix("base_model.model.")


def products(x, y):
    """(|x - y|, x . y, |x|) in double."""
    x, y = x.double().flatten(), y.double().flatten()
    return float((x - y).norm()), float(x @ y), float(x.norm())


def compare_tensors(exact, peer, files, device):
    """One row a tensor."""
    rows = []
    names = set(files["bfloat16"].keys())
    if names != set(exact) or names != set(files["float32"].keys()):
        print(f"compare_gpu: Ebb wrote other tensors than PyTorch trains: {names ^ set(exact)}")
        sys.exit(2)
    for name, want in exact.items():
        row = {"name": name, "kind": kind_of(name), "norm": float(want.double().norm())}
        got = {"torch": peer[name]}
        for side, dtype in (("ebb", "bfloat16"), ("ebb32", "float32")):
            got[side] = files[dtype].get_tensor(name).to(device)
            if got[side].shape != want.shape:
                print(f"compare_gpu: {name}: shape {got[side].shape}, wanted {want.shape}")
                sys.exit(2)
        for side, values in got.items():
            row[side + "_off"], row[side + "_dot"], row[side + "_norm"] = products(values, want)
        rows.append(row)
    return rows


def judge_tensors(rows):
    """Adds scale, errors, ratio, cosines and whether the tensor is negligible."""
    all_norm = sum(row["norm"] ** 2 for row in rows) ** 0.5
    largest = collections.defaultdict(float)
    for row in rows:
        largest[row["kind"]] = max(largest[row["kind"]], row["norm"])
    for row in rows:
        floor = min(NEGLIGIBLE_OF_KIND * largest[row["kind"]], NEGLIGIBLE_OF_ALL * all_norm)
        row["negligible"] = row["norm"] <= floor
        scale = max(row["norm"], floor, 1e-30)
        for side in ("torch", "ebb", "ebb32"):
            row[side + "_error"] = row[side + "_off"] / scale
            norms = row["norm"] * row[side + "_norm"]
            both = row["norm"] == row[side + "_norm"] == 0
            row[side + "_cosine"] = 1.0 if both else row[side + "_dot"] / max(norms, 1e-30)
        row["ratio"] = row["ebb_error"] / max(row["torch_error"], 1e-30)
        for key, worst in (("ratio", inf), ("ebb32_error", inf), ("ebb_cosine", -1.0)):
            row[key] = row[key] if row[key] == row[key] else worst  # NaN is the worst there is


def whole(rows, side):
    """(error, cosine) of all tensors as one vector."""
    total = {key: sum(row[key] ** 2 for row in rows) ** 0.5
             for key in ("norm", side + "_norm", side + "_off")}
    dot = sum(row[side + "_dot"] for row in rows)
    return total[side + "_off"] / total["norm"], dot / (total["norm"] * total[side + "_norm"])


def print_tensors(rows, every):
    """Every tensor, or of each kind the one with the worst ratio."""
    print(f"  {'tensor':58} {'norm':>9} {'torch':>9} {'ebb':>9} {'ratio':>6} {'cosine':>9} "
          f"{'float32':>9}")
    shown = rows
    if not every:
        worst = {}
        for row in rows:
            kept = worst.get(row["kind"])
            if kept is None or row["ratio"] > kept["ratio"]:
                worst[row["kind"]] = row
        shown = worst.values()
    for row in shown:
        note = " negligible" if row["negligible"] else ""
        name = row["name"].removeprefix("base_model.model.")
        print(f"  {name:58} {row['norm']:9.3g} {row['torch_error']:9.2e} {row['ebb_error']:9.2e} "
              f"{row['ratio']:6.3f} {row['ebb_cosine']:9.6f} {row['ebb32_error']:9.2e}{note}")


def judge_case(title, rows, losses, failures):
    """Appends what fails, prints the summary of one batch."""
    def check(good, text):
        if not good:
            failures.append(f"{title}: {text}")
        return "ok  " if good else "FAIL"

    plain = [row for row in rows if not row["negligible"]]
    ratio = max(rows, key=lambda row: row["ratio"])
    angle = min(plain, key=lambda row: row["ebb_cosine"])
    peer_angle = min(plain, key=lambda row: row["torch_cosine"])
    single = max(rows, key=lambda row: row["ebb32_error"])
    above = [row for row in rows if not row["ratio"] <= RATIO]
    error, cosine = whole(rows, "ebb")
    peer_error, peer_cosine = whole(rows, "torch")
    error32, _ = whole(rows, "ebb32")
    off = {side: abs(losses[side] - losses["exact"]) / abs(losses["exact"])
           for side in ("torch", "ebb", "ebb32")}
    text = f"{len(above)} tensors above ratio {RATIO}, worst {ratio['name']}"
    print(f"  {check(not above, text)} ratio    worst {ratio['ratio']:.3f} ({ratio['name']}), "
          f"{len(above)} of {len(rows)} above {RATIO}; all together {error:.3e} against "
          f"{peer_error:.3e}: {error / max(peer_error, 1e-30):.3f}")
    print(f"  {check(cosine >= COSINE_ALL, f'cosine of all {cosine:.6f}')}"
          f" cosine   of all {cosine:.6f} (torch {peer_cosine:.6f})")
    print(f"  {check(angle['ebb_cosine'] >= COSINE, f'cosine of ' + angle['name'])}"
          f" cosine   worst {angle['ebb_cosine']:.6f} ({angle['name']}; torch there "
          f"{angle['torch_cosine']:.6f}, its worst {peer_angle['torch_cosine']:.6f}), "
          f"{len(rows) - len(plain)} negligible")
    print(f"  {check(single['ebb32_error'] <= FLOAT32, 'float32 of ' + single['name'])}"
          f" float32  worst {single['ebb32_error']:.2e} ({single['name']}), all {error32:.2e}")
    good = off["ebb"] <= max(RATIO * off["torch"], LOSS) and off["ebb32"] <= LOSS_FLOAT32
    print(f"  {check(good, 'loss')} loss     exact {losses['exact']:.6f}; off by torch "
          f"{off['torch']:.1e}, ebb {off['ebb']:.1e}, ebb in float32 {off['ebb32']:.1e}")


# ---- Cases ---------------------------------------------------------------------------------------


def make_case(args, name, method):
    """(model's folder, adapter's or None); of models only the last one is kept."""
    model_dir = os.path.join(args.dir, "model-" + name.replace(":", "-"))
    adapter_dir = os.path.join(args.dir, "adapter")
    shutil.rmtree(adapter_dir, ignore_errors=True)
    if not os.path.isdir(model_dir):
        for other in os.listdir(args.dir):
            if other.startswith("model-"):
                shutil.rmtree(os.path.join(args.dir, other))
        kit.make_model(model_dir, name, args.device)
    if method == "full":
        return model_dir, None
    kit.make_adapter(adapter_dir, name, 16, 32, 0.02)
    return model_dir, adapter_dir


def run_case(args, case, failures, table):
    start = time.time()
    name, _, method = case.partition("/")
    model_dir, adapter_dir = make_case(args, name, method)
    steps = make_batches(args.lengths, kit.config_of(name)["vocab_size"])
    batches = os.path.join(args.dir, "batches.json")
    with open(batches, "w") as file:
        json.dump(steps, file)
    made = time.time()

    outs = {dtype: os.path.join(args.dir, "out-" + dtype) for dtype in ("bfloat16", "float32")}
    running = {dtype: start_ebb(args, model_dir, adapter_dir, batches, out, dtype)
               for dtype, out in outs.items()}
    exact = torch_results(model_dir, adapter_dir, steps, args.device, torch.float32)
    peer = torch_results(model_dir, adapter_dir, steps, args.device, torch.bfloat16)
    results = {dtype: finish_ebb(running[dtype], outs[dtype]) for dtype in running}
    computed = time.time()

    result = results["bfloat16"]
    same = "deterministic" if result["deterministic"] else "not deterministic"
    print(f"\n== {case}: {result['matmul']}; attention: {result['attention']}, {same}; plan: "
          f"{result['plan']}; arena {result['predicted_device_bytes'] / 2**30:.2f} GiB, process "
          f"{result['process_device_bytes'] / 2**30:.2f} GiB")
    for number, length in enumerate(args.lengths):
        files = {dtype: safe_open(os.path.join(out, f"gradients-{number}.safetensors"), "pt")
                 for dtype, out in outs.items()}
        rows = compare_tensors(exact[number][1], peer[number][1], files, args.device)
        judge_tensors(rows)
        labels = results["bfloat16"]["steps"][number]["labels"]
        losses = {"exact": exact[number][0] / labels, "torch": peer[number][0] / labels,
                  "ebb": results["bfloat16"]["steps"][number]["loss_sum"] / labels,
                  "ebb32": results["float32"]["steps"][number]["loss_sum"] / labels}
        seconds = {dtype: results[dtype]["steps"][number]["seconds"] for dtype in results}
        print(f"\n-- {case}, length {length}: {labels} labels, {len(rows)} tensors; ebb "
              f"{seconds['bfloat16']:.2f} s, in float32 {seconds['float32']:.2f} s")
        print_tensors(rows, args.all)
        judge_case(f"{case}, {length}", rows, losses, failures)
        table += [dict(row, case=case, length=length) for row in rows]
        del files
    for out in outs.values():
        shutil.rmtree(out)
    del exact, peer
    gc.collect()
    kit.release(args.device)
    print(f"  ({made - start:.1f} s making the model, {computed - made:.1f} s computing, "
          f"{time.time() - computed:.1f} s comparing)", flush=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", required=True, help="where the program gradients is")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--cases", help="SHAPE[:LAYERS]/full|lora, with commas between")
    parser.add_argument("--lengths", help="tokens of a micro-batch, with commas between")
    parser.add_argument("--all", action="store_true", help="print every tensor")
    parser.add_argument("--csv", help="write every tensor's numbers there")
    parser.add_argument("--work", help="where models and gradients go for a while")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("more", nargs="*", help="options of gradients, after --")
    args = parser.parse_args()
    args.cases = (args.cases or CASES[args.device]).split(",")
    args.lengths = [int(n) for n in (args.lengths or LENGTHS[args.device]).split(",")]
    if any(case.partition("/")[2] not in ("full", "lora") for case in args.cases):
        parser.error("a case is SHAPE[:LAYERS]/full or SHAPE[:LAYERS]/lora")
    if min(args.lengths) < 32:
        parser.error("--lengths from 32 on")
    return args


def main():
    args = arguments()
    kit.quiet()
    if args.threads:
        torch.set_num_threads(args.threads)
    largest = max(kit.parameters_of(case.partition("/")[0])[1] for case in args.cases)
    # A model in bfloat16, and two types of gradients in float32 for each length.
    args.dir = kit.work_dir(args.work, "compare_gpu_", (4 + 8 * len(args.lengths)) * largest)
    failures, table, start = [], [], time.time()
    print(f"{kit.versions()}; files in {args.dir}")
    try:
        for case in args.cases:
            run_case(args, case, failures, table)
    finally:
        shutil.rmtree(args.dir, ignore_errors=True)
    if args.csv:
        with open(args.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, list(table[0]))
            writer.writeheader()
            writer.writerows(table)
    print(f"\n{len(args.cases)} cases in {time.time() - start:.0f} s: "
          + ("PASS" if not failures else f"FAIL, {len(failures)} rules:"))
    for failure in failures:
        print("  " + failure)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
