#!/usr/bin/env python3
"""Prints the numbers of tests/model_rope.c: rotary tables as transformers computes them.

    pip install torch transformers
    python3 tools/golden_rope.py

With a path, it writes every inverse frequency and table of the cases there as float32, for a whole comparison.
SPDX-License-Identifier: Apache-2.0
"""
import sys

import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

CASES = {
    "plain": (64, 8192, {"rope_type": "default", "rope_theta": 10000.0}),
    "linear": (128, 16384, {"rope_type": "linear", "rope_theta": 100000.0, "factor": 4.0}),
    "llama3": (64, 131072, {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0,
                            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}),
    "yarn": (128, 131072, {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 4.0,
                           "original_max_position_embeddings": 32768}),
    "yarn_exact": (128, 163840, {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0, "beta_fast": 24,
                                 "beta_slow": 2, "mscale": 1.0, "mscale_all_dim": 0.5, "truncate": False,
                                 "original_max_position_embeddings": 4096}),
}
POSITIONS = [0, 1, 4095, 100000]


def case(head_dim, positions, rope):
    config = LlamaConfig(hidden_size=head_dim * 2, num_attention_heads=2, head_dim=head_dim,
                         max_position_embeddings=positions, rope_parameters=dict(rope))
    embedding = LlamaRotaryEmbedding(config)
    cos, sin = embedding(torch.zeros(1, dtype=torch.float32), torch.tensor([POSITIONS]))
    half = head_dim // 2
    return embedding.inv_freq, torch.cat([cos[0, :, :half], sin[0, :, :half]], dim=1)


def main():
    out = open(sys.argv[1], "wb") if len(sys.argv) > 1 else None
    for name, (head_dim, positions, rope) in CASES.items():
        inv_freq, table = case(head_dim, positions, rope)
        half = head_dim // 2
        if out:
            out.write(inv_freq.numpy().astype("<f4").tobytes() + table.numpy().astype("<f4").tobytes())
            continue
        for i in (0, 1, half // 3, half // 2, half * 2 // 3, half - 1):
            cos, sin = table[-1, i].item(), table[-1, half + i].item()
            print(f'    {{"{name}", {i}, {inv_freq[i].item():#.9g}f, {cos:#.9g}f, {sin:#.9g}f}},')


main()
