#!/usr/bin/env python3
# Writes the inputs that the fuzz targets begin with: tests/fuzz/corpus/TARGET/seed_NAME. What the
# fuzzers found beside them has names of 40 hexadecimal digits; reproducers of faults have sentences.
# usage: tools/fuzz_seeds.py (from anywhere; needs Python's own library alone)
import gzip
import json
import os
import struct

CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "fuzz", "corpus")


def write(target, name, *texts):
    """Texts and bytes, joined by NUL."""
    data = b"\0".join(t if isinstance(t, bytes) else t.encode() for t in texts)
    folder = os.path.join(CORPUS, target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "seed_" + name), "wb") as file:
        file.write(data)


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# ---- tokenizers ----

def byte_letters():
    plain = [b for b in range(256) if 0x21 <= b <= 0x7E or (b >= 0xA1 and b != 0xAD)]
    letters, following = {}, 256
    for b in range(256):
        letters[b] = chr(b if b in plain else following)
        following += b not in plain
    return letters


def token(index, content, **flags):
    return {"id": index, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True, **flags}


def tokenizer(vocab, merges, added=(), model=None, **components):
    return compact({"version": "1.0", "added_tokens": list(added), **components,
                    "model": {"type": "BPE", **(model or {}),
                              "vocab": {t: i for i, t in enumerate(vocab)}, "merges": merges}})


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
SPLIT = {"type": "Split", "pattern": {"Regex": r"\p{N}{1,3}|[^\s\p{L}\p{N}]+|\s+(?!\S)|\s?\p{L}+"},
         "behavior": "Isolated", "invert": False}
MARKED = ["<unk>", "<s>", "</s>", "<0x0A>", "<0xC3>", "<0xBC>", "\u2581", "a", "b", "s", "\u2581a", "ab"]


