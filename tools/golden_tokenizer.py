#!/usr/bin/env python3
"""Writes the golden files of the tokenizer tests with Hugging Face's `tokenizers`.

    golden_tokenizer.py small                     tests/golden/tokenizer_small/ and tokenizer_small.json
    golden_tokenizer.py marked                    tests/golden/tokenizer_marked/ and tokenizer_marked.json
    golden_tokenizer.py real NAME TOKENIZER_DIR   tests/golden/tokenizer_NAME.json

`small` trains a byte-level BPE on the texts below, `marked` one of characters with byte fallback in SentencePiece's
manner (a space is U+2581), so that the fixtures are free of other people's data. Their golden files hold variants: keys
of tokenizer.json that replace the fixture's, and the ids that follow. Offsets are Hugging Face's, counted in bytes.
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import sys
import unicodedata

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden")

LESSONS = [
    "The tide comes in, the tide goes out, and the harbour keeps the same water for half a day.",
    "A small model learns what its teacher says, token after token, and forgets what it never sees.",
    "When the memory is full, something has to leave: the question is what, and when it will be needed again.",
    "She said that they'll come at 10:45, but it's already 11:30 and we've seen nobody.",
    "int main(void)\n{\n    for (int i = 0; i < 100; i++)\n        total += values[i] * weights[i];\n    return 0;\n}",
    "x = 3.14159\ny = 2 * x + 1\nprint(f'{x} {y}')\n",
    "Die Flut kommt und geht; das Wasser im Hafen bleibt für einen halben Tag dasselbe.",
    "La marée monte, la marée descend, et le port garde la même eau pendant une demi-journée.",
    "Вода приходит и уходит, а гавань остаётся.",
    "潮が満ちて、潮が引く。港の水は半日のあいだ同じです。",
    "潮水涨了又退，港口还是那个港口。",
    "The number 1234567890 has ten digits, 2024 has four, and 7 has one.",
    "What is the capital of this country? The capital is a city by the water.",
    "Below is a list:\n- first\n- second\n- third\n\nAnd here is the end.\n",
]

TORTURE = [
    "", " ", "  ", "   a", "a   ", "\n", "\n\n\n", "\r\n", " \n ", "\t\tx", " \n\n  x  \n",
    "Hello, world!", "hello world", " hello", "Hello  world   again",
    "it's they'll I'd we've you're he'S IT'S O'Neill 'tis ''s",
    "1", "12", "1234567890", "3.14159 + 2,71", "v1.2.3-rc4", "0x1F", "١٢٣ ४५ Ⅷ ² ½ ①",
    "naïve café", "nai\u0308ve cafe\u0301", "A\u030angstro\u0308m \u212b \u2126", "e\u0301\u0323 e\u0323\u0301 q\u0307\u0323",
    "\u0301 alone at the start", "a\u0301\u0301\u0301\u0301", "z\u0351\u0327\u0321algo",
    "한국어 \u1112\u1161\u11ab\u1100\u1173\u11af", "\uac00\u11a7\u11a8 \u1112\u1161\u11a7x", "日本語のテキスト。カタカナ、ひらがな。", "中文字符，标点。", "𠀀𠀁 extension B",
    "مرحبا بالعالم", "שלום עולם", "\u202bright to left\u202c", "हिन्दी में", "ภาษาไทย", "Ελληνικά ΐ ὗ",
    "😀", "👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪", "❤\ufe0f ❤", "\U0001f9d1\u200d\U0001f4bb codes",
    "a\u0000b", "\u0000", "\u0001\u0002\u001f\u007f", "\u0085\u00a0\u1680\u2003\u2028\u2029\u202f\u205f\u3000|",
    "\u180e\u200b\u200c\u200d\ufeff", "\ufffd \ufffe", "ſ 's 'ſ K ß ẞ ﬁ",
    "x" * 100, "supercalifragilisticexpialidocious" * 6, "ab" * 60, "=" * 80, "-=" * 50, " " * 40 + "x",
    "\n" * 20, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab",
    "<|endoftext|>", "a<|endoftext|>b", "<|im_start|>user\nHi<|im_end|>\n", "<|im_start|><|im_start|>", "<|im_end",
    "<|endoftext|", "  <|im_end|>  ", "<think>\n\n</think>", "<tool_call>{\"name\": \"f\"}</tool_call>",
    "if (a<b && c>d) { return a[i]->x; }", "https://example.org/a?b=c&d=%20#e", "user@example.org",
    "$x^2 + \\frac{1}{2}$", "snake_case camelCase kebab-case", "...!!!???", "“quoted” ‘text’ — dash…",
    "#define X(a, b) \\\n    do { a; } while (0)\n", "\u00adsoft\u00adhyphen", "The End.",
]

DIGITS = [text for text in TORTURE if any(c.isnumeric() for c in text)]
MARKS = [text for text in TORTURE if not text.isascii()]

GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def split(pattern, behavior, invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def added(number, content, **flags):
    entry = {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": False}
    entry.update(flags)
    return entry


def decode(tokenizer, ids):
    """As Hugging Face does, but an added token is its content even where that looks like the byte alphabet."""
    contents = {number: token.content for number, token in tokenizer.get_added_tokens_decoder().items()}
    pieces, run = [], []
    for number in ids:
        if number not in contents:
            run.append(number)
            continue
        pieces += [tokenizer.decode(run), contents[number]]
        run = []
    return "".join(pieces + [tokenizer.decode(run)])


def byte_offsets(text, offsets):
    """[start, stop, start, stop, ...] in bytes instead of characters."""
    before = [0]
    for character in text:
        before.append(before[-1] + len(character.encode("utf-8")))
    return [before[end] for pair in offsets for end in pair]


def golden(tokenizer, texts, special=False, pieces=False, places=False, bytewise=True):
    """With `pieces` the tokens as they are written, with `places` their offsets, but where NFC moves characters."""
    cases = []
    for text in texts:
        encoding = tokenizer.encode(text, add_special_tokens=special)
        case = {"text": text, "ids": encoding.ids}
        decoded = decode(tokenizer, encoding.ids) if bytewise else \
            tokenizer.decode(encoding.ids, skip_special_tokens=False)
        if decoded != text:
            case["decoded"] = decoded
        if pieces:
            case["pieces"] = encoding.tokens
        if places and unicodedata.is_normalized("NFC", text):
            case["offsets"] = byte_offsets(text, encoding.offsets)
        cases.append(case)
    return cases


def write(name, value):
    path = os.path.join(GOLDEN, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(value)
    print(path, os.path.getsize(path), "bytes")


def compact(items):
    return "[\n" + ",\n".join(json.dumps(item, ensure_ascii=True, separators=(',', ':')) for item in items) + "\n]"


def variants(base):
    """(name, keys that replace those of the fixture, texts, with special tokens)"""
    size = len(base["model"]["vocab"])
    words = ["bbaabbab", "b", "a", "bb b", "the water, the water", "abcbabc", "1a22b333", ""]
    for behavior in ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]:
        for invert in [False, True]:
            yield (f"split {behavior} invert={invert}",
                   {"pre_tokenizer": sequence(split("b", behavior, invert), BYTES)}, words, False)
    yield "split by text", {"pre_tokenizer": sequence(split("a.b", "Isolated", kind="String"), BYTES)}, \
        ["a.ba.b axb", "xa.b"], False
    yield "split at line ends", {"pre_tokenizer": sequence(split("e$|^t", "Isolated"), BYTES)}, \
        ["the\nthe the\nthe", "the", "the\n"], False
    yield "split with empty matches", {"pre_tokenizer": sequence(split("(?=t)|e", "Isolated"), BYTES)}, \
        ["the tide", "ettet", "te"], False
    yield "split by shorthand classes", {"pre_tokenizer": sequence(split(r"[\s_]+|\w\d|\S\h", "Isolated"), BYTES)}, \
        ["the_tide 12 x1", "a\u180eb\u2003c", "zzg"], False
    yield "split by scripts", {"pre_tokenizer": sequence(split(r"\p{Han}+|[\p{Hiragana}a]|\p{^Latin}\P{Greek}", "Isolated"), BYTES)}, \
        ["漢字、「々」〇ー", "ひらがなーカナ", "aΩb ǅ1", "㈱㍿", "Й1"], False
    yield "white space is Unicode's", {"pre_tokenizer": sequence(split(r"\s|\d", "Removed"), BYTES)}, \
        ["a\u180eb c\u2003d\u0085e\u200bf\ufeffg\u3000h\u001ci", "1a\u0663b\u00b2c\u2167"], False
    for individual in [False, True]:
        yield f"digits individual={individual}", \
            {"pre_tokenizer": sequence({"type": "Digits", "individual_digits": individual}, GPT2)}, DIGITS, False
    yield "prefix space", {"pre_tokenizer": dict(GPT2, add_prefix_space=True)}, TORTURE, False
    yield "prefix space after splits", \
        {"pre_tokenizer": sequence(split(r"\p{N}{1,3}", "Isolated"), dict(GPT2, add_prefix_space=True))}, TORTURE, False
    yield "no pattern", {"pre_tokenizer": BYTES}, TORTURE, False
    yield "qwen", {"normalizer": {"type": "NFC"}, "pre_tokenizer": sequence(split(QWEN, "Isolated"), BYTES)}, \
        TORTURE, False
    for form in ["NFD", "NFKC", "NFKD"]:
        yield form, {"normalizer": {"type": "Sequence", "normalizers": [{"type": form}]}}, MARKS, False
    yield "ignore_merges", {"model": {"ignore_merges": True}}, TORTURE, False
    flags = [added(size, "<mask>", lstrip=True, special=True), added(size + 1, "<sep>", rstrip=True),
             added(size + 2, "word", single_word=True), added(size + 3, "words"), added(size + 4, "caf\u00e9", normalized=True),
             added(size + 5, "<both>", lstrip=True, rstrip=True), added(size + 6, "<|im_end|>", special=True),
             added(size + 7, " tail", rstrip=True), added(size + 8, "   "), added(size + 9, " l", lstrip=True)]
    yield "added tokens", {"added_tokens": flags, "normalizer": {"type": "NFC"}}, [
        "a <mask> b", "a  <mask>  b", "<mask><mask> <mask>", "a <sep> b", "a  <sep>  b", "<sep> <sep>", "\u3000<sep>\u2003x",
        "word", "a word b", "swords words", "wordy", "word_", "word-word", "(word)", "\u00e9word", "word\u0301", "words word",
        "caf\u00e9", "cafe\u0301", "cafe\u0301s caf\u00e9", "a \n<both>\t b", "<both> <both>", "a <sep> <mask> b", "<sep>  <both> x",
        "x<|im_end|>y", "a <sep> tail tail  x", "<sep>    tail", "<both>    b", "<sep>  lx", "<mas", "<|im_end|", ""], False
    yield "template", {"post_processor": {
        "type": "Sequence", "processors": [
            {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
            {"type": "TemplateProcessing",
             "single": [{"SpecialToken": {"id": "<|bos|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                        {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}],
             "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
             "special_tokens": {"<|bos|>": {"id": "<|bos|>", "ids": [1], "tokens": ["<|bos|>"]},
                                "<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}}}]}}, \
        ["", "the tide", "<|endoftext|>", "<|bos|>x"], True


def small():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=620, special_tokens=["<|endoftext|>", "<|bos|>", "<|pad|>"], min_frequency=1,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(LESSONS, trainer)
    base = json.loads(tokenizer.to_str())
    folder = os.path.join(GOLDEN, "tokenizer_small")
    os.makedirs(folder, exist_ok=True)
    write("tokenizer_small/tokenizer.json", json.dumps(base, ensure_ascii=False, indent=1) + "\n")
    write("tokenizer_small/tokenizer_config.json", json.dumps(
        {"bos_token": "<|bos|>", "eos_token": "<|endoftext|>", "pad_token": {"content": "<|pad|>"},
         "tokenizer_class": "PreTrainedTokenizerFast"}, indent=1) + "\n")
    items = [{"name": "as it is", "patch": {}, "special": False, "cases": golden(tokenizer, TORTURE + LESSONS, pieces=True, places=True)}]
    for name, patch, texts, special in variants(base):
        whole = json.loads(json.dumps(base))
        for key, value in patch.items():
            if key == "model":
                whole["model"].update(value)
            else:
                whole[key] = value
        items.append({"name": name, "patch": patch, "special": special,
                      "cases": golden(Tokenizer.from_str(json.dumps(whole)), texts, special,
                                      places=name in ["prefix space after splits", "added tokens"])})
    write("tokenizer_small.json", compact(items) + "\n")


# ---- SentencePiece's manner ----

MARK = "\u2581"
MARKED = [
    MARK, MARK * 3 + "x", "a" + MARK + "b", " " + MARK + " " + MARK, "the tide" + MARK + "the tide", " a  b   c ", "a ", " ",
    "<0x0A>", "<0x41><0x42>", "a<0x0A>b", "\n", "a\nb", "<s>", "</s>", "<s>a</s> b", "a <s> b<s>  c", "<unk>", "a<unk>b", "qé", "éq",
    "qqéqq", "\u00e9" * 120, "\u65e5" * 120, "the " * 40, "\t\t", "a\u3000b", "A\u0130\u03a3 \u01c5 \u1e9e", "fr\u00e9d\u00e9ric",
]


def replace(pattern, content, kind="String"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def metaspace(**keys):
    return dict({"type": "Metaspace", "replacement": MARK}, **keys)


def chain(kind, *steps):
    names = {"normalizer": "normalizers", "decoder": "decoders"}
    return {"type": "Sequence", names[kind]: list(steps)}


PREPEND = {"type": "Prepend", "prepend": MARK}
BYTES_BACK, FUSE = {"type": "ByteFallback"}, {"type": "Fuse"}


def strip(start, stop, content=" "):
    return {"type": "Strip", "content": content, "start": start, "stop": stop}


def marked_variants(base):
    """(name, keys that replace those of the fixture, texts, lists of ids to decode)"""
    size, vocab = len(base["model"]["vocab"]), base["model"]["vocab"]
    short = [text for text in MARKED if len(text) < 100] + LESSONS[:2]
    byte = [vocab[f"<0x{b:02X}>"] for b in range(256)]
    the, e = vocab[MARK + "the"], vocab["e"]
    broken = [[byte[0xe6]], [byte[0xe6], byte[0xbd]], [byte[0xe6], byte[0xbd], byte[0xae]], [byte[0xe6], byte[0xbd], byte[0xae], byte[0x80]],
              [byte[0xff], e], [the, byte[0xf0], byte[0x9f], the], [byte[0x41], byte[0x20], byte[0x42]], [byte[0xc3], 1, byte[0xa9]],
              [byte[0x20], byte[0x20], the], [the, the, byte[0x20]], [vocab[MARK], vocab[MARK], the], [1, the, 2], [the, vocab[MARK], vocab[MARK]]]
    plain = {"model": {"byte_fallback": False}}
    yield "gemma", {"normalizer": replace(" ", MARK), "pre_tokenizer": split(" ", "MergedWithPrevious", kind="String"),
                    "decoder": chain("decoder", replace(MARK, " "), BYTES_BACK, FUSE)}, MARKED + TORTURE[:40], broken
    for scheme in ["always", "first", "never"]:
        for splits in [True, False]:
            both = metaspace(prepend_scheme=scheme, split=splits)
            yield f"metaspace {scheme} split={splits}", {"normalizer": None, "pre_tokenizer": both, "decoder": both}, short, broken
    yield "metaspace of older files", {"normalizer": None, "pre_tokenizer": metaspace(add_prefix_space=True, str_rep="x"),
                                       "decoder": metaspace(add_prefix_space=True)}, short, []
    yield "metaspace first behind a normalizer", {
        "normalizer": {"type": "Strip", "strip_left": True, "strip_right": False}, "pre_tokenizer": metaspace(prepend_scheme="first", split=False),
        "decoder": chain("decoder", BYTES_BACK, metaspace(prepend_scheme="first"))}, short, broken
    yield "metaspace first behind a pattern", {
        "normalizer": replace(r"\s+", MARK, "Regex"), "pre_tokenizer": metaspace(prepend_scheme="first", replacement="_")}, \
        ["  the tide", " the", "the"], []
    yield "no decoding steps", {"decoder": chain("decoder")}, short[:8], broken[:4]
    yield "metaspace first behind a prefix and a split", {
        "normalizer": replace("a", "ee"), "pre_tokenizer": sequence(split("e", "Isolated"), metaspace(prepend_scheme="first"))}, \
        ["abba", "eaa", "bab", " aab"], []
    yield "unk fused", dict(plain), short, []
    yield "unk apart", {"model": {"byte_fallback": False, "fuse_unk": False}}, short, []
    yield "ignore_merges", {"model": {"ignore_merges": True}}, short, []
    letters = {"<unk>": 0, "a": 1, "b": 2, "<0xC3>": 3, "<0xA9>": 4, "ab": 5, MARK: 6, MARK + "a": 7, "b" + MARK: 8}
    texts = ["\u00e9", "a\u00e9qb", "q\u00e9b", "qq\u00e9", "\u00e9qq\u00e9", "ab ab", "qab", "b a b", "ab  ab ", " q a q\u00e9 q"]
    for fuse in [True, False]:
        yield f"bytes for some characters, fuse_unk={fuse}", {
            "model": {"vocab": letters, "merges": ["a b", MARK + " a"], "fuse_unk": fuse}, "added_tokens": []}, texts, []
    yield "a merge that joins what stands before a space", {
        "model": {"vocab": letters, "merges": [["b", MARK], ["a", "b"], [MARK, "a"]]}, "added_tokens": []}, texts, []
    yield "lowercase", {"normalizer": chain("normalizer", {"type": "Lowercase"}, PREPEND, replace(" ", MARK))}, short + MARKS[:12], []
    yield "strip", {"normalizer": chain("normalizer", {"type": "Strip", "strip_left": True, "strip_right": True}, PREPEND,
                                        replace(" ", MARK))}, short + ["\u3000 a \u2003\n", "\u200b a", " \x1c a"], []
    yield "strip on the right", {"normalizer": {"type": "Strip", "strip_left": False, "strip_right": True}}, short, []
    yield "replace by a pattern", {"normalizer": chain("normalizer", replace(r"\s+", MARK, "Regex"), replace("e", ""))}, short, []
    yield "replace empty matches", {"normalizer": replace("x*", "-", "Regex")}, ["abc", "axb", "xx", "x", "\u00e9x\u00e9"], []
    yield "replace nothing", {"normalizer": replace("", "-")}, ["abc", "a", "\u00e9b"], []
    yield "compose and more", {"normalizer": chain("normalizer", {"type": "NFKC"}, PREPEND, replace(" ", MARK))}, MARKS, []
    flags = [added(0, "<unk>", special=True), added(1, "<s>", special=True), added(2, "</s>", special=True),
             added(size, "tide", normalized=True), added(size + 1, "<m>", lstrip=True, rstrip=True),
             added(size + 2, MARK + "in", normalized=False), added(size + 3, "water", single_word=True, normalized=True)]
    yield "added tokens", {"added_tokens": flags}, [
        "tide", "the tide", "tidetide", "a tide in", "a <m> b", "<m>a", "a  <m>", "x" + MARK + "in", "in", "the water, water", "water",
        "waters", "<s>tide", "<s> tide"], [[size, the, size + 2]]
    yield "no decoder", {"decoder": None}, short, broken
    yield "strip at the end", {"decoder": chain("decoder", replace(MARK, " "), BYTES_BACK, FUSE, strip(2, 2))}, \
        LESSONS[:3] + ["a", "a ", "a   ", "  a b  ", "    a"], broken[:8]
    for ends in [(1, 0), (0, 1)]:
        yield f"strip each token {ends}", {"decoder": chain("decoder", replace(MARK, " "), strip(*ends), FUSE)}, short, broken
    yield "replace a pattern when decoding", {"decoder": chain("decoder", replace("[" + MARK + "e]+", "_", "Regex"), BYTES_BACK)}, short, broken
    yield "bytes alone", {"decoder": BYTES_BACK}, short, broken


PLACES = ["as it is", "metaspace first split=False", "metaspace first behind a normalizer", "unk fused", "unk apart", "strip",
          "metaspace first behind a prefix and a split", "replace by a pattern", "replace empty matches", "ignore_merges",
          "metaspace always split=True", "added tokens"]


def marked():
    singles = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=singles, min_frequency=1, show_progress=False)
    tokenizer.train_from_iterator(["".join(c for c in text if c < "\u0100") for text in LESSONS], trainer)
    base = json.loads(tokenizer.to_str())
    base["added_tokens"] = base["added_tokens"][:3]
    base["pre_tokenizer"] = None
    base["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    base["decoder"] = chain("decoder", replace(MARK, " "), BYTES_BACK, FUSE, strip(1, 0))
    os.makedirs(os.path.join(GOLDEN, "tokenizer_marked"), exist_ok=True)
    write("tokenizer_marked/tokenizer.json", json.dumps(base, ensure_ascii=False, indent=1) + "\n")
    write("tokenizer_marked/tokenizer_config.json", json.dumps(
        {"add_bos_token": True, "add_eos_token": False, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
         "model_max_length": 10 ** 30, "tokenizer_class": "LlamaTokenizer"}, indent=1) + "\n")
    items = []
    for name, patch, texts, lists in [("as it is", {}, TORTURE + LESSONS + MARKED, [])] + list(marked_variants(base)):
        whole = json.loads(json.dumps(base))
        for key, value in patch.items():
            if key == "model":
                whole["model"].update(value)
            else:
                whole[key] = value
        if "vocab" in patch.get("model", {}):
            whole["post_processor"] = patch["post_processor"] = None
        variant = Tokenizer.from_str(json.dumps(whole))
        cases = golden(variant, texts, name == "as it is", pieces=name == "as it is",
                       places=name in PLACES, bytewise=False)
        cases += [{"ids": ids, "decoded": variant.decode(ids, skip_special_tokens=False)} for ids in lists]
        items.append({"name": name, "patch": patch, "special": name == "as it is", "cases": cases})
    write("tokenizer_marked.json", compact(items) + "\n")


def real(name, folder):
    tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    bytewise = "ByteLevel" in str(tokenizer.pre_tokenizer)
    texts = TORTURE + LESSONS + ([] if bytewise else MARKED)
    write(f"tokenizer_{name}.json", compact([
        {"name": name, "patch": {}, "special": not bytewise,
         "cases": golden(tokenizer, texts, special=not bytewise, bytewise=bytewise)}]) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["small"]:
        small()
    elif sys.argv[1:] == ["marked"]:
        marked()
    elif len(sys.argv) == 4 and sys.argv[1] == "real":
        real(sys.argv[2], sys.argv[3])
    else:
        sys.exit(__doc__)
