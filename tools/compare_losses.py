#!/usr/bin/env python3
"""What `ebb kd` and `ebb dpo` say of their first step, beside the same numbers by transformers.

    python tools/compare_losses.py --bin DIR --model MODEL --pairs FILE [--examples FILE] [--work DIR]

DIR holds the program `ebb`. MODEL is a directory with weights and tokenizer: the teacher, and the
model that preferences train. FILE are data sets: preference pairs, and what a student learns from
(without it, the pairs' chosen answers). The student is a random model of three layers with MODEL's
tokenizer. `ebb data json=true` says which tokens each record becomes and which of them count; torch
does the rest in float64 from float32 logits, document by document.

Compared, in float32: cross-entropy and every divergence with a temperature of 2 and its square; the
mean log-probability of the chosen and of the rejected answers. They may be a part in 100,000 apart.
Exit 0: they agree; 1: they do not; 2: something could not run.
SPDX-License-Identifier: Apache-2.0
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM

APART = 1e-5
RECORDS = 4
TAU, BETA = 2.0, 0.3


def run(command, **keywords):
    done = subprocess.run(command, capture_output=True, text=True, **keywords)
    if done.returncode != 0:
        print(" ".join(command), done.stderr[-2000:], sep="\n", file=sys.stderr)
        sys.exit(2)
    return done.stdout


def samples(ebb, model, data, recipe):
    text = run([ebb, "data", "recipe=" + recipe, "model=" + model, "dataset=" + data, "json=true",
                f"dataset_max_samples={RECORDS}", f"show_samples={RECORDS}"])
    return [s for record in json.loads(text)["shown"] for s in record["samples"]]


def first_step(ebb, command, work, *keys):
    out = os.path.join(work, "out")
    shutil.rmtree(out, ignore_errors=True)
    run([ebb, command, "output_dir=" + out, f"dataset_max_samples={RECORDS}", "max_steps=1", "dtype=float32",
         f"per_device_train_batch_size={RECORDS}", "save_strategy=no", "device=cpu", *keys])
    with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as file:
        return json.loads(file.readline())


def logits(model, sample):
    """Of the rows that count, and their targets."""
    ids = torch.tensor([sample["input_ids"]])
    labels = torch.tensor(sample["labels"])[1:]
    with torch.no_grad():
        rows = model(ids).logits[0, :-1].double()
    return rows[labels >= 0], labels[labels >= 0]


def kl(a, b):
    return (a.exp() * (a - b)).sum(-1)


def mix(a, b, share):
    """log(share e^a + (1 - share) e^b)"""
    return torch.logaddexp(a + torch.tensor(share).log(), b + torch.tensor(1 - share).log())


DIVERGENCES = {
    "forward_kl": lambda p, q: kl(p, q),
    "reverse_kl": lambda p, q: kl(q, p),
    "jsd": lambda p, q: BETA * kl(p, mix(p, q, BETA)) + (1 - BETA) * kl(q, mix(p, q, BETA)),
    "symmetric_kl": lambda p, q: BETA * kl(p, q) + (1 - BETA) * kl(q, p),
    "skewed_forward_kl": lambda p, q: kl(p, mix(p, q, BETA)),
    "skewed_reverse_kl": lambda p, q: kl(q, mix(q, p, BETA)),
}


class Report:
    def __init__(self):
        self.good = True

    def add(self, name, ebb, torch_value):
        apart = abs(ebb - torch_value) / max(abs(torch_value), 1e-12)
        self.good = self.good and apart <= APART
        print(f"{'ok  ' if apart <= APART else 'FAIL'} {name:24} ebb {ebb:.9g}  torch {torch_value:.9g}  apart {apart:.1e}")


def make_student(ebb, model, work):
    with open(os.path.join(model, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    config.update(hidden_size=128, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                  intermediate_size=352, head_dim=32, torch_dtype="float32")
    shape = os.path.join(work, "student.json")
    with open(shape, "w", encoding="utf-8") as file:
        json.dump(config, file)
    student = os.path.join(work, "student")
    run([ebb, "init", shape, student, "tokenizer=" + model])
    return student


def distillation(ebb, args, work, teacher, report):
    data = args.examples or args.pairs
    path = make_student(ebb, args.model, work)
    student = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    ce = labels = 0
    sums = dict.fromkeys(DIVERGENCES, 0.0)
    for sample in samples(ebb, args.model, data, "sft"):
        (t, _), (z, y) = logits(teacher, sample), logits(student, sample)
        ce += torch.nn.functional.cross_entropy(z, y, reduction="sum").item()
        labels += len(y)
        p, q = (t / TAU).log_softmax(-1), (z / TAU).log_softmax(-1)
        for name, divergence in DIVERGENCES.items():
            sums[name] += TAU * TAU * divergence(p, q).sum().item()
    for name, total in sums.items():
        keys = [] if name in ("forward_kl", "reverse_kl") else [f"beta={BETA}"]
        step = first_step(ebb, "kd", work, "model=" + path, "teacher=" + args.model, "dataset=" + data,
                          "kd_loss=" + name, f"temperature={TAU}", "kd_scale_t2=true", *keys)
        if name == "forward_kl":
            report.add("cross-entropy", step["ce_loss"], ce / labels)
        report.add(name, step["kd_loss"], total / labels)


def preferences(ebb, args, work, model, report):
    totals = []
    for sample in samples(ebb, args.model, args.pairs, "dpo"):
        z, y = logits(model, sample)
        totals.append(z.log_softmax(-1).gather(1, y[:, None]).sum().item())
    step = first_step(ebb, "dpo", work, "model=" + args.model, "dataset=" + args.pairs, "use_peft=true")
    for k, side in enumerate(("chosen", "rejected")):
        side_totals = totals[k::2]
        report.add("logps/" + side, step["logps/" + side], sum(side_totals) / len(side_totals))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--pairs", required=True)
    parser.add_argument("--examples")
    parser.add_argument("--work")
    args = parser.parse_args()
    ebb = os.path.abspath(os.path.join(args.bin, "ebb"))
    report = Report()
    with tempfile.TemporaryDirectory(dir=args.work) as work:
        model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
        preferences(ebb, args, work, model, report)
        distillation(ebb, args, work, model, report)
    print("PASS" if report.good else "FAIL")
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
