"""What the comparisons of whole models share: shapes, random models and adapters, where files go.

Used by compare_gpu.py, compare_curve.py and compare_kd.py. A model is made from a shape with random
weights: each matrix's deviation is 0.6 of the inverse root of the model's width, which for width
896 is the 0.02 that transformers starts with (at 1.0 a deep random model magnifies every rounding
several times more, PyTorch's too, and the cosines say more of the model than of who computed it);
norm weights are 1 + 0.1 normal and biases 0.1 normal, so that a gradient that forgets one of them
shows. Weights are written in bfloat16: every side then starts from the same numbers, whatever it
computes in.
SPDX-License-Identifier: Apache-2.0
"""

import glob
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"  # read on import
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

import torch
import transformers
from safetensors.torch import save_file

ALL_LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
LLAMA3_ROPE = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def shape(kind, width, inner, layers, heads, kv_heads, head_dim, vocab, tied, theta, eps, **more):
    return dict(model_type=kind, hidden_size=width, intermediate_size=inner,
                num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads,
                head_dim=head_dim, vocab_size=vocab, tie_word_embeddings=tied, rope_theta=theta,
                rms_norm_eps=eps, max_position_embeddings=32768, hidden_act="silu", **more)


# As the models of these names have them; the tiny ones are configs/shapes/ with another head, and a
# wider and flatter one to teach it.
SHAPES = {
    "qwen2-0.5b": dict(shape("qwen2", 896, 4864, 24, 14, 2, 64, 151936, True, 1e6, 1e-6),
                       max_position_embeddings=131072),
    "qwen2-1.5b": dict(shape("qwen2", 1536, 8960, 28, 12, 2, 128, 151936, True, 1e6, 1e-6),
                       max_position_embeddings=131072),
    "qwen2.5-0.5b": shape("qwen2", 896, 4864, 24, 14, 2, 64, 151936, True, 1e6, 1e-6),
    "qwen2.5-1.5b": shape("qwen2", 1536, 8960, 28, 12, 2, 128, 151936, True, 1e6, 1e-6),
    "qwen2.5-7b": shape("qwen2", 3584, 18944, 28, 28, 4, 128, 152064, False, 1e6, 1e-6),
    "llama-3.2-1b": shape("llama", 2048, 8192, 16, 32, 8, 64, 128256, True, 5e5, 1e-5,
                          rope_scaling=LLAMA3_ROPE),
    "qwen3-0.6b": shape("qwen3", 1024, 3072, 28, 16, 8, 128, 151936, True, 1e6, 1e-6),
    "tiny-llama": shape("llama", 128, 352, 4, 4, 2, 32, 512, False, 1e4, 1e-5),
    "tiny-qwen2": shape("qwen2", 128, 352, 4, 4, 2, 32, 512, True, 1e4, 1e-6),
    "tiny-qwen2-wide": shape("qwen2", 192, 512, 3, 6, 2, 32, 512, True, 1e4, 1e-6),
    "tiny-qwen3": shape("qwen3", 128, 352, 4, 4, 2, 64, 512, True, 1e6, 1e-6),
}
CLASSES = {"qwen2": "Qwen2ForCausalLM", "llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}


def quiet():
    """No warnings, and float32 that is float32."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False


def fail(text):
    """Ends a comparison that could not run."""
    print(f"{os.path.basename(sys.argv[0]).removesuffix('.py')}: {text}")
    sys.exit(2)


def work_dir(wanted, prefix, room):
    """A new folder: under `wanted`; else in memory where there are `room` bytes; else where TMPDIR
    says."""
    if wanted:
        os.makedirs(wanted, exist_ok=True)
    elif os.path.isdir("/dev/shm") and shutil.disk_usage("/dev/shm").free > room:
        wanted = "/dev/shm"
    return tempfile.mkdtemp(prefix=prefix, dir=wanted)


def parameters_of(name):
    """{weight: shape} of a shape's model, and the whole number of parameters."""
    config = {key: value for key, value in config_of(name).items() if key != "torch_dtype"}
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(**config))
    shapes = {key: tuple(parameter.shape) for key, parameter in model.named_parameters()}
    return shapes, sum(math.prod(dims) for dims in shapes.values())


def config_of(name):
    """NAME or NAME:LAYERS."""
    base, _, layers = name.partition(":")
    if base not in SHAPES:
        sys.exit(f"no shape '{base}'; there are {', '.join(SHAPES)}")
    config = dict(SHAPES[base], architectures=[CLASSES[SHAPES[base]["model_type"]]])
    if layers:
        config["num_hidden_layers"] = int(layers)
    return dict(config, initializer_range=0.6 * config["hidden_size"] ** -0.5,
                torch_dtype="bfloat16", attention_bias=False, mlp_bias=False,
                use_sliding_window=False)


