#!/usr/bin/env python3
"""Writes the golden files of the tokenizer tests with Hugging Face's `tokenizers`.

    golden_tokenizer.py small                     tests/golden/tokenizer_small/ and tokenizer_small.json
    golden_tokenizer.py real NAME TOKENIZER_DIR   tests/golden/tokenizer_NAME.json

`small` trains a byte-level BPE on the texts below, so that the fixture is free of other people's data. Its golden file
holds variants: keys of tokenizer.json that replace the fixture's, and the ids that follow.
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

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
    "한국어 \u1112\u1161\u11ab\u1100\u1173\u11af", "日本語のテキスト。カタカナ、ひらがな。", "中文字符，标点。", "𠀀𠀁 extension B",
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


def golden(tokenizer, texts, special=False):
    cases = []
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=special).ids
        case = {"text": text, "ids": ids}
        decoded = decode(tokenizer, ids)
        if decoded != text:
            case["decoded"] = decoded
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
             added(size + 5, "<both>", lstrip=True, rstrip=True), added(size + 6, "<|im_end|>", special=True)]
    yield "added tokens", {"added_tokens": flags, "normalizer": {"type": "NFC"}}, [
        "a <mask> b", "a  <mask>  b", "<mask><mask> <mask>", "a <sep> b", "a  <sep>  b", "<sep> <sep>", "\u3000<sep>\u2003x",
        "word", "a word b", "swords words", "wordy", "word_", "word-word", "(word)", "\u00e9word", "word\u0301", "words word",
        "caf\u00e9", "cafe\u0301", "cafe\u0301s caf\u00e9", "a \n<both>\t b", "<both> <both>", "a <sep> <mask> b", "<sep>  <both> x",
        "x<|im_end|>y", "<mas", "<|im_end|", ""], False
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
    items = [{"name": "as it is", "patch": {}, "special": False, "cases": golden(tokenizer, TORTURE + LESSONS)}]
    for name, patch, texts, special in variants(base):
        whole = json.loads(json.dumps(base))
        for key, value in patch.items():
            if key == "model":
                whole["model"].update(value)
            else:
                whole[key] = value
        items.append({"name": name, "patch": patch, "special": special,
                      "cases": golden(Tokenizer.from_str(json.dumps(whole)), texts, special)})
    write("tokenizer_small.json", compact(items) + "\n")


def real(name, folder):
    tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    write(f"tokenizer_{name}.json", compact([
        {"name": name, "patch": {}, "special": False, "cases": golden(tokenizer, TORTURE + LESSONS)}]) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["small"]:
        small()
    elif len(sys.argv) == 4 and sys.argv[1] == "real":
        real(sys.argv[2], sys.argv[3])
    else:
        sys.exit(__doc__)
