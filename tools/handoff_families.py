#!/usr/bin/env python3
"""Trains a tiny model of every family with `ebb`, and opens what it writes with the programs that
are meant to: PEFT and transformers, llama.cpp with its converters, and vLLM's LoRA loader.

    python tools/handoff_families.py --ebb build/ebb [--work DIR] [--only NAME,...]
                                     [--tokenizer DIR] [--llama-cpp DIR] [--threads N]

Models: Llama and Qwen3 with an output head of their own and with a tied one, Mistral, Qwen2. With
each: LoRA on every linear layer, LoRA on some (with rank-stabilised scale), every weight.

What must hold, all in float32 on the CPU:
  peft      base + adapter: every tensor is used, and the losses of six records, one by one, are those of
            `ebb eval` (relative 1e-5; both sum in float32)
  merged    transformers' logits of `ebb merge` are those of base + adapter (1e-4 of the largest)
  full      transformers' losses of a run that trained every weight are those of `ebb eval`
  text      tokens and greedy continuations are those of `ebb tokenize` and `ebb generate`
  bf16      a bfloat16 model merged and loaded again is within what rounding allows (3e-2)
  gguf      with --llama-cpp DIR, a checkout of llama.cpp (or its convert_*.py, conversion/ and
            gguf-py/): both converters take what Ebb wrote, and every tensor arrives. Where Python
            has xllamacpp, llama.cpp runs them: log-probabilities of base + adapter and of the merged
            model are PEFT's (1e-4). convert_lora_to_gguf.py leaves use_rslora out: such an adapter
            must agree at a scale of sqrt(r), and not at 1.
  vllm      vLLM's PEFTHelper and LoRAModel load the adapter where vllm can be imported

A part whose program is not there is named as skipped. --tokenizer DIR takes a real tokenizer: the
byte tokenizer that is used otherwise is none that llama.cpp's converter knows, so its look-up is
then answered for it.

Prints a line for each part and the versions. Exit 0: all holds; 1: some does not; 2: bad arguments.
Needs torch, transformers and PEFT. Asks the network nothing.
SPDX-License-Identifier: Apache-2.0
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"  # read on import
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch
import transformers

import check_handoff

SIZES = dict(hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16, max_position_embeddings=256, rms_norm_eps=1e-5,
             hidden_act="silu", initializer_range=0.05)
FAMILIES = {
    "llama": dict(architectures=["LlamaForCausalLM"], model_type="llama", rope_theta=10000.0,
                  tie_word_embeddings=False),
    "llama-tied": dict(architectures=["LlamaForCausalLM"], model_type="llama", rope_theta=500000.0,
                       tie_word_embeddings=True,
                       rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0,
                                         high_freq_factor=4.0,
                                         original_max_position_embeddings=64)),
    "mistral": dict(architectures=["MistralForCausalLM"], model_type="mistral",
                    rope_theta=10000.0, sliding_window=None, tie_word_embeddings=False),
    "qwen2": dict(architectures=["Qwen2ForCausalLM"], model_type="qwen2", rope_theta=1000000.0,
                  tie_word_embeddings=True, use_sliding_window=False),
    "qwen3": dict(architectures=["Qwen3ForCausalLM"], model_type="qwen3", rope_theta=1000000.0,
                  head_dim=32, tie_word_embeddings=False, use_sliding_window=False,
                  attention_bias=False),
    "qwen3-tied": dict(architectures=["Qwen3ForCausalLM"], model_type="qwen3",
                       rope_theta=1000000.0, head_dim=32, tie_word_embeddings=True,
                       use_sliding_window=False, attention_bias=False),
}
ADAPTERS = {
    "all-linear": ["lora_r=8", "lora_alpha=16", "lora_target_modules=all-linear"],
    "some, rslora": ["lora_r=4", "lora_alpha=6.5", "lora_target_modules=q_proj,v_proj,down_proj",
                     "use_rslora=true"],
}
LOSS, LOGITS, BF16, LLAMA_CPP = 1e-5, 1e-4, 3e-2, 1e-4
RECORDS, LENGTH = 6, 24


class Bench:
    """The arguments, a folder to work in, and what was found."""

    def __init__(self, args):
        self.args, self.failed, self.skipped = args, 0, {}
        self.ebb_path = os.path.abspath(args.ebb)
        self.work = os.path.abspath(args.work or tempfile.mkdtemp(prefix="ebb-handoff-"))
        os.makedirs(self.work, exist_ok=True)

    def path(self, *names):
        return os.path.join(self.work, *names)

    def ebb(self, *words):
        command = [self.ebb_path, *words]
        done = subprocess.run(command, cwd=self.work, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
        return done.stdout

    def say(self, name, part, ok, text):
        self.failed += not ok
        print(f"{name:12} {part:22} {'ok    ' if ok else 'FAILED'} {text}", flush=True)

    def skip(self, part, why):
        self.skipped[part] = why


# ---- models and data ----------------------------------------------------------------------------


def make_model(bench, name):
    tokenizer = bench.args.tokenizer
    vocab = 264
    if tokenizer:
        vocab = len(transformers.AutoTokenizer.from_pretrained(tokenizer))
        vocab += -vocab % 8
    config = {**SIZES, **FAMILIES[name], "vocab_size": vocab}
    with open(bench.path(name + ".json"), "w") as file:
        json.dump(config, file)
    folder = bench.path(name)
    bench.ebb("init", name + ".json", folder, "--tokenizer", tokenizer or "bytes")
    return folder


def make_data(bench):
    """Sentences, as text to train on and as ids to measure: no tokenizer between the two sides."""
    said = [f"the {color} {thing} is {place}" for color in ("red", "blue", "old")
            for thing in ("boat", "hill") for place in ("near", "far")]
    with open(bench.path("train.jsonl"), "w") as file:
        for line in said * 4:
            file.write(json.dumps({"prompt": "say: ", "completion": line}) + "\n")
    records = []
    for i in range(RECORDS):
        ids = [(31 * i + 7 * k * k + 3) % 89 for k in range(LENGTH)]
        records.append(ids)
        with open(bench.path(f"eval{i}.jsonl"), "w") as file:
            file.write(json.dumps({"input_ids": ids}) + "\n")
    return records


def train(bench, model, out, *keys):
    bench.ebb("sft", f"model={model}", "dataset=train.jsonl", f"output_dir={out}", "max_steps=20",
              "per_device_train_batch_size=4", "save_strategy=no", f"threads={bench.args.threads}",
              *keys)
    return bench.path(out)


# ---- transformers and PEFT ----------------------------------------------------------------------


def ebb_losses(bench, folder):
    losses = []
    for i in range(RECORDS):
        said = bench.ebb("eval", f"model={folder}", f"dataset=eval{i}.jsonl", "json=true",
                         f"threads={bench.args.threads}")
        losses.append(json.loads(said)["eval_loss"])
    return losses


def losses_of(model, records):
    losses = []
    for ids in records:
        logits = check_handoff.logits_of(model, ids).double()
        targets = torch.tensor(ids[1:])
        losses.append(torch.nn.functional.cross_entropy(logits[:-1], targets).item())
    return losses


def check_losses(bench, name, part, folder, model, records, base=None):
    theirs, ours = losses_of(model, records), ebb_losses(bench, folder)
    worst = max(abs(a - b) / b for a, b in zip(ours, theirs))
    text = f"losses differ by {worst:.1e} of {sum(theirs) / len(theirs):.4f}"
    changed = True
    if base is not None:  # what was trained must count for something
        moved = max(abs(a - b) for a, b in zip(losses_of(base, records), theirs))
        changed = moved > 1e-2
        text += f"; training moved them by {moved:.2g}"
    bench.say(name, part, worst <= LOSS and changed, text)


def check_merged(bench, name, part, peft_model, merged, records):
    reference = torch.cat([check_handoff.logits_of(peft_model, ids) for ids in records])
    got = torch.cat([check_handoff.logits_of(merged, ids) for ids in records])
    result = check_handoff.compare(part, got, reference, LOGITS)
    bench.say(name, part, result["agrees"], f"logits differ by {result['error']:.1e}")


def check_text(bench, name, folder, model):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    prompt = "say: the"
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    ours = json.loads(subprocess.run([bench.ebb_path, "tokenize", folder, "json=true"],
                                     input=prompt + "\n", capture_output=True, text=True,
                                     check=True).stdout)["ids"]
    with torch.no_grad():
        made = model.generate(ids, max_new_tokens=12, do_sample=False,
                              pad_token_id=tokenizer.eos_token_id)
    theirs = tokenizer.decode(made[0, ids.shape[1]:], skip_special_tokens=True)
    said = bench.ebb("generate", f"model={folder}", f"prompt={prompt}", "max_new_tokens=12",
                     "temperature=0", f"threads={bench.args.threads}").rstrip("\n")
    same = ids[0].tolist() == ours and said.endswith(theirs.rstrip("\n"))
    bench.say(name, "text", same, f"{len(ours)} tokens, then {theirs!r}" +
              ("" if same else f"; ebb: {ours} {said!r}"))


def check_bf16(bench, name, records):
    """The same model in bfloat16: adapter float32, merged weights bfloat16."""
    folder, vocab = bench.path(name + "-bf16"), bench.args.tokenizer or "bytes"
    bench.ebb("init", name + ".json", folder, "--tokenizer", vocab, "dtype=bfloat16")
    run = train(bench, folder, name + "-bf16-run", "use_peft=true", "learning_rate=5e-3",
                *ADAPTERS["all-linear"])
    merged = bench.path(name + "-bf16-merged")
    bench.ebb("merge", f"adapter_name_or_path={run}", f"output_dir={merged}")
    peft_model = check_handoff.load_adapter(folder, run, torch.float32)
    model = check_handoff.load_model(merged, torch.float32)
    kind = transformers.AutoModelForCausalLM.from_pretrained(merged, dtype="auto").dtype
    reference = torch.cat([check_handoff.logits_of(peft_model, ids) for ids in records])
    got = torch.cat([check_handoff.logits_of(model, ids) for ids in records])
    result = check_handoff.compare("bf16", got, reference, BF16)
    bench.say(name, "bf16", result["agrees"] and kind == torch.bfloat16,
              f"{kind}, logits differ by {result['error']:.1e}")


# ---- llama.cpp ----------------------------------------------------------------------------------

CONVERT = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
sys.path.insert(1, sys.argv[1] + "/gguf-py")
if sys.argv[2] == "bytes":  # a tokenizer that no table has
    try:
        from conversion.base import TextModel
    except ImportError:
        from convert_hf_to_gguf import TextModel
    TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
script = sys.argv[1] + "/" + sys.argv[3]
sys.argv = [script] + sys.argv[4:]
runpy.run_path(script, run_name="__main__")
"""


