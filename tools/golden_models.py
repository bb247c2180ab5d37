#!/usr/bin/env python3
"""Writes the golden files of whole models: what training a tiny model must give, step by step.

    python tools/golden_models.py OUT_DIR [CASE ...]

OUT_DIR gets one folder per case (tests/golden/models/ holds the committed ones; README.md there
describes the format). Needs torch, transformers and peft; runs on the CPU in two minutes. Each
case.json names the versions it was made with.

Every case is run twice:
  exact    in float64 throughout. transformers' modules cast down to float32 inside (RMS norm,
           rotary tables, softmax of the eager attention), so calling .double() is not enough:
           `make_exact` replaces the first two by float64 versions written here, attention is
           PyTorch's SDPA on float64, and `OnlyFloat64` fails at any operation that makes a narrower
           float. These are the values that are stored, rounded once to float32.
  float32  the stock modules with eager attention. Its distance from the exact run is stored in
           case.json as "float32": that is the rounding error that a correct float32 program may
           have. The tolerances lie at least four times above it, or the case is refused.

And every case is anchored to how the field trains: each document alone, a right-padded batch with
an attention mask (with transformers' own loss too), and the documents laid end to end with
positions that restart must give one loss and one gradient.
SPDX-License-Identifier: Apache-2.0
"""

import json
import math
import os
import platform
import shutil
import sys
import types
import warnings

os.environ["HF_HUB_OFFLINE"] = (
    "1"  # read on import: PEFT would look for the base model's name on the Hub
)

import peft
import torch
import transformers
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

STEPS = 10
VOCAB = 96
IGNORE = -100
ADAMW = {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01}
SGD = {"lr": 0.1, "momentum": 0.0, "weight_decay": 0.0, "max_grad_norm": 1.0}
ALL_LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

# What a correct float32 program should meet: |got - want| <= abs + rel |want|. The stock float32
# run must stay within a quarter of it, or the case is refused.
TOLERANCE = {
    "loss": {"abs": 2e-6, "rel": 1e-6},
    "logits": {"abs": 1e-5, "rel": 1e-5},
    "grad_norm": {"abs": 5e-6, "rel": 1e-6},
    "grad": {"abs": 1e-6, "rel": 1e-5},
    "adamw": {"abs": 1e-5, "rel": 0.0},
    "sgd": {"abs": 2e-6, "rel": 1e-6},
}

SMALL = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    bos_token_id=1,
    eos_token_id=2,
)
TINY = dict(
    SMALL, hidden_size=16, intermediate_size=24, num_attention_heads=2, num_key_value_heads=1
)


def rope(theta, kind="default", **more):
    return {"rope_type": kind, "rope_theta": theta, **more}


# name: (architecture, keys of the config, generation of transformers whose config.json is imitated,
# seed).
# A key bias acts only through rotary: with Qwen's theta of 1e6 and so small a head, half of it
# would have next to no gradient, so qwen2 has a smaller one.
MODELS = {
    "llama2": ("Llama", dict(
        SMALL, intermediate_size=32, num_key_value_heads=4, tie_word_embeddings=False,
        rms_norm_eps=1e-5, rope_parameters=rope(10000.0)), 4, 101),
    "llama3": ("Llama", dict(
        SMALL, num_hidden_layers=3, tie_word_embeddings=True, rms_norm_eps=1e-5,
        rope_parameters=rope(10000.0, "llama3", factor=8.0, low_freq_factor=1.0,
                             high_freq_factor=4.0, original_max_position_embeddings=128)), 4, 102),
    "smollm2": ("Llama", dict(
        SMALL, hidden_size=48, intermediate_size=32, num_attention_heads=6,
        tie_word_embeddings=True, rms_norm_eps=1e-5, rope_parameters=rope(100000.0)), 5, 103),
    "mistral": ("Mistral", dict(
        SMALL, head_dim=8, tie_word_embeddings=False, rms_norm_eps=1e-5, sliding_window=8,
        rope_parameters=rope(10000.0)), 4, 104),
    "qwen2": ("Qwen2", dict(
        SMALL, tie_word_embeddings=True, rms_norm_eps=1e-6, rope_parameters=rope(1000.0)), 4, 105),
    "qwen3": ("Qwen3", dict(
        SMALL, intermediate_size=32, head_dim=16, tie_word_embeddings=False, rms_norm_eps=1e-6,
        rope_parameters=rope(1000000.0)), 5, 106),
    "llama_linear": ("Llama", dict(
        TINY, tie_word_embeddings=True, rms_norm_eps=1e-6,
        rope_parameters=rope(10000.0, "linear", factor=2.0)), 4, 107),
    "llama_yarn": ("Llama", dict(
        TINY, tie_word_embeddings=True, rms_norm_eps=1e-6,
        rope_parameters=rope(10000.0, "yarn", factor=4.0,
                             original_max_position_embeddings=64)), 5, 108),
}

