#!/usr/bin/env python3
"""Writes the golden files of the data format tests with Hugging Face's transformers.

    golden_formats.py cases                              tests/golden/formats.json
    golden_formats.py real NAME MODEL_DIR DATA_DIR       tests/golden/formats_NAME.json

`cases` has records of every format that a chat template renders, the conversations that they stand for rendered by
apply_chat_template, and what is learned of them, written down by hand. `real` has, for each record of
glaive_toolcall_en_demo.json and dpo_en_demo.json, the hash of each sample's rendering and of what the assistant says
in it, found in the rendering by the model's own marks.
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import re
import sys

from transformers.utils.chat_template_utils import _compile_jinja_template

from golden_templates import EMPTY, FAMILIES, GOLDEN, SPECIALS, TOOLS, apply, fnv, said, to_messages, tokenizer, user, write

SYSTEM = {"role": "system", "content": "Be brief."}
HI, HELLO, BYE, SEE = user("Hi"), said("Hello!"), user("Bye"), said("See you.")
CALL = {"name": "add", "arguments": {"a": 1, "b": 2}}
CALLS = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": CALL}]}
RESULT = {"role": "tool", "content": "3"}
CALL_TEXT = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call><|im_end|>'
TEXT_CALL = {"type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}


def human(text):
    return {"from": "human", "value": text}


def gpt(text, **more):
    return {"from": "gpt", "value": text, **more}


def alpaca(**more):
    return {"instruction": "Add.", "output": "3", **more}


ASKED = [user("1+2?"), CALLS, RESULT, said("It is 3.")]
SENT = [human("1+2?"), {"from": "function_call", "value": json.dumps(CALL)}, {"from": "observation", "value": "3"}, gpt("It is 3.")]
SFT, PAIRS = {}, {"purpose": "preference"}

# (template, format found, record, environment, [(conversation, what is learned; None: everything), ...], more)
CASES = [
    # messages
    ("chatml", "messages", {"messages": [HI, HELLO]}, SFT, [([HI, HELLO], ["Hello!<|im_end|>"])]),
    ("chatml", "messages", {"messages": [HI, HELLO, BYE, SEE], "text": "x", "label": None}, SFT, [([HI, HELLO, BYE, SEE], ["Hello!<|im_end|>", "See you.<|im_end|>"])]),
    ("chatml", "messages", {"messages": [HI, HELLO, BYE, SEE]}, {"last_turn_only": True}, [([HI, HELLO, BYE, SEE], ["See you.<|im_end|>"])]),
    ("chatml", "messages", {"messages": [HI, HELLO, BYE, SEE]}, {"assistant_only": False}, [([HI, HELLO, BYE, SEE], None)]),
    ("chatml", "messages", {"messages": [HI, dict(HELLO, train=False), BYE, dict(SEE, train=True)]}, SFT, [([HI, HELLO, BYE, SEE], ["See you.<|im_end|>"])]),
    ("chatml", "messages", {"messages": [HI, dict(HELLO, weight=1), BYE, dict(SEE, weight=0)]}, SFT, [([HI, HELLO, BYE, SEE], ["Hello!<|im_end|>"])]),
    ("chatml", "messages", {"messages": [HI, dict(HELLO, weight=0.0), BYE, dict(SEE, weight=None, train=None)]}, {"assistant_only": False},
     [([HI, HELLO, BYE, SEE], ["<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\nSee you.<|im_end|>\n"])]),
    ("chatml", "messages", {"messages": [HI, said("")]}, SFT, [([HI, said("")], ["<|im_end|>"])]),
    ("chatml", "messages", {"messages": [{"role": "user", "content": [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]}, HELLO]}, SFT,
     [([user("a b"), HELLO], ["Hello!<|im_end|>"])]),
    ("parts", "messages", {"messages": [{"role": "user", "content": [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]}, HELLO]}, SFT,
     [([{"role": "user", "content": [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]}, HELLO], ["Hello!</s>"])]),
    ("mistral", "messages", {"messages": [HI, HELLO, BYE, SEE]}, SFT, [([HI, HELLO, BYE, SEE], [" Hello!</s>", " See you.</s>"])]),
    ("llama2", "messages", {"messages": [HI, HELLO, BYE, SEE]}, SFT, [([HI, HELLO, BYE, SEE], [" Hello! </s>", " See you. </s>"])]),
    ("llama2", "messages", {"messages": [HI, said(" Hello!")]}, SFT, [([HI, said(" Hello!")], [" Hello! </s>"])]),
    ("plain", "messages", {"messages": [HI, HELLO]}, SFT, [([HI, HELLO], [" Hello!"])]),
    ("gemma", "messages", {"messages": [HI, HELLO, BYE, SEE]}, SFT, [([HI, HELLO, BYE, SEE], ["Hello!<end_of_turn>", "See you.<end_of_turn>"])]),
    ("marked", "messages", {"messages": [HI, HELLO, BYE, SEE]}, SFT, [([HI, HELLO, BYE, SEE], ["Hello!<|im_end|>", "See you.<|im_end|>"])]),
    ("marked", "messages", {"messages": [HI, dict(HELLO, train=False), BYE, SEE]}, SFT, [([HI, HELLO, BYE, SEE], ["See you.<|im_end|>"])]),
    ("think", "messages", {"messages": [HI, said("b", reasoning_content="r")]}, SFT, [([HI, said("b", reasoning_content="r")], ["<think>\nr\n</think>\n\nb<|im_end|>"])]),
    ("think", "messages", {"messages": [HI, HELLO, BYE, SEE]}, SFT, [([HI, HELLO, BYE, SEE], ["Hello!<|im_end|>", EMPTY + "See you.<|im_end|>"])]),
    ("think", "messages", {"messages": [HI, HELLO]}, {"kwargs": {"enable_thinking": False}}, [([HI, HELLO], ["Hello!<|im_end|>"])]),
    ("think", "messages", {"messages": ASKED, "tools": TOOLS}, SFT, [(ASKED, [CALL_TEXT, EMPTY + "It is 3.<|im_end|>"])], {"tools": TOOLS}),
    ("think", "messages", {"messages": ASKED, "tools": json.dumps(TOOLS)}, SFT, [(ASKED, [CALL_TEXT, EMPTY + "It is 3.<|im_end|>"])], {"tools": TOOLS}),
    ("think", "messages", {"messages": ASKED, "tools": " "}, SFT, [(ASKED, [CALL_TEXT, EMPTY + "It is 3.<|im_end|>"])]),
    # A template that writes arguments with tojson gets them as an object where the data has a text.
    ("think", "messages", {"messages": [user("1+2?"), {"role": "assistant", "content": None, "tool_calls": [TEXT_CALL]}, RESULT, said("It is 3.")]}, SFT,
     [(ASKED, [CALL_TEXT, EMPTY + "It is 3.<|im_end|>"])]),
    ("llama3", "messages", {"messages": [user("1+2?"), {"role": "assistant", "tool_calls": [TEXT_CALL]}, RESULT, said("It is 3.")], "tools": TOOLS}, SFT,
     [(ASKED, ['{"name": "add", "parameters": {"a": 1, "b": 2}}<|eom_id|>', "It is 3.<|eot_id|>"])], {"tools": TOOLS}),
    # sharegpt
    ("chatml", "sharegpt", {"conversations": [human("Hi"), gpt("Hello!")]}, SFT, [([HI, HELLO], ["Hello!<|im_end|>"])]),
    ("chatml", "sharegpt", {"conversations": [human("Hi"), gpt("Hello!")], "system": "Be brief.", "tools": ""}, SFT, [([SYSTEM, HI, HELLO], ["Hello!<|im_end|>"])]),
    ("chatml", "sharegpt", {"conversations": [{"from": "system", "value": "Be brief."}, human("Hi"), gpt("Hello!")], "system": ""}, SFT, [([SYSTEM, HI, HELLO], ["Hello!<|im_end|>"])]),
    ("chatml", "sharegpt", {"conversations": [{"from": "user", "value": "Hi"}, {"from": "bot", "value": "Hello!", "weight": 0}, {"from": "user", "value": "Bye"}, {"from": "model", "value": "See you."}]}, SFT,
     [([HI, HELLO, BYE, SEE], ["See you.<|im_end|>"])]),
    ("chatml", "sharegpt", {"conversations": [HI, HELLO]}, SFT, [([HI, HELLO], ["Hello!<|im_end|>"])]),
    ("think", "sharegpt", {"conversations": SENT, "tools": json.dumps(TOOLS)}, SFT, [(ASKED, [CALL_TEXT, EMPTY + "It is 3.<|im_end|>"])], {"tools": TOOLS}),
    ("think", "sharegpt", {"conversations": [human("1+2?"), {"from": "function_call", "value": json.dumps([CALL, CALL])}, {"from": "tool", "value": "3"}, gpt("It is 3.")], "tools": TOOLS}, {"last_turn_only": True},
     [([user("1+2?"), dict(CALLS, tool_calls=CALLS["tool_calls"] * 2), RESULT, said("It is 3.")], [EMPTY + "It is 3.<|im_end|>"])], {"tools": TOOLS}),
    # alpaca_chat
    ("chatml", "alpaca_chat", alpaca(input=""), SFT, [([user("Add."), said("3")], ["3<|im_end|>"])], {"named": True}),
    ("chatml", "alpaca_chat", alpaca(input="1+2", system="Be brief.", history=[["Hi", "Hello!"]]), SFT,
     [([SYSTEM, HI, HELLO, user("Add.\n1+2"), said("3")], ["Hello!<|im_end|>", "3<|im_end|>"])], {"named": True}),
    ("chatml", "alpaca_chat", alpaca(input="1+2", system=None, history=[["Hi", "Hello!"]]), {"last_turn_only": True},
     [([HI, HELLO, user("Add.\n1+2"), said("3")], ["3<|im_end|>"])], {"named": True}),
    # prompt_completion
    ("chatml", "prompt_completion", {"prompt": [HI, HELLO, BYE], "completion": [SEE]}, SFT, [([HI, HELLO, BYE, SEE], ["See you.<|im_end|>"])]),
    ("chatml", "prompt_completion", {"prompt": [HI, HELLO, BYE], "completion": [SEE]}, {"completion_only": True, "assistant_only": True}, [([HI, HELLO, BYE, SEE], ["See you.<|im_end|>"])]),
    ("chatml", "prompt_completion", {"prompt": [HI, HELLO, BYE], "completion": [SEE]}, {"completion_only": False}, [([HI, HELLO, BYE, SEE], None)]),
    ("chatml", "prompt_completion", {"prompt": [HI, HELLO, BYE], "completion": [SEE]}, {"completion_only": False, "assistant_only": True},
     [([HI, HELLO, BYE, SEE], ["Hello!<|im_end|>", "See you.<|im_end|>"])]),
    ("chatml", "prompt_completion", {"prompt": [HI, HELLO, BYE], "completion": [SEE]}, {"assistant_only": False}, [([HI, HELLO, BYE, SEE], ["See you.<|im_end|>\n"])]),
    ("chatml", "prompt_completion", {"prompt": [HI], "completion": [HELLO, BYE, SEE]}, {"assistant_only": False},
     [([HI, HELLO, BYE, SEE], ["Hello!<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\nSee you.<|im_end|>\n"])]),
    ("chatml", "prompt_completion", {"prompt": [HI], "completion": [HELLO, BYE, SEE]}, {"last_turn_only": True}, [([HI, HELLO, BYE, SEE], ["See you.<|im_end|>"])]),
    ("chatml", "prompt_completion", {"prompt": [human("Hi")], "completion": gpt("Hello!")}, SFT, [([HI, HELLO], ["Hello!<|im_end|>"])]),
    ("think", "prompt_completion", {"prompt": [user("1+2?")], "completion": ASKED[1:], "tools": TOOLS}, SFT, [(ASKED, [CALL_TEXT, EMPTY + "It is 3.<|im_end|>"])], {"tools": TOOLS}),
    # preference
    ("chatml", "preference", {"prompt": [HI], "chosen": [HELLO], "rejected": [said("No.")]}, PAIRS, [([HI, HELLO], ["Hello!<|im_end|>"]), ([HI, said("No.")], ["No.<|im_end|>"])]),
    ("chatml", "preference", {"prompt": [HI], "chosen": [HELLO], "rejected": [said("No.")]}, SFT, [([HI, HELLO], ["Hello!<|im_end|>"])]),
    ("chatml", "preference", {"prompt": [HI, HELLO, BYE], "chosen": [SEE], "rejected": [said("No.")]}, {"completion_only": False}, [([HI, HELLO, BYE, SEE], None)]),
    ("chatml", "preference", {"chosen": [HI, HELLO, BYE, SEE], "rejected": [HI, HELLO, BYE, said("No.")]}, PAIRS,
     [([HI, HELLO, BYE, SEE], ["See you.<|im_end|>"]), ([HI, HELLO, BYE, said("No.")], ["No.<|im_end|>"])]),
    ("chatml", "preference", {"prompt": "Hi", "messages": [HI, HELLO], "chosen": [HI, HELLO], "rejected": [HI, said("No.")], "score_chosen": 5.0}, PAIRS,
     [([HI, HELLO], ["Hello!<|im_end|>"]), ([HI, said("No.")], ["No.<|im_end|>"])]),
    ("chatml", "preference", {"prompt": [HI], "chosen": [HI, HELLO], "rejected": [HI, said("No.")]}, PAIRS, [([HI, HELLO], ["Hello!<|im_end|>"]), ([HI, said("No.")], ["No.<|im_end|>"])]),
    ("chatml", "preference", {"prompt": "Hi", "chosen": [HELLO], "rejected": [said("No.")]}, PAIRS, [([HI, HELLO], ["Hello!<|im_end|>"]), ([HI, said("No.")], ["No.<|im_end|>"])]),
    ("chatml", "preference", {"conversations": [human("Hi")], "chosen": gpt("Hello!"), "rejected": gpt("No."), "system": "Be brief."}, PAIRS,
     [([SYSTEM, HI, HELLO], ["Hello!<|im_end|>"]), ([SYSTEM, HI, said("No.")], ["No.<|im_end|>"])]),
    ("chatml", "preference", {"messages": [HI], "chosen": HELLO, "rejected": said("No.")}, PAIRS, [([HI, HELLO], ["Hello!<|im_end|>"]), ([HI, said("No.")], ["No.<|im_end|>"])]),
    ("mistral", "preference", {"prompt": [HI], "chosen": [HELLO], "rejected": [said("No.")]}, PAIRS, [([HI, HELLO], [" Hello!</s>"]), ([HI, said("No.")], [" No.</s>"])]),
    ("think", "preference", {"prompt": [user("1+2?")], "chosen": ASKED[1:], "rejected": [said("4")], "tools": TOOLS}, PAIRS,
     [(ASKED, [CALL_TEXT, EMPTY + "It is 3.<|im_end|>"]), ([user("1+2?"), said("4")], [EMPTY + "4<|im_end|>"])], {"tools": TOOLS}),
    # unpaired
    ("chatml", "unpaired", {"prompt": [HI], "completion": [HELLO], "label": True}, PAIRS, [([HI, HELLO], ["Hello!<|im_end|>"])], {"desirable": True}),
    ("chatml", "unpaired", {"prompt": [HI], "completion": [HELLO], "label": False}, PAIRS, [([HI, HELLO], ["Hello!<|im_end|>"])], {"desirable": False}),
    ("chatml", "unpaired", {"prompt": [HI], "completion": [HELLO], "label": True}, SFT, [([HI, HELLO], ["Hello!<|im_end|>"])], {"desirable": True}),
    ("chatml", "unpaired", {"prompt": [HI], "completion": [HELLO], "label": False}, SFT, [], {"desirable": False}),
    ("chatml", "unpaired", {"prompt": "Hi", "completion": [HELLO], "label": True}, PAIRS, [([HI, HELLO], ["Hello!<|im_end|>"])], {"desirable": True}),
    ("chatml", "unpaired", {"messages": [HI, HELLO, BYE, SEE], "label": True}, PAIRS, [([HI, HELLO, BYE, SEE], ["See you.<|im_end|>"])], {"desirable": True}),
    ("chatml", "unpaired", {"conversations": [human("Hi"), gpt("Hello!"), human("Bye"), gpt("See you.")], "kto_tag": False, "system": "Be brief."}, PAIRS,
     [([SYSTEM, HI, HELLO, BYE, SEE], ["See you.<|im_end|>"])], {"desirable": False}),
]


def cases():
    out = []
    for case in CASES:
        template, name, record, env, samples = case[:5]
        more = dict(case[5]) if len(case) > 5 else {}
        options = {"tools": more.pop("tools", None), "kwargs": env.get("kwargs", {})}
        made = {"template": template, "format": name, "record": record, "env": env, "samples": [], **more}
        for messages, learned in samples:
            text = apply(tokenizer(FAMILIES[template]), messages, options)
            at = 0
            for part in learned or []:
                at = text.index(part, at) + len(part)
            made["samples"].append({"text": text, "learned": [text] if learned is None else learned})
        out.append(made)
    used = sorted({case[0] for case in CASES})
    write("formats.json", {"templates": {name: FAMILIES[name] for name in used}, "specials": {name: SPECIALS[name] for name in used if name in SPECIALS}, "cases": out})


# ---- real templates ----

# What ends the generation prompt (or stands in its place), and what ends the assistant's text.
SAYS = {"qwen3": r"<\|im_start\|>assistant\n(.*?<\|im_end\|>)",
        "deepseek_v3": "(?:<｜Assistant｜>|<｜tool▁outputs▁end｜>)(<｜tool▁calls▁begin｜>.*?<｜tool▁call▁end｜>|.*?<｜end▁of▁sentence｜>)"}


def with_nulls(messages):
    """The shape that DeepSeek-V3's template shows: content none, arguments as text."""
    out = []
    for message in messages:
        if "tool_calls" in message:
            calls = [{"type": "function", "function": {"name": call["function"]["name"], "arguments": json.dumps(call["function"]["arguments"], ensure_ascii=False)}}
                     for call in message["tool_calls"]]
            message = dict(message, content=None, tool_calls=calls)
        out.append(message)
    return out


