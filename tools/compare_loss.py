#!/usr/bin/env python3
"""The loss of a model on a data set, by `ebb eval` and by transformers, in float32 on the processor.

    python tools/compare_loss.py EBB MODEL_DIR DATA.json [--samples N] [--tolerance 5e-7]

DATA is a JSON file or JSON lines of {instruction, output} and perhaps input (Alpaca's records), or of {prompt,
completion}. transformers' side makes its own ids of them with the tokenizer in MODEL_DIR: prompt and completion are
tokenized separately and laid end to end, EOS behind; only completion and EOS count. Each sample is computed by
itself, without padding; the loss is the sum over all labels divided by their number, as in Ebb. Logits are float32
on both sides and their logarithm of a sum is taken in double: in float32 PyTorch's is off by some 1e-6 a label, all
in one direction.

Prints one JSON object: both losses, their relative difference, labels and seconds of both sides. Exit 0: the numbers
of tokens, labels and right predictions agree (the last but for ties: one in 10,000) and the losses within the
tolerance; 1: they do not. Needs torch and transformers; the network is asked nothing.
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import json
import os
import subprocess
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"  # read on import

import torch
import transformers

HEAD = "Below is an instruction that describes a task"
MORE = ", paired with an input that provides further context"
TAIL = ". Write a response that appropriately completes the request.\n\n"


def prompt_and_completion(record):
    if "completion" in record:
        return record["prompt"], record["completion"]
    given = record.get("input") or ""
    prompt = HEAD + (MORE if given else "") + TAIL + "### Instruction:\n" + record["instruction"] + "\n\n"
    if given:
        prompt += "### Input:\n" + given + "\n\n"
    return prompt + "### Response:", record["output"]


def records_of(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if text.lstrip().startswith("["):
        return json.loads(text)
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def by_transformers(args):
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    start, total, labels, right, tokens = time.time(), 0.0, 0, 0, 0
    records = records_of(args.data)
    for record in records[:args.samples or None]:
        prompt, completion = prompt_and_completion(record)
        first = tokenizer(prompt)["input_ids"]
        ids = first + tokenizer(completion, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, max(len(first), 1) - 1:-1].double()
        target = torch.tensor(ids[max(len(first), 1):])
        total += torch.nn.functional.cross_entropy(logits, target, reduction="sum").item()
        right += (logits.argmax(-1) == target).sum().item()
        labels += len(target)
        tokens += len(ids)
    return {"loss": total / labels, "accuracy": right / labels, "labels": labels, "tokens": tokens,
            "seconds": round(time.time() - start, 1)}


def by_ebb(args):
    command = [args.ebb, "eval", "model_name_or_path=" + args.model, "dataset_name=" + args.data, "dtype=float32",
               "dataset_max_samples=%d" % args.samples, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit("compare_loss: ebb eval failed\n" + done.stderr)
    result = json.loads(done.stdout)
    return {"loss": result["eval_loss"], "accuracy": result["eval_mean_token_accuracy"],
            "labels": result["eval_num_labels"], "tokens": result["eval_num_tokens"],
            "seconds": round(result["eval_runtime"], 1)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ebb")
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--samples", type=int, default=0, help="only the first so many; 0: all")
    parser.add_argument("--tolerance", type=float, default=5e-7, help="relative")
    args = parser.parse_args()
    ebb, other = by_ebb(args), by_transformers(args)
    apart = abs(ebb["loss"] - other["loss"]) / other["loss"]
    print(json.dumps({"ebb": ebb, "transformers": other, "relative_difference": apart}, indent=2))
    same = ebb["labels"] == other["labels"] and ebb["tokens"] == other["tokens"]
    sys.exit(0 if same and apart <= args.tolerance and abs(ebb["accuracy"] - other["accuracy"]) <= 1e-4 else 1)


if __name__ == "__main__":
    main()