# name: base model, r, alpha, rsLoRA, targets, seed.
ADAPTERS = {
    "llama3_lora": ("llama3", 4, 8, False, ALL_LINEAR, 201),
    "llama3_lora_qv": ("llama3", 4, 8, False, ["q_proj", "v_proj"], 202),
    "mistral_lora": ("mistral", 4, 8, False, ALL_LINEAR, 203),
    "qwen2_lora_rslora": ("qwen2", 4, 8, True, ALL_LINEAR, 204),
    "qwen3_lora": ("qwen3", 4, 8, False, ALL_LINEAR, 205),
}


# ---- Data ----------------------------------------------------------------------------------------

# Lengths of the documents of each micro-batch of each optimizer step; "p" after a length: the first
# third is a prompt, "n": nothing is trained, "s": scattered, every target with probability 1/2. At
# most 96 tokens a micro-batch.
LAYOUT = [
    [["23", "1", "17p", "40"], ["9n", "30n"], ["40p", "33s", "2", "21"], ["12"]],
    [["38", "19", "7p"]],
    [["40s"], ["25", "25", "25", "21"], ["3p", "6", "1", "14"], ["36p", "31p"]],
    [["2", "3", "4", "5", "6", "7", "8", "9"]],
    [["40", "40", "16"], ["11s", "35"]],
    [["27p", "13"]],
    [["18", "22n", "39p"], ["1", "1", "10"], ["29"]],
    [["8", "9", "24s", "37"]],
    [["34p", "28", "15"], ["5p"], ["40", "20p", "26"], ["32s", "2", "2"]],
    [["31", "9p", "40"]],
]