def tokenizers():
    letters = byte_letters()
    few = ["<s>", "</s>"] + [letters[b] for b in b" ab12\n\xc3\xbc"] + ["ab", letters[32] + "a"]
    write("tokenizer_json", "bytes",
          tokenizer(few, ["a b", [letters[32], "a"]], [token(0, "<s>"), token(1, "</s>", lstrip=True)],
                    pre_tokenizer=BYTE_LEVEL, decoder=BYTE_LEVEL, normalizer=None),
          compact({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "add_bos_token": True}),
          "a ab\n<s>ba")
    write("tokenizer_json", "all_bytes",
          tokenizer([letters[b] for b in range(256)], [], pre_tokenizer=BYTE_LEVEL, decoder=BYTE_LEVEL),
          "", "ü and all")
    write("tokenizer_json", "split",
          tokenizer(few, ["a b"], [], pre_tokenizer={"type": "Sequence", "pretokenizers": [
              SPLIT, {"type": "Digits", "individual_digits": True},
              dict(BYTE_LEVEL, use_regex=False)]},
              normalizer={"type": "NFC"}, decoder=BYTE_LEVEL,
              model={"ignore_merges": True, "dropout": None}), "", "a1 12ab ab")
    write("tokenizer_json", "marked",
          tokenizer(MARKED, ["a b", "\u2581 a"], [token(1, "<s>"), token(2, "</s>", rstrip=True)],
                    model={"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True},
                    normalizer={"type": "Sequence", "normalizers": [
                        {"type": "Prepend", "prepend": "\u2581"},
                        {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
                    post_processor={"type": "TemplateProcessing", "single": [
                        {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                        "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
                    decoder={"type": "Sequence", "decoders": [
                        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                        {"type": "ByteFallback"}, {"type": "Fuse"},
                        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}),
          compact({"unk_token": "<unk>"}), "ab ü\n")
    write("tokenizer_json", "metaspace",
          tokenizer(MARKED, ["a b"], [token(7, "a", single_word=True, normalized=True, special=False)],
                    model={"unk_token": "<unk>"},
                    normalizer={"type": "Sequence", "normalizers": [
                        {"type": "NFKC"}, {"type": "Lowercase"},
                        {"type": "Strip", "strip_left": True, "strip_right": True}]},
                    pre_tokenizer={"type": "Metaspace", "replacement": "\u2581",
                                   "prepend_scheme": "first", "split": True},
                    decoder={"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"}),
          "", " Ab ﬁ a ab ")
    write("tokenizer_json", "behaviours",
          tokenizer(few, [], [], normalizer={"type": "Replace", "pattern": {"Regex": "b+"}, "content": "a"},
                    pre_tokenizer={"type": "Sequence", "pretokenizers": [
                        dict(SPLIT, behavior=b, invert=b < "N", pattern={"String": "a"})
                        for b in ("Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous")] + [BYTE_LEVEL]},
                    post_processor={"type": "Sequence", "processors": [BYTE_LEVEL]}))
    for i, text in enumerate(["", " a", "Grüße  aus\r\n\tKöln 12345 !!", "<|bos|>x<|pad|><s> </s>",
                              "\u2581\u2581 a\u2581 b", "e\u0301\u200d\U0001f469\u200d\U0001f680 it's I'LL",
                              "a\0b\0", b"\xff\xfe a \xc3", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "あいう漢字 กข"]):
        write("tokenize_text", f"{i}", text)


# ---- templates ----

CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
TRIMMED = ("{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}[INST] {{ m['content'] | trim }} "
           "[/INST]{% elif m['role'] == 'assistant' %}{{ ' ' ~ m['content'].strip() ~ eos_token }}"
           "{% else %}{{ raise_exception('no ' + m['role']) }}{% endif %}{% endfor %}")
MARKS = ("{% for m in messages %}{% if m.role == 'assistant' %}A: {% generation %}{{ m.content }}</s>"
         "{% endgeneration %}{% else %}U: {{ m.content }}\n{% endif %}{% endfor %}")
TOOLS = ("{%- if tools %}{{ tools | tojson(indent=2) }}{% endif %}{%- for m in messages %}"
         "{%- if m.tool_calls %}{%- for c in m.tool_calls %}<call>{{ c.function.name }} "
         "{{ c.function.arguments | tojson }}</call>{% endfor %}</s>{%- elif m.reasoning_content and loop.last %}"
         "A<think>{{ m.reasoning_content }}</think>{{ m.content }}</s>{%- else %}{{ m.role[0]|upper }}"
         "{{ m.content }}</s>{% endif %}{% endfor %}")

TEMPLATES = {
    "text": "a\n{#- c -#}\n b {{- s }}\n{%- raw %}{{ x }}{% endraw %}",
    "loops": "{% for k, v in d|dictsort if k %}{{ loop.index0 }}{{ loop.last }}{{ loop.cycle(1, 2) }}{{ k }}"
             "{% else %}none{% endfor %}{% for i in range(9)[::-2] %}{% if i == 3 %}{% break %}{% endif %}"
             "{% if i is odd %}{% continue %}{% endif %}{{ i }}{% endfor %}",
    "macros": "{% macro m(a, b=2) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{{ caller() if caller }}{% endmacro %}"
              "{{ m(1) }}{{ m(1, b='x', q=3) }}{% call m(9) %}inner{% endcall %}",
    "set": "{% set ns = namespace(x=1) %}{% set ns.x = ns.x + 1 %}{% set a, b = [1, 2] %}{% set t %}block{% endset %}"
           "{{ ns.x, a, b, t }}{% with q = 3 %}{{ q }}{% endwith %}{% filter upper %}{{ s }}{% endfilter %}",
    "numbers": "{{ 1 + 2 * 3 // 4 - 5 % 3 ** 2 / 7 }}{{ -7 // 2 }}{{ 7 % -3 }}{{ 2 ** 10 }}{{ 1e100 }}{{ 0x1f }}"
               "{{ 1_000 }}{{ 9223372036854775807 }}{{ f|round(1) }}{{ '%05.2f' % 3.14159 }}{{ '12'|int }}{{ f|abs }}",
    "strings": "{{ s.upper() }}{{ s.split(', ')[-1] }}{{ s|replace('ü', 'x') }}{{ s[1:-1:2] }}{{ s.find('w') }}"
               "{{ s|title }}{{ s|wordcount }}{{ '%s-%d' % (s, n) }}{{ '{} {}'.format(s, n) }}{{ s|indent(2, true) }}"
               "{{ s.startswith(('a', 'G')) }}{{ s|center(30) }}{{ '\\u00e9\\n' ~ s|length }}{{ s|escape }}",
    "lists": "{{ l|sort }}{{ l|join(', ') }}{{ l|first }}{{ l|sum }}{{ l|map('string')|list }}{{ l|select('gt', 1)|list }}"
             "{{ messages|map(attribute='role')|unique|list }}{{ messages|selectattr('role', 'equalto', 'user')|list }}"
             "{{ l|batch(2, 0)|list }}{{ l|slice(2)|list }}{{ l + [4] }}{{ 1 in l }}{{ l|tojson }}{{ l|reverse|list }}",
    "tests": "{{ n is divisibleby 7 }}{{ q is defined }}{{ o is none }}{{ s is string }}{{ d is mapping }}{{ l is iterable }}"
             "{{ n is sameas 7 }}{{ q|default('d') }}{{ t and not o or n }}{{ 1 if t else 2 }}{{ 1 < 2 <= 2 }}{{ n in [7] }}",
    "dicts": "{{ d['items'][1].x }}{{ d.get('z', 5) }}{{ d.keys()|list }}{% for k, v in d.items() %}{{ k }}{% endfor %}"
             "{{ dict(a=1) }}{{ {'a': {1: (1,)}} }}{{ d|length }}{{ d|items|list }}{{ d|tojson(indent=1) }}",
    "globals": "{{ strftime_now('%d %B %Y %H:%M') }}{{ cycler('a', 'b').next() }}{{ joiner(', ')() }}{{ lipsum is defined }}"
               "{{ raise_exception('stop') }}",
    "generation": "x{% generation %}{{ s }}{% endgeneration %}{% for m in messages %}{% generation %}y{% endgeneration %}{% endfor %}",
    "chatml": CHATML, "trimmed": TRIMMED, "marks": MARKS,
    "recursion": "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
    "growth": "{% set ns = namespace(x='0123456789') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "cycle": "{% set ns = namespace(x=[1]) %}{% set ns.x = [ns, ns] %}{{ ns.x }}{{ ns.x == ns.x }}{{ ns|tojson }}",
    "long_loop": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "large_text": "{{ 'x' * 99999999 }}{{ 'x'.center(99999999) }}{{ '%99999999d' % 1 }}",
    "nested": "{{ " + "(" * 300 + "1" + ")" * 300 + " }}",
    "nested_if": "{% if 1 %}" * 100 + "x" + "{% endif %}" * 100,
    "chain": "{{ 1" + " + 1" * 300 + " }}",
}

TALK = [{"role": "system", "content": "be kind"}, {"role": "user", "content": " hi "},
        {"role": "assistant", "content": "ho\n", "reasoning": "hm"}, {"role": "user", "content": "and?"},
        {"role": "assistant", "content": "no", "tool_calls": None}]
SHORT = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}]
CALLS = [{"role": "user", "content": "x"},
         {"role": "assistant", "content": "", "tool_calls": [
             {"type": "function", "function": {"name": "f", "arguments": {"a": 1, "b": ["c"]}}}]},
         {"role": "tool", "content": "3", "name": "f"},
         {"role": "assistant", "reasoning_content": "r", "content": "it is 3"}]
TOOL = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def templates():
    for name, text in TEMPLATES.items():
        write("jinja", name, text)
    for target in ("chat_template", "chat_spans"):
        for name, text in (("chatml", CHATML), ("marks", MARKS)):
            write(target, name, text, compact(TALK))
        write(target, "trimmed", TRIMMED, compact(SHORT * 2), "", compact({"bos_token": "x", "q": [1]}))
        write(target, "tools", TOOLS, compact(CALLS), compact(TOOL), compact({"enable_thinking": True}))
        write(target, "constant", "always the same", compact(SHORT))
        write(target, "shape", CHATML, '[{"role":"user"},7,{"content":null}]')


# ---- JSON, YAML, configurations ----

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
         "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "vocab_size": 320, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
         "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 1,
         "eos_token_id": 2}


def configs():
    write("config", "llama", compact(LLAMA), compact({"eos_token_id": [2, 3], "pad_token_id": 0}))
    write("config", "llama3", compact(dict(LLAMA, rope_scaling={
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32})))
    write("config", "yarn", compact(dict(LLAMA, rope_scaling={
        "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 32, "mscale": 1.0})))
    write("config", "linear", compact(dict(LLAMA, rope_theta=None, rope_parameters={
        "rope_type": "linear", "factor": 2, "rope_theta": 5e5}, attention_bias=True, mlp_bias=True)))
    qwen = dict(LLAMA, sliding_window=16, use_sliding_window=True, max_window_layers=1,
                layer_types=["full_attention", "sliding_attention"], head_dim=16)
    write("config", "qwen2", compact(dict(qwen, architectures=["Qwen2ForCausalLM"], model_type="qwen2")))
    write("config", "qwen3", compact(dict(qwen, architectures=["Qwen3ForCausalLM"], model_type="qwen3")))
    write("config", "mistral", compact({k: v for k, v in dict(
        LLAMA, architectures=["MistralForCausalLM"], model_type="mistral", sliding_window=8).items()
        if k != "torch_dtype"}))
    write("adapter", "lora", compact({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 8, "lora_alpha": 16, "lora_dropout": 0.05,
        "target_modules": ["q_proj", "v_proj"], "bias": "none", "use_rslora": True, "use_dora": False,
        "base_model_name_or_path": "base", "init_lora_weights": True, "modules_to_save": None}))
    write("adapter", "text", compact({"peft_type": "LORA", "r": 1, "lora_alpha": 1.5,
                                      "target_modules": "all-linear", "rank_pattern": {}, "unknown": [1, {"a": 2}]}))
    for i, text in enumerate(['{"a": [1, -0, 2.5e3, true, null, "\\u00e9\\ud83d\\ude00\\n"], "b": {"": {}}}',
                              "[]", '"x"', "-9223372036854775808", '{"a": 123456789012345678901234567890}',
                              '{"a":1,"a":2}', '\ufeff{"a": 1e308}', '{"a": "\\u0000", "a\\u0000": 1}',
                              '{"a": 0.1, "b": [[[[[]]]]], "c": {"d": 1.0}}', " [1 , 2 ] x", '{"a": tru}',
                              '["\\ud800"]', '{"a" 1}', "[1,]"]):
        write("json", f"{i}", text)
        write("json_scan", f"{i}", text)
    for i, text in enumerate(["", "a: 1\nb: [x, 'y', {c: d}]\n", "- 1\n- - 2\n  - {}\n", "a: |\n  text\n  more\nb: >-\n  f\n",
                              "a: ~\nb:\nc: null\n'd': \"\\u00e9\"\n", "a: &x 1\nb: *x\n", "a: !!int 1\n", "a: 1\na: 2\n",
                              "--- \na: 1\n---\nb: 2\n", "a: [1, 2\n", "\ta: 1\n", "? [a]\n: b\n",
                              "%YAML 1.1\n---\na: b # c\n...\n", "[" * 40, "{x: host}"]):
        write("yaml", f"{i}", text)
    sft = ("model_name_or_path: model\ndataset_name: data.jsonl\noutput_dir: out\nmax_steps: 10\n"
           "learning_rate: 2e-4\nuse_peft: true\nlora_r: 8\nlora_target_modules: [q_proj, v_proj]\n")
    write("options", "sft", "\0" + sft, "lora_alpha=16", "--max-length=64")
    write("options", "memory", "\0" + sft + "memory_budget: 80%\nhost_memory_budget: 2GiB\n"
          "activations:\n  - {layers: 0-3, every: 2, x: host}\n  - {layers: 4-, attn: recompute}\n")
    write("options", "foreign", "\0" + sft + "bf16: true\nsequence_len: 64\nmicro_batch_size: 2\n"
          "deepspeed: x.json\nlora_rank: 4\nlearning_rat: 1\n")
    for command in range(1, 8):
        write("options", f"command{command}", bytes([command]) + b"model_name_or_path: m\nprompt: 'hi'\n",
              "json=true", "--temperature=0.7", "top_p=2")


# ---- safetensors ----

def tensors(entries, data, metadata=None):
    header = {**({"__metadata__": metadata} if metadata else {}), **entries}
    text = compact(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype, shape, start, stop):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def safetensors():
    two = tensors({"a": entry("F32", [2, 3], 0, 24), "b": entry("BF16", [4], 24, 32)}, bytes(range(32)),
                  {"format": "pt"})
    write("safetensors", "two", two)
    write("safetensors", "kinds", tensors({
        "a": entry("I64", [1], 0, 8), "b": entry("F16", [2, 1, 1], 8, 12), "c": entry("U8", [3], 12, 15),
        "d": entry("F32", [0, 4], 15, 15), "e": entry("I32", [], 15, 19)}, bytes(19)))
    write("safetensors", "empty", tensors({}, b""))
    write("safetensors", "overlap", tensors({"a": entry("F32", [2], 0, 8), "b": entry("F32", [1], 4, 8)}, bytes(8)))
    write("safetensors", "short", two[:-4])
    write("safetensors", "huge_header", struct.pack("<Q", 2**63 + 5) + b"{}")
    write("safetensors", "huge_shape", tensors({"a": entry("F32", [2**62, 2**62, 2**62, 2], 0, 8)}, bytes(8)))
    name = "model-00001-of-00001.safetensors"
    write("safetensors", "index", compact({"metadata": {"total_size": 32}, "weight_map": {"a": name, "b": name}}), two)
    write("safetensors", "index_outside", compact({"weight_map": {"a": "../x", "b": name}}), two)


# ---- data sets ----

def zstd(text, times=0):
    """One frame of one block: the text as it is, or its first byte many times."""
    size = times or len(text)
    block = (1 | (2 if times else 0) | size << 3).to_bytes(3, "little")
    return b"\x28\xb5\x2f\xfd" + b"\xa0" + struct.pack("<I", size) + block + (text[:1] if times else text)


CHAT = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}
RECORDS = {
    "messages": CHAT,
    "tools": {"messages": CALLS, "tools": compact(TOOL)},
    "weights": {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "train": False},
                             {"role": "user", "content": "c"}, {"role": "assistant", "content": "d", "weight": 1}]},
    "sharegpt": {"system": "s", "conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]},
    "function_call": {"conversations": [{"from": "human", "value": "a"}, {"from": "function_call", "value": '{"name":"f"}'},
                                        {"from": "observation", "value": "1"}, {"from": "gpt", "value": "b"}]},
    "preference": {"prompt": "a", "chosen": "b", "rejected": "c"},
    "preference_chat": {"chosen": SHORT, "rejected": [SHORT[0], {"role": "assistant", "content": "z"}]},
    "ranking": {"conversations": [{"from": "human", "value": "a"}], "chosen": {"from": "gpt", "value": "b"},
                "rejected": {"from": "gpt", "value": "c"}},
    "unpaired": {"prompt": "a", "completion": "b", "label": True},
    "kto": {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}], "kto_tag": False},
    "completion": {"prompt": "a", "completion": " b"},
    "completion_chat": {"prompt": SHORT[:1], "completion": SHORT[1:]},
    "alpaca": {"instruction": "a", "input": "b", "output": "c"},
    "alpaca_chat": {"instruction": "a", "output": "c", "system": "s", "history": [["x", "y"]]},
    "tokenized": {"input_ids": [1, 2, 3], "labels": [-100, 2, 3], "attention_mask": [1, 1, 1]},
    "masks": {"input_ids": [1, 2], "completion_mask": [0, 1], "assistant_masks": [1, 0]},
    "text": {"text": "a b c"},
}


def records():
    lines = "\n".join(compact(r) for r in (CHAT, {"text": "a"}, {"text": "\u00fc\n"})) + "\r\n\n"
    array = json.dumps([CHAT, {"text": "a"}, {"b": [1, {}]}], indent=1)
    table = 'text,label,"a ""b"""\r\nx,1,"c,\nd"\n"","q"z, y \n'
    write("records", "lines", b"\x00" + lines.encode())
    write("records", "broken_line", b"\x00" + lines.encode() + b'{"a": \n\xff\n{"text": "b"}')
    write("records", "array", b"\x01" + array.encode())
    write("records", "mark", b"\x01\xef\xbb\xbf" + array.encode())
    write("records", "table", b"\x02" + table.encode())
    write("records", "open_quote", b"\x02a,b\n1,\"2\n3,4\n")
    write("records", "tabs", b"\x03a\tb\n1\t2\n3\n")
    write("records", "gzip", b"\x04" + gzip.compress(table.encode(), mtime=0))
    write("records", "zstd", b"\x05" + zstd(lines.encode()))
    write("records", "parquet", b"\x01PAR1\x15\x04PAR1")
    write("records", "renamed", b"\x06" + compact({"m": [{"who": "human", "says": "a"}, {"who": "gpt", "says": "b"}],
                                                  "q": "x", "a": "y", "prompt": "z"}).encode())
    write("records", "half", b"\x0c" + lines.encode())
    two = gzip.compress(b"a" * 50, mtime=0)
    write("unpack", "gzip", two)
    write("unpack", "members", two + gzip.compress(b"b\n", mtime=0))
    write("unpack", "cut", two[:-3])
    write("unpack", "behind", two + b"x")
    write("unpack", "checksum", two[:-8] + b"\0" * 8)
    write("unpack", "bomb", gzip.compress(b"\0" * 3000000, mtime=0))
    write("unpack", "zstd", zstd(b"text"))
    write("unpack", "frames", zstd(b"a") + b"\x50\x2a\x4d\x18\x02\0\0\0xx" + zstd(b"b"))
    write("unpack", "zstd_cut", zstd(b"text")[:-1])
    write("unpack", "repeated", zstd(b"a", 100000))
    write("unpack", "window", b"\x28\xb5\x2f\xfd\x00\xf8\x01\x00\x00")
    for i, text in enumerate(["", table, "a\tb\n\"c\"\td\n", "\ta\t\"b\tc\"\n", "a\rb\r\n\n\nc", '"a', '""""', ' "a" ,b', ",,\n,"]):
        write("csv", f"{i}", text)
    for name, record in RECORDS.items():
        write("format", name, b"\0\0" + compact(record).encode())
        by_name = ["", "", "messages", "sharegpt", "preference", "unpaired", "completion", "alpaca", "alpaca_chat",
                   "tokenized", "text"]
        if name in by_name:
            write("format", name + "_named", bytes([by_name.index(name), 1 | 4]) + compact(record).encode())
    write("format", "marks", bytes([2, 4 | 16 | 64]) + compact(RECORDS["weights"]).encode())
    write("format", "no_template", b"\0\x02" + compact(CHAT).encode())


tokenizers()
templates()
configs()
safetensors()
records()