def render(name, made, template, messages, tools, prompt=False):
    calls = any("tool_calls" in message for message in messages)
    if name == "deepseek_v3" and calls:  # apply_chat_template leaves nulls out since transformers 5
        return _compile_jinja_template(template).render(messages=with_nulls(messages), tools=tools, add_generation_prompt=False, bos_token=made.bos_token, eos_token=made.eos_token)
    return apply(made, messages, {"tools": tools, "add_generation_prompt": prompt})


def real(name, model_dir, data_dir):
    config = json.load(open(os.path.join(model_dir, "tokenizer_config.json"), encoding="utf-8"))
    made = tokenizer(config["chat_template"])
    for key in ("bos_token", "eos_token"):
        token = config.get(key)
        setattr(made, key, token["content"] if isinstance(token, dict) else token)
    out = {}
    for file in ("glaive_toolcall_en_demo.json", "dpo_en_demo.json"):
        rows = []
        for record in json.load(open(os.path.join(data_dir, file), encoding="utf-8")):
            answers = [dict(record, chosen=record[key]) for key in ("chosen", "rejected")] if "chosen" in record else [record]
            row = []
            for answer in answers:
                messages = to_messages(answer)
                tools = json.loads(record["tools"]) if record.get("tools") else None
                text = render(name, made, config["chat_template"], messages, tools)
                says = re.findall(SAYS[name], text, re.S)
                if name == "deepseek_v3" and sum("tool_calls" in message for message in messages) > 1:
                    row = None  # its template begins the second round of calls without <｜Assistant｜>
                    break
                assert len(says) == sum(message["role"] == "assistant" for message in messages)
                if name == "qwen3":
                    asked = render(name, made, config["chat_template"], messages[:-1], tools, True)
                    assert text == asked + says[-1] + "\n"
                row += [fnv(text), fnv("".join(says[-1:] if "chosen" in record else says))]
            rows.append(row)
        out[file] = rows
    with open(os.path.join(GOLDEN, "formats_%s.json" % name), "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join('"%s": [\n%s\n]' % (key, ",\n".join(json.dumps(row) for row in rows)) for key, rows in out.items()) + "\n}\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["cases"]:
        cases()
    elif len(sys.argv) == 5 and sys.argv[1] == "real":
        real(*sys.argv[2:])
    else:
        sys.exit(__doc__)