def make_batches(seed):
    """Optimizer steps of micro-batches of documents. Ids follow a rule three times in four, so that
    there is something to learn; a document's first token is never a target."""
    gen = torch.Generator().manual_seed(seed)

    def draw(n):
        return int(torch.randint(n, (1,), generator=gen))

    def document(text):
        length = int(text.rstrip("pns"))
        ids = [draw(VOCAB)]
        while len(ids) < length:
            ids.append((5 * ids[-1] + 7) % VOCAB if draw(4) else draw(VOCAB))
        mask = [0] + [1] * (length - 1)
        if text.endswith("p"):
            mask[: max(1, length // 3)] = [0] * max(1, length // 3)
        elif text.endswith("n"):
            mask = [0] * length
        elif text.endswith("s"):
            mask = [0] + [draw(2) for _ in range(length - 1)]
        return {"ids": ids, "mask": mask}

    batches = [[[document(text) for text in micro] for micro in step] for step in LAYOUT]
    assert len(batches) == STEPS
    assert max(sum(len(d["ids"]) for d in micro) for step in batches for micro in step) == VOCAB
    return batches


def labels_of(step):
    return sum(sum(doc["mask"]) for micro in step for doc in micro)


def targets_of(doc):
    """The token after each place, or IGNORE."""
    following = [i if m else IGNORE for i, m in zip(doc["ids"], doc["mask"])]
    return torch.tensor(following[1:] + [IGNORE])


# ---- The exact (float64) versions of the modules that cast down ----------------------------------


class OnlyFloat64(TorchDispatchMode):
    """Fails at the first operation that makes a float narrower than float64."""

    def __torch_dispatch__(self, func, types_, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(x, torch.Tensor) and x.is_floating_point() and x.dtype != torch.float64:
                raise AssertionError(f"{func} made a {x.dtype} in the exact run")
        return out


def inverse_frequencies(config):
    """(inverse frequencies [D/2], factor of cos and sin) in float64, from the papers' formulas."""
    p = config.rope_parameters
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    i = torch.arange(dim // 2, dtype=torch.float64)
    plain = torch.tensor(p["rope_theta"], dtype=torch.float64) ** (-2 * i / dim)
    kind = p["rope_type"]
    if kind == "default":
        return plain, 1.0
    if kind == "linear":
        return plain / p["factor"], 1.0
    old = p["original_max_position_embeddings"]
    if (
        kind == "llama3"
    ):  # turns within the old context: few -> scaled, many -> as they are, blended between
        low, high = p["low_freq_factor"], p["high_freq_factor"]
        share = ((old * plain / (2 * math.pi) - low) / (high - low)).clamp(0, 1)
        return share * plain + (1 - share) * plain / p["factor"], 1.0
    if kind == "yarn":  # arXiv 2309.00071

        def dim_with(turns):
            return dim * math.log(old / (turns * 2 * math.pi)) / (2 * math.log(p["rope_theta"]))

        low = max(math.floor(dim_with(p.get("beta_fast") or 32)), 0)
        high = min(math.ceil(dim_with(p.get("beta_slow") or 1)), dim - 1)
        ramp = ((i - low) / (high - low)).clamp(0, 1)
        return plain * (1 - ramp) + plain / p["factor"] * ramp, 0.1 * math.log(p["factor"]) + 1
    raise AssertionError(kind)


def exact_norm(self, x):
    return self.weight * (x * (x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon) ** -0.5)


def make_exact(model):
    """The model in float64 throughout, in place. Attention becomes SDPA: the eager one casts its
    softmax to float32."""
    model.double()
    model.config._attn_implementation = "sdpa"
    for module in model.modules():
        kind = type(module).__name__
        if kind.endswith("RMSNorm"):
            module.forward = types.MethodType(exact_norm, module)
        elif kind.endswith("RotaryEmbedding"):
            freqs, factor = inverse_frequencies(module.config)
            stock = module.inv_freq.double()
            assert (
                (freqs - stock).abs() <= 1e-6 * freqs
            ).all(), "rotary formula differs from transformers"
            assert abs(factor - module.attention_scaling) < 1e-6

            def forward(self, x, position_ids, freqs=freqs, factor=factor):
                angles = position_ids[..., None].double() * freqs
                angles = torch.cat((angles, angles), dim=-1)
                return angles.cos() * factor, angles.sin() * factor

            module.forward = types.MethodType(forward, module)
    return model


# ---- Loss three ways -----------------------------------------------------------------------------


def logits_alone(model, doc):
    return model(input_ids=torch.tensor([doc["ids"]]), use_cache=False).logits[0]


def sum_alone(model, micro):
    """Sum of cross-entropies, each document by itself."""
    total = 0.0
    for doc in micro:
        if any(doc["mask"]):
            total = total + cross_entropy(
                logits_alone(model, doc), targets_of(doc), ignore_index=IGNORE, reduction="sum"
            )
    return total


def sum_padded(model, micro):
    """The same in a right-padded batch with an attention mask."""
    longest = max(len(doc["ids"]) for doc in micro)
    ids = torch.zeros(len(micro), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    targets = torch.full_like(ids, IGNORE)
    for row, doc in enumerate(micro):
        n = len(doc["ids"])
        ids[row, :n] = torch.tensor(doc["ids"])
        mask[row, :n] = 1
        targets[row, :n] = targets_of(doc)
    logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
    return cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="sum"
    )


def sum_padded_stock(model, micro):
    """The same with transformers' own loss, which shifts labels itself and is always float32."""
    longest = max(len(doc["ids"]) for doc in micro)
    ids = torch.tensor([doc["ids"] + [0] * (longest - len(doc["ids"])) for doc in micro])
    mask = torch.tensor(
        [[1] * len(doc["ids"]) + [0] * (longest - len(doc["ids"])) for doc in micro]
    )
    labels = torch.tensor(
        [
            [i if m else IGNORE for i, m in zip(doc["ids"], doc["mask"])]
            + [IGNORE] * (longest - len(doc["ids"]))
            for doc in micro
        ]
    )
    return model(
        input_ids=ids, attention_mask=mask, labels=labels, num_items_in_batch=1, use_cache=False
    ).loss


def sum_packed(model, micro):
    """The same laid end to end: transformers keeps documents apart where positions start again."""
    ids = torch.tensor([sum((doc["ids"] for doc in micro), [])])
    positions = torch.tensor([sum((list(range(len(doc["ids"]))) for doc in micro), [])])
    logits = model(input_ids=ids, position_ids=positions, use_cache=False).logits
    targets = torch.cat([targets_of(doc) for doc in micro])
    return cross_entropy(logits[0], targets, ignore_index=IGNORE, reduction="sum")


def backward_step(model, step, sum_of=sum_alone):
    """Gradients of one optimizer step: sum over all its targets, divided once by their number.
    Returns the loss."""
    model.zero_grad(set_to_none=True)
    labels, loss = labels_of(step), 0.0
    for micro in step:
        part = sum_of(model, micro)
        if isinstance(part, torch.Tensor):
            (part / labels).backward()
            loss += float(part.detach()) / labels
    return loss


def trainable(model):
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def file_name(name):
    """PEFT's files leave the adapter's name out."""
    return name.replace(".default.", ".")


def norm_of(grads):
    return math.sqrt(sum(float(g.double().pow(2).sum()) for g in grads))


def decays(name, parameter):
    """Weight decay goes to matrices; norms and biases (all the vectors) have none."""
    vector = parameter.dim() == 1
    assert vector == (name.endswith("norm.weight") or name.endswith(".bias")), name
    return not vector


def train(model, batches, kind):
    """Runs all the steps from where the model stands and leaves it there. Returns losses,
    gradient norms (before clipping), the parameters after the last step, and the first step's
    gradients."""
    start = {name: p.detach().clone() for name, p in trainable(model).items()}
    matrices = [p for n, p in trainable(model).items() if decays(n, p)]
    vectors = [p for n, p in trainable(model).items() if not decays(n, p)]
    if kind == "adamw":
        optimizer = torch.optim.AdamW(
            [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}],
            lr=ADAMW["lr"],
            betas=tuple(ADAMW["betas"]),
            eps=ADAMW["eps"],
            weight_decay=ADAMW["weight_decay"],
            foreach=False,
            fused=False,
        )
    else:
        optimizer = torch.optim.SGD(matrices + vectors, lr=SGD["lr"], foreach=False, fused=False)
    losses, norms, first = [], [], None
    for step in batches:
        losses.append(backward_step(model, step))
        grads = {name: p.grad for name, p in trainable(model).items()}
        first = first or {name: g.clone() for name, g in grads.items()}
        norms.append(norm_of(grads.values()))
        if kind == "sgd":
            parameters = matrices + vectors
            torch.nn.utils.clip_grad_norm_(parameters, SGD["max_grad_norm"], foreach=False)
        optimizer.step()
    end = {name: p.detach().clone() for name, p in trainable(model).items()}
    with torch.no_grad():
        for name, p in trainable(model).items():
            p.copy_(start[name])
    return losses, norms, end, first


def run(model, batches):
    """Every tensor of expected.safetensors, in the model's own precision."""
    out = {}
    with torch.no_grad():
        out["logits"] = logits_alone(model, batches[0][0][0])
    for kind in ("adamw", "sgd"):
        losses, norms, end, first = train(model, batches, kind)
        prefix = "" if kind == "adamw" else "sgd_"
        out[prefix + "loss"] = torch.tensor(losses, dtype=torch.float64)
        out[prefix + "grad_norms"] = torch.tensor(norms, dtype=torch.float64)
        for name, p in end.items():
            out[f"{kind}.{file_name(name)}"] = p
        if kind == "adamw":
            out["grad_norm"] = torch.tensor(norms[:1], dtype=torch.float64)
            for name, g in first.items():
                out[f"grad.{file_name(name)}"] = g
    return out


# ---- Checks --------------------------------------------------------------------------------------


def check_three_ways(model, batches, abs_tolerance, stock_loss):
    """Alone = padded = packed, in the loss of every micro-batch and in the gradient of the first
    step. Returns the largest differences seen."""
    ways = [sum_padded, sum_packed] + ([sum_padded_stock] if stock_loss else [])
    worst = {"loss": 0.0, "grad": 0.0}
    with torch.no_grad():
        for step in batches:
            for micro in step:
                labels = max(sum(sum(doc["mask"]) for doc in micro), 1)
                want = float(sum_alone(model, micro)) / labels
                for way in ways:
                    diff = abs(float(way(model, micro)) / labels - want)
                    worst["loss"] = max(worst["loss"], diff)
    backward_step(model, batches[0])
    want = {name: p.grad.clone() for name, p in trainable(model).items()}
    for way in ways:
        backward_step(model, batches[0], way)
        for name, p in trainable(model).items():
            worst["grad"] = max(worst["grad"], float((p.grad - want[name]).abs().max()))
    assert max(worst.values()) < abs_tolerance, worst
    return worst


def check_window(model, batches, window):
    """A token attends to exactly `window` tokens, itself among them, and that changes the loss."""
    assert model.config._attn_implementation == "eager"
    doc = max(batches[0][0], key=lambda d: len(d["ids"]))
    with torch.no_grad():
        weights = model(
            input_ids=torch.tensor([doc["ids"]]), use_cache=False, output_attentions=True
        ).attentions
        back = torch.arange(len(doc["ids"]))[:, None] - torch.arange(len(doc["ids"]))[None, :]
        seen = (back >= 0) & (back < window)
        for layer in weights:
            assert layer[0][:, seen].min() > 0 and layer[0][:, ~seen].abs().max() == 0
        windowed = float(sum_alone(model, [doc])) / sum(doc["mask"])
        layers = model.base_model.model.model if hasattr(model, "peft_config") else model.model
        layers.config.sliding_window = None
        full = float(sum_alone(model, [doc])) / sum(doc["mask"])
        layers.config.sliding_window = window
    assert abs(windowed - full) > 1e-3, (windowed, full)
    return {"loss_of_longest_document": windowed, "without_window": full}


def compare(got, want):
    """The largest absolute difference and the largest relative L2 difference of a tensor, by kind;
    refuses a case whose stock float32 run is not well within the tolerances."""
    seen = {}
    for name, exact in want.items():
        kind = name.split(".")[0].replace("sgd_", "").replace("grad_norms", "grad_norm")
        diff = (got[name].double() - exact).abs()
        limit = TOLERANCE[kind]["abs"] + TOLERANCE[kind]["rel"] * exact.abs()
        share = float((diff / limit).max())
        assert share <= 0.25, f"{name}: float32 is off by {share:.2g} of the tolerance"
        entry = seen.setdefault(kind, {"max_abs": 0.0, "max_rel_l2": 0.0})
        entry["max_abs"] = max(entry["max_abs"], float(diff.max()))
        relative = float(diff.norm() / exact.norm().clamp_min(1e-30))
        entry["max_rel_l2"] = max(entry["max_rel_l2"], relative)
    return {kind: {k: float(f"{v:.3g}") for k, v in entry.items()} for kind, entry in seen.items()}


# ---- Models --------------------------------------------------------------------------------------


def new_model(arch, keys, seed):
    config = getattr(transformers, arch + "Config")(**keys)
    config._attn_implementation = "eager"
    model = getattr(transformers, arch + "ForCausalLM")(config).float().eval()
    gen = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=gen)
            p.copy_(1 + 0.1 * noise if name.endswith("norm.weight") else 0.15 * noise)
    return model


def config_of_4(config, arch):
    """The same config as transformers 4 writes it: rope_theta and rope_scaling at the top,
    torch_dtype for dtype."""
    config = dict(config)
    rope_parameters = dict(config.pop("rope_parameters"))
    config["torch_dtype"] = config.pop("dtype")
    config["rope_theta"] = rope_parameters.pop("rope_theta")
    kind = rope_parameters["rope_type"]
    if kind == "linear":  # the oldest spelling
        config["rope_scaling"] = {"type": "linear", "factor": rope_parameters["factor"]}
    elif kind != "default":
        config["rope_scaling"] = rope_parameters
    elif arch == "Llama":
        config["rope_scaling"] = None
    if (
        kind != "llama3"
    ):  # files before Llama 3.2 leave the head size to hidden_size / num_attention_heads
        config.pop("head_dim", None)
    config.pop("layer_types", None)
    config["transformers_version"] = "4.46.0"
    return dict(sorted(config.items()))


def edit_json(path, edit):
    with open(path) as f:
        content = json.load(f)
    with open(path, "w") as f:
        f.write(json.dumps(edit(content), indent=2) + "\n")


def load(path):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager"
    )
    return model.eval()


def save_base(path, name):
    arch, keys, generation, seed = MODELS[name]
    model = new_model(arch, keys, seed)
    model.save_pretrained(path)
    if generation == 4:
        edit_json(os.path.join(path, "config.json"), lambda config: config_of_4(config, arch))
    ids = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 89, 79, 32]])
    with torch.no_grad():  # the files are the model, rewritten config and all
        assert torch.equal(load(path)(ids).logits, model(ids).logits)