def make_model(path, name, device, seed=1):
    """Writes config.json and model.safetensors."""
    os.makedirs(path)
    config = config_of(name)
    with open(os.path.join(path, "config.json"), "w") as file:
        json.dump(config, file, indent=2)
    generator = torch.Generator(device=device).manual_seed(seed)
    tensors = {}
    for key, dims in parameters_of(name)[0].items():
        values = torch.randn(dims, generator=generator, device=device)
        if key.endswith("norm.weight"):
            values = 1 + 0.1 * values
        elif key.endswith(".bias"):
            values *= 0.1
        else:
            values *= config["initializer_range"]
        tensors[key] = values.to(torch.bfloat16).cpu()
    save_file(tensors, os.path.join(path, "model.safetensors"), metadata={"format": "pt"})


def make_adapter(path, name, rank, alpha, scale_b, seed=2):
    """Writes an adapter on every linear layer in PEFT's format, float32: A as PEFT starts it, B
    normal with deviation `scale_b` (0: as PEFT starts it)."""
    os.makedirs(path)
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for key, dims in parameters_of(name)[0].items():
        module = key.removesuffix(".weight")
        if module.rpartition(".")[2] not in ALL_LINEAR or not key.endswith(".weight"):
            continue
        rows, cols = dims
        a = (2 * torch.rand((rank, cols), generator=generator) - 1) * cols ** -0.5
        b = torch.randn((rows, rank), generator=generator) * scale_b
        tensors[f"base_model.model.{module}.lora_A.weight"] = a.contiguous()
        tensors[f"base_model.model.{module}.lora_B.weight"] = b.contiguous()
    save_file(tensors, os.path.join(path, "adapter_model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(path, "adapter_config.json"), "w") as file:
        json.dump({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": alpha,
                   "lora_dropout": 0.0, "bias": "none", "target_modules": ALL_LINEAR,
                   "base_model_name_or_path": name, "inference_mode": False}, file, indent=2)


def start_init(bin_dir, *keys):
    return subprocess.Popen([os.path.join(bin_dir, "ebb"), "init", *keys], text=True,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish_init(process):
    errors = process.communicate()[1]
    if process.returncode != 0:
        fail("ebb init failed\n" + errors)


def run_init(bin_dir, *keys):
    finish_init(start_init(bin_dir, *keys))


def init_models(bin_dir, models):
    """Lets `ebb init` make each (folder, shape, seed), at the same time."""
    running = []
    for path, name, seed in models:
        with open(path + ".json", "w") as file:
            json.dump(config_of(name), file)
        running.append(start_init(bin_dir, f"config={path}.json", "dtype=bfloat16",
                                  f"seed={seed}", "output_dir=" + path))
    for process in running:
        finish_init(process)


def add_tokenizer(bin_dir, work, model_dir):
    """Training wants a tokenizer beside a model; records of ids do not use it."""
    other = os.path.join(work, "tokenizer")
    run_init(bin_dir, "config=tiny-llama", "tokenizer=bytes", "output_dir=" + other)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(other, name), model_dir)


def make_data(path, length, steps, again=False):
    """The project's own documentation with one token a byte, a record of `length` ids a step; with
    `again` it may begin again where it ends. Returns the ids [steps][length]."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    text = b""
    for name in sorted(glob.glob(os.path.join(here, "docs", "*.md"))):
        with open(name, "rb") as file:
            text += file.read()
    if not text or (len(text) < steps * length and not again):
        fail(f"docs/*.md has {len(text)} bytes, {steps} steps of {length} need {steps * length}")
    text *= -(-steps * length // len(text))
    records = [list(text[i * length : (i + 1) * length]) for i in range(steps)]
    with open(path, "w") as file:
        for ids in records:
            file.write(json.dumps({"input_ids": ids}) + "\n")
    return records


def load(model_dir, dtype, device, adapter_dir=None, wide=True):
    """transformers' model; with an adapter PEFT's, whose matrices stay float32 if `wide`, and else
    are as the model's."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        model_dir, dtype=dtype, attn_implementation="sdpa", device_map={"": device})
    model.config.use_cache = False
    if adapter_dir:
        import peft

        model = peft.PeftModel.from_pretrained(model, adapter_dir, is_trainable=True,
                                               autocast_adapter_dtype=wide)
    return model.train()


def trained(model):
    """Trained parameters under the names of the model's files, or of PEFT's."""
    return {key.replace(".default.", "."): parameter
            for key, parameter in model.named_parameters() if parameter.requires_grad}


def release(device):
    if device == "cuda":
        torch.cuda.empty_cache()


def versions():
    import platform

    found = {"python": platform.python_version(), "torch": torch.__version__,
             "transformers": transformers.__version__}
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
        found["cudnn"] = torch.backends.cudnn.version()
    return ", ".join(f"{key} {value}" for key, value in found.items())
