#!/usr/bin/env python3
"""Counts the code points that Ebb and Hugging Face's `tokenizers` put into different classes.

    unicode_tokenizer.py EBB

Ebb's regular expressions are PCRE2's, its normalization forms utf8proc's, and each library knows the Unicode version that
it was made with. Every code point is encoded alone by both sides with the fixture tests/golden/tokenizer_small, once for
each class and form, and ranges that come out differently are printed.
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer

SMALL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden", "tokenizer_small", "tokenizer.json")
POINTS = [p for p in range(0x110000) if p != 10 and not 0xd800 <= p <= 0xdfff]
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}


def different(program, folder, keys):
    with open(SMALL, encoding="utf-8") as file:
        whole = json.load(file)
    whole.update(keys, added_tokens=[])
    text = json.dumps(whole)
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
        file.write(text)
    lines = "".join(chr(p) + "\n" for p in POINTS).encode("utf-8")
    ours = subprocess.run([program, "tokenize", folder], input=lines, stdout=subprocess.PIPE, check=True).stdout.decode().split("\n")
    theirs = Tokenizer.from_str(text)
    result = set()
    for start in range(0, len(POINTS), 100000):
        part = POINTS[start:start + 100000]
        for p, encoding, line in zip(part, theirs.encode_batch_fast([chr(p) for p in part]), ours[start:start + 100000]):
            if " ".join(map(str, encoding.ids)) != line:
                result.add(p)
    return result


def ranges(points):
    out = []
    for p in sorted(points):
        if out and p == out[-1][1] + 1:
            out[-1][1] = p
        else:
            out.append([p, p])
    return " ".join(f"{a:04X}" if a == b else f"{a:04X}-{b:04X}" for a, b in out)


def main():
    everything = set()
    with tempfile.TemporaryDirectory() as folder:
        for name in ["\\p{L}", "\\p{N}", "\\p{M}", "\\p{P}", "\\p{S}", "\\p{Lu}", "\\p{Ll}", "\\p{Lo}", "\\p{Han}", "\\s", "\\w", "\\d"]:
            split = {"type": "Split", "pattern": {"Regex": name}, "behavior": "Removed", "invert": False}
            found = different(sys.argv[1], folder, {
                "normalizer": None, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, BYTES]}})
            everything |= found
            print(f"{name}: {len(found)}: {ranges(found)}", flush=True)
        for name in ["NFC", "NFD", "NFKC", "NFKD", "Lowercase"]:
            found = different(sys.argv[1], folder, {"normalizer": {"type": name}, "pre_tokenizer": BYTES})
            everything |= found
            print(f"{name}: {len(found)}: {ranges(found)}", flush=True)
    print(f"together: {len(everything)}: {ranges(everything)}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