def new_adapter(base_dir, base, r, alpha, rslora, targets, seed):
    torch.manual_seed(seed)
    model = load(base_dir)
    model.config._name_or_path = model.name_or_path = base
    config = peft.LoraConfig(
        r=r,
        lora_alpha=alpha,
        use_rslora=rslora,
        target_modules=list(targets),
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
        base_model_name_or_path=base,
    )
    model = peft.get_peft_model(model, config).eval()
    gen = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in trainable(model).items():
            if "lora_B" in name:  # zero in practice, but then A would have no gradient to compare
                p.copy_(0.1 * torch.randn(p.shape, generator=gen))
    return model


# ---- Files ---------------------------------------------------------------------------------------


def write_batches(path, batches):
    """One document a line."""

    def lines(items, depth):
        if depth == 0:
            return json.dumps(items, separators=(",", ":"))
        return "[\n" + ",\n".join(lines(x, depth - 1) for x in items) + "\n]"

    with open(path, "w") as f:
        f.write(lines(batches, 3) + "\n")


def as_float32(tensors):
    return {name: t.detach().to(torch.float32).contiguous().clone() for name, t in tensors.items()}


def save_adapter(path, base_dir, name):
    new_adapter(base_dir, *ADAPTERS[name]).save_pretrained(path, save_embedding_layers=False)
    os.remove(os.path.join(path, "README.md"))
    edit_json(
        os.path.join(path, "adapter_config.json"),  # PEFT writes a set, in any order
        lambda config: dict(config, target_modules=sorted(config["target_modules"])),
    )


