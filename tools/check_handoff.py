#!/usr/bin/env python3
"""Checks that what Ebb wrote loads elsewhere and computes the same: base + adapter in PEFT, and the
merged model in transformers, must give one set of logits, and Ebb's where a file of them is given.

    python tools/check_handoff.py --base DIR [--adapter DIR] [--merged DIR] [--logits FILE]
                                  [--ids 1,2,3 | --ids FILE.json] [--dtype float32]
                                  [--tolerance 1e-4]

The reference is base + adapter where an adapter is given, else the merged model, else the base
alone; the rest is compared with it. With nothing to compare it stops: no comparison is no success.

--logits is either
  FILE.safetensors  with "logits" [T, V] and, unless --ids is given, "ids" [T] (int32 or int64), or
  FILE.json         {"ids": [...], "logits": [[...], ...]}.
--ids of the command line wins over those of the file; without either, 16 fixed ids are used.
The tolerance is on max |a - b| / max(1, max |reference|). An adapter merged into bf16 weights was
rounded to bf16 and needs a wide one (about 3e-2); the computation itself runs in --dtype.

Prints one JSON object. Exit 0: all agree; 1: some do not; 2: bad arguments or files.
Needs torch and transformers, and PEFT with --adapter. Runs on the CPU and asks the network nothing.
SPDX-License-Identifier: Apache-2.0
"""

import argparse
import json
import os
import sys
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"  # read on import

import torch
import transformers


def fail(text):
    print(f"check_handoff: {text}", file=sys.stderr)
    sys.exit(2)


def read_logits(path):
    """(ids or None, logits [T, V])"""
    if path.endswith(".json"):
        with open(path) as f:
            content = json.load(f)
        return content.get("ids"), torch.tensor(content["logits"], dtype=torch.float32)
    from safetensors.torch import load_file

    content = load_file(path)
    if "logits" not in content:
        fail(f"{path}: no tensor 'logits'; it has {', '.join(sorted(content))}")
    ids = content["ids"].flatten().tolist() if "ids" in content else None
    return ids, content["logits"].float()


def read_ids(text):
    if text.endswith(".json"):
        with open(text) as f:
            return json.load(f)
    return [int(part) for part in text.split(",")]


def load_model(path, dtype):
    """transformers only logs which tensors were missing or unknown; here they are errors."""
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=dtype, attn_implementation="eager", output_loading_info=True
    )
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info.get(what):
            fail(f"{path}: {what} {sorted(map(str, info[what]))[:5]}")
    return model.eval()


def load_adapter(base, path, dtype):
    import peft
    from safetensors import safe_open

    model = peft.PeftModel.from_pretrained(load_model(base, dtype), path).eval()
    used = set(peft.get_peft_model_state_dict(model))
    with safe_open(os.path.join(path, "adapter_model.safetensors"), "pt") as file:
        held = set(file.keys())
    if used != held:  # PEFT warns of both and goes on
        fail(f"{path}: only in file {sorted(held - used)[:5]}, not in it {sorted(used - held)[:5]}")
    if not any("lora_B" in n and p.abs().max() > 0 for n, p in model.named_parameters()):
        fail(f"{path}: every lora_B is zero, so this adapter would prove nothing")
    return model


def logits_of(model, ids):
    vocab = model.get_input_embeddings().weight.shape[0]
    if not ids or min(ids) < 0 or max(ids) >= vocab:
        fail(f"ids must be 0 .. {vocab - 1}")
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()


def compare(name, got, reference, tolerance):
    if got.shape != reference.shape:
        fail(f"{name}: logits have shape {list(got.shape)}, the reference {list(reference.shape)}")
    worst = float((got - reference).abs().max() / reference.abs().max().clamp_min(1))
    same = float((got.argmax(-1) == reference.argmax(-1)).float().mean())
    # a NaN is not <= anything, so it does not agree
    return {"name": name, "error": worst, "same_argmax": same, "agrees": worst <= tolerance}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    for key in ("base", "adapter", "merged", "logits", "ids"):
        parser.add_argument("--" + key)
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64", "bfloat16"])
    parser.add_argument("--tolerance", type=float, default=1e-4)
    args = parser.parse_args()
    if not args.logits and not (args.adapter and args.merged):
        fail("nothing to compare: give --logits, or --adapter and --merged")
    if not args.base and (args.adapter or not args.merged):
        fail("--base is needed, with --adapter and without --merged")
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    dtype = getattr(torch, args.dtype)

    ids, given = read_logits(args.logits) if args.logits else (None, None)
    ids = read_ids(args.ids) if args.ids else ids or [(7 * i * i + 3) % 89 for i in range(16)]
    found = {}
    if args.adapter:
        found["base + adapter"] = logits_of(load_adapter(args.base, args.adapter, dtype), ids)
    if args.merged:
        found["merged"] = logits_of(load_model(args.merged, dtype), ids)
    if args.base and (not found or args.adapter):
        found["base"] = logits_of(load_model(args.base, dtype), ids)

    reference_name, reference = next(iter(found.items()))
    report = {"reference": reference_name, "tokens": len(ids), "results": []}
    if args.adapter:  # the adapter must do something: its distance from the base is no error
        change = compare("base", found.pop("base"), reference, 0)["error"]
        report["adapter_changes_logits_by"] = change
    for name, got in list(found.items())[1:]:
        report["results"].append(compare(name, got, reference, args.tolerance))
    if given is not None:
        report["results"].append(compare("logits file", given, reference, args.tolerance))
    report["tolerance"] = args.tolerance
    report["ok"] = all(r["agrees"] for r in report["results"])
    print(json.dumps(report, indent=2))
    sys.exit(0 if report["ok"] else 1)


if __name__ == "__main__":
    main()
