#!/usr/bin/env python3
"""Ebb's tokenizers against Hugging Face's `tokenizers`, on one core, in turns.

    bench_tokenizer.py BENCH_TOKENIZE MODEL_DIR FILE ... [--rounds N]

BENCH_TOKENIZE is the program built from bench/tokenize.c. Each line of a FILE is a text; of a .json or .jsonl file every
string in it is. The ids of both sides are compared in number; the times are processor seconds, of which other programs
on the machine take less than of the clock's. Each side has seen the texts once before it is timed.
SPDX-License-Identifier: Apache-2.0
"""
import os

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import argparse
import json
import statistics
import subprocess
import tempfile
import time

from tokenizers import Tokenizer


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def lines_of(path):
    with open(path, encoding="utf-8", newline="") as file:
        raw = file.read()
    if path.endswith(".jsonl"):
        raw = "\n".join(text for line in raw.split("\n") if line for text in strings(json.loads(line)))
    elif path.endswith(".json"):
        raw = "\n".join(strings(json.loads(raw)))
    return raw.rstrip("\n").split("\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    tokenizer = Tokenizer.from_file(os.path.join(options.model, "tokenizer.json"))
    for path in options.files:
        texts = lines_of(path)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="") as file:
            file.write("\n".join(texts) + "\n")
            file.flush()
            size = os.path.getsize(file.name)
            ids = sum(len(one.ids) for one in tokenizer.encode_batch_fast(texts))
            ours, theirs = [], []
            for _ in range(options.rounds):
                result = json.loads(subprocess.run([options.program, options.model, file.name, "1"], check=True,
                                                   stdout=subprocess.PIPE).stdout)
                ours += result["rounds"]
                start = time.process_time()
                tokenizer.encode_batch_fast(texts)
                theirs.append(time.process_time() - start)
        assert result["ids"] == ids, (result["ids"], ids)
        a, b = size / statistics.median(ours) / 1e6, size / statistics.median(theirs) / 1e6
        print(f"{os.path.basename(path)}: {size} bytes, {ids} ids; MB/s: Ebb {a:.1f} "
              f"({size / max(ours) / 1e6:.1f}-{size / min(ours) / 1e6:.1f}), tokenizers {b:.1f} "
              f"({size / max(theirs) / 1e6:.1f}-{size / min(theirs) / 1e6:.1f}); ratio {a / b:.1f}")


if __name__ == "__main__":
    main()