def prepare_model(path, out_dir, name):
    """Writes the model or adapter. Returns (what case.json says of it, a function to load it)."""
    if name in MODELS:
        save_base(path, name)
        style = f"transformers {MODELS[name][2]}"
        return {"method": "full", "model_dir": ".", "config_style": style}, lambda: load(path)

    base, r, alpha, rslora, targets, _ = ADAPTERS[name]
    base_dir, adapter_dir = os.path.join(out_dir, base), os.path.join(path, "adapter")
    save_adapter(adapter_dir, base_dir, name)
    about = {"method": "lora", "model_dir": "../" + base, "adapter_dir": "adapter", "r": r}
    about.update(lora_alpha=alpha, use_rslora=rslora, target_modules=targets)
    return about, lambda: peft.PeftModel.from_pretrained(
        load(base_dir), adapter_dir, is_trainable=True
    ).eval()


def run_exact(model, batches):
    make_exact(model)
    torch.set_default_dtype(torch.float64)  # AdamW counts its steps in the default type
    with OnlyFloat64():
        worst = check_three_ways(model, batches, 1e-12, False)
        exact = run(model, batches)
    torch.set_default_dtype(torch.float32)
    return exact, worst


def make_case(out_dir, name):
    path = os.path.join(out_dir, name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    about, build = prepare_model(path, out_dir, name)
    batches = make_batches((MODELS.get(name) or ADAPTERS[name])[-1])
    write_batches(os.path.join(path, "batches.json"), batches)

    stock = build()
    checks = {"float32_three_ways": check_three_ways(stock, batches, 2e-5, True)}
    window = getattr(stock.config, "sliding_window", None)
    if window:
        checks["window"] = check_window(stock, batches, window)
    float32 = run(stock, batches)
    exact, checks["float64_three_ways"] = run_exact(build(), batches)
    expected = os.path.join(path, "expected.safetensors")
    save_file(as_float32(exact), expected, metadata={"format": "pt"})

    case = {
        "case": name,
        **about,
        "steps": STEPS,
        "labels": [labels_of(step) for step in batches],
        "loss": "sum over the optimizer step, divided once by its trained targets",
        "adamw": dict(ADAMW, no_decay="norms and biases", max_grad_norm=None),
        "sgd": SGD,
        "tolerance": TOLERANCE,
        "float32": compare(float32, exact),
        "checks": checks,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "peft": peft.__version__,
        },
    }
    with open(os.path.join(path, "case.json"), "w") as f:
        f.write(json.dumps(case, indent=2) + "\n")
    for folder, _, files in os.walk(path):
        for file in files:  # safetensors makes private files
            os.chmod(os.path.join(folder, file), 0o644)
    losses = f"loss {float(exact['loss'][0]):.4f} -> {float(exact['loss'][-1]):.4f}"
    worst = {kind: seen["max_abs"] for kind, seen in case["float32"].items()}
    print(f"{name:18} {losses}  float32 error {json.dumps(worst)}", flush=True)


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python tools/golden_models.py OUT_DIR [CASE ...]")
    known = list(MODELS) + list(ADAPTERS)
    names = sys.argv[2:] or known
    for name in names:
        if name not in known:
            sys.exit(f"golden_models: no case '{name}'; there are {', '.join(known)}")
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)  # sums in one order
    for name in names:
        make_case(sys.argv[1], name)


if __name__ == "__main__":
    main()