def convert(bench, script, *words):
    kind = "given" if bench.args.tokenizer else "bytes"
    command = [sys.executable, "-c", CONVERT, os.path.abspath(bench.args.llama_cpp), kind, script]
    done = subprocess.run([*command, *words, "--outtype", "f32"], capture_output=True, text=True,
                          cwd=bench.work, env={**os.environ, "NO_LOCAL_GGUF": "1"})
    if done.returncode != 0:
        raise RuntimeError(f"{script}: {done.stderr[-1500:]}")


def gguf_tensors(bench, path):
    sys.path.insert(0, os.path.join(os.path.abspath(bench.args.llama_cpp), "gguf-py"))
    import gguf

    return {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}


def llama_cpp_probabilities(bench, gguf_path, adapter, scale, ids):
    """{id: log-probability} of what follows `ids`, by llama.cpp itself; caches in float32."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = gguf_path
    params.n_ctx, params.n_parallel, params.n_gpu_layers, params.warmup = 256, 1, 0, False
    params.verbosity = 0
    params.cpuparams.n_threads = bench.args.threads
    # its flash attention on the CPU multiplies in float16: 1e-3 instead of 1e-6
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    if adapter:
        params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(adapter, scale)]
    server = xllamacpp.Server(params)
    answer = server.handle_completions({"prompt": ids, "n_predict": 1, "n_probs": 40,
                                        "temperature": 0.0, "cache_prompt": False})
    first = answer["choices"][0]["logprobs"]["content"][0]
    return {entry["id"]: entry["logprob"] for entry in first["top_logprobs"]}


def check_run(bench, name, part, gguf_path, adapter, model, ids, scale=1.0, differs=False):
    got = llama_cpp_probabilities(bench, gguf_path, adapter, scale, ids)
    wanted = torch.log_softmax(check_handoff.logits_of(model, ids)[-1].double(), -1)
    worst = max(abs(value - wanted[token].item()) for token, value in got.items())
    ok = len(got) == 40 and (worst > LLAMA_CPP if differs else worst <= LLAMA_CPP)
    note = ", as it must: the converter leaves use_rslora out" if differs else ""
    bench.say(name, part, ok, f"{len(got)} log-probabilities differ by {worst:.1e}{note}")


def check_gguf(bench, name, model, adapter, merged, peft_model, merged_model, ids, rslora):
    low, whole = adapter + ".gguf", merged + ".gguf"
    base = model + ".gguf"
    convert(bench, "convert_lora_to_gguf.py", adapter, "--base", model, "--outfile", low)
    convert(bench, "convert_hf_to_gguf.py", merged, "--outfile", whole)
    if not os.path.exists(base):
        convert(bench, "convert_hf_to_gguf.py", model, "--outfile", base)
    wanted = {key for key in gguf_tensors(bench, base)}
    got, pairs = set(gguf_tensors(bench, whole)), set(gguf_tensors(bench, low))
    held = sum("lora_" in key for key in peft_model.state_dict())
    names = {key[: -len(".lora_a")] for key in pairs}
    ok = got == wanted and len(pairs) == held and names <= wanted
    bench.say(name, "gguf", ok, f"{len(got)} tensors of the model, {len(pairs)} of the adapter")
    try:
        import xllamacpp  # noqa: F401
    except ImportError:
        bench.skip("llama.cpp", "no xllamacpp")
        return
    if not bench.args.tokenizer:
        bench.skip("llama.cpp", "it runs no tokenizer without merges: give --tokenizer")
        return
    check_run(bench, name, "llama.cpp merged", whole, None, merged_model, ids)
    if rslora:
        check_run(bench, name, "llama.cpp, scale 1", base, low, peft_model, ids, differs=True)
    scale = math.sqrt(peft_model.peft_config["default"].r) if rslora else 1.0
    check_run(bench, name, "llama.cpp adapter", base, low, peft_model, ids, scale)


# ---- vLLM ---------------------------------------------------------------------------------------


def check_vllm(bench, name, adapter, peft_model):
    try:
        import vllm.lora.lora_model
        from vllm.lora.peft_helper import PEFTHelper
    except Exception as error:  # it needs much that may be wrong
        bench.skip("vllm", f"{type(error).__name__}: {error}")
        return
    vllm.lora.lora_model.PIN_MEMORY = False  # pinning asks for a GPU's driver
    vllm.lora.lora_model.is_pin_memory_available = lambda: False  # older releases
    with open(os.path.join(adapter, "adapter_config.json")) as file:
        config = json.load(file)
    helper = PEFTHelper.from_local_dir(adapter, 256)
    expected = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    loaded = vllm.lora.lora_model.LoRAModel.from_local_checkpoint(
        adapter, expected, helper, lora_model_id=1, device="cpu", dtype=torch.float32)
    root = math.sqrt(config["r"]) if config["use_rslora"] else config["r"]
    held = {key: value for key, value in peft_model.state_dict().items() if "lora_" in key}
    same = len(loaded.loras) * 2 == len(held)
    for module, low in loaded.loras.items():
        for which, value in (("A", low.lora_a), ("B", low.lora_b)):
            theirs = held[f"base_model.model.{module}.lora_{which}.default.weight"]
            same = same and torch.equal(value, theirs)
    scale = helper.vllm_lora_scaling_factor
    bench.say(name, "vllm", same and abs(scale - config["lora_alpha"] / root) < 1e-9,
              f"{len(loaded.loras)} modules, scale {scale:.4g}")


# ---- all of it ----------------------------------------------------------------------------------


def check_family(bench, name, records):
    f32 = torch.float32
    model = make_model(bench, name)
    base = check_handoff.load_model(model, f32)
    for kind, keys in ADAPTERS.items():
        label = f"{name}-{kind.split(',')[0]}"
        adapter = train(bench, model, label, "use_peft=true", "learning_rate=5e-3", *keys)
        merged = bench.path(label + "-merged")
        bench.ebb("merge", f"adapter_name_or_path={adapter}", f"output_dir={merged}")
        peft_model = check_handoff.load_adapter(model, adapter, f32)
        merged_model = check_handoff.load_model(merged, f32)
        check_losses(bench, name, f"peft, {kind}", adapter, peft_model, records, base)
        check_merged(bench, name, "merged", peft_model, merged_model, records)
        check_losses(bench, name, "merged, ebb eval", merged, merged_model, records)
        check_vllm(bench, name, adapter, peft_model)
        if bench.args.llama_cpp:
            check_gguf(bench, name, model, adapter, merged, peft_model, merged_model, records[0],
                       "use_rslora=true" in keys)
    full = train(bench, model, name + "-full", "learning_rate=2e-3")
    full_model = check_handoff.load_model(full, f32)
    check_losses(bench, name, "full", full, full_model, records, base)
    check_text(bench, name, full, full_model)
    check_bf16(bench, name, records)


def versions():
    found = []
    for name in ("torch", "transformers", "peft", "safetensors", "vllm", "xllamacpp"):
        try:
            import importlib.metadata

            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            pass
    return ", ".join(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--ebb", required=True)
    for key in ("work", "only", "tokenizer", "llama-cpp"):
        parser.add_argument("--" + key)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    names = args.only.split(",") if args.only else list(FAMILIES)
    for name in names:
        if name not in FAMILIES:
            check_handoff.fail(f"no family '{name}'; there are {', '.join(FAMILIES)}")
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(args.threads)
    if args.tokenizer:
        args.tokenizer = os.path.abspath(args.tokenizer)
    bench = Bench(args)
    print(versions(), flush=True)
    if not args.llama_cpp:
        bench.skip("gguf", "no --llama-cpp")
    records = make_data(bench)
    for name in names:
        try:
            check_family(bench, name, records)
        except Exception as error:
            bench.say(name, "stopped", False, f"{type(error).__name__}: {error}")
    for part, why in bench.skipped.items():
        print(f"skipped: {part} ({why})")
    print(f"{bench.failed} failed" if bench.failed else "all holds")
    sys.exit(1 if bench.failed else 0)


if __name__ == "__main__":
    main()
