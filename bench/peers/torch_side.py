"""PyTorch's side of a comparison: a model of transformers and PEFT, and how it is trained.

bench/gpu.py and bench/peers/sweep.py use it, in processes of their own. torch is imported by them
and handed in, or when a function needs it: what a machine lacks is theirs to tell. The weights are
random and made on the device; SDPA, fused AdamW without weight decay, gradients clipped to a norm
of 1, bfloat16 throughout. LoRA: rank 16 on every linear layer, in bfloat16 too. Where every weight
is trained ("full") parameters and moments are float32, under autocast to bfloat16.

A task is a dict: device ("cuda" or "cpu"), config (of config.json, as transformers names it), full,
rate (of learning). A mode is a list of parts, joined with "+": ac (layers checkpointed), liger (its
kernels and fused loss; else the loss is made in chunks), trl (TRL's hooks move what is saved to the
host), tune (torchtune's), or plain. On sys.path: liger_kernel/, trl_offload.py (TRL's
trl/models/activation_offloading.py), tune_offload.py (torchtune's
training/_activation_offloading.py).
SPDX-License-Identifier: Apache-2.0
"""

import contextlib
import importlib
import importlib.metadata
import logging
import sys
import time
import types
from unittest import mock

CHUNK, RANK, ALPHA = 2048, 16, 32


def torchtune_hooks():
    """What their module imports and does not need here stands empty while it loads."""
    empty, log = type("Empty", (), {}), logging.getLogger("torchtune")
    needs = {"torchao": {"__version__": "0.17.0"}, "torchao.quantization": {"NF4Tensor": empty},
             "torchao.dtypes": {}, "torchao.dtypes.nf4tensor": {"NF4Tensor": empty},
             "torchtune": {}, "torchtune.modules": {"TiedLinear": empty},
             "torchtune.utils": {"get_logger": lambda *_: log}}
    modules = {name: types.ModuleType(name) for name in needs}
    for name, module in modules.items():
        vars(module).update(needs[name])
    with mock.patch.dict(sys.modules, modules):
        return importlib.import_module("tune_offload")


def trl_hooks():
    from accelerate import PartialState

    PartialState()  # TRL's log wants it
    return importlib.import_module("trl_offload")


def parts_that_run(mode, cuda):
    """(what of a mode runs here, the hooks' module or None, what is missing and why)"""
    loads = {"liger": lambda: importlib.import_module("liger_kernel.transformers"),
             "trl": trl_hooks, "tune": torchtune_hooks}
    wanted, found, hooks, missing = mode.split("+"), [], None, []
    for part in wanted:
        try:
            if part in loads:
                if not cuda:
                    raise ImportError("it needs a GPU")
                module = loads[part]()
                hooks = hooks if part == "liger" else module
            found.append(part)
        except Exception as error:  # others' packages fail in many ways
            missing.append(f"no {part}: {str(error).partition(chr(10))[0][:80]}")
            if part == "trl" and cuda:
                wanted.append("tune")
    return found or ["plain"], hooks, missing


def build(task, parts, torch):
    """(the model with its adapters, the model below them)"""
    import transformers

    transformers.logging.set_verbosity_error()
    dtype = torch.float32 if task["full"] else torch.bfloat16
    config = transformers.AutoConfig.for_model(**task["config"])
    config.use_cache = False
    torch.manual_seed(0)
    with torch.device(task["device"]):
        model = base = transformers.AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation="sdpa")
        if not task["full"]:
            import peft

            model = peft.get_peft_model(base, peft.LoraConfig(
                r=RANK, lora_alpha=ALPHA, target_modules="all-linear", task_type="CAUSAL_LM"),
                autocast_adapter_dtype=False)
    for name, weight in model.named_parameters():
        if weight.dtype != dtype or weight.device.type != task["device"]:
            raise RuntimeError(f"{name} is {weight.dtype} on {weight.device}, {dtype} was wanted")
    if "ac" in parts:
        base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if "liger" in parts:
        from liger_kernel.transformers import _apply_liger_kernel_to_instance as apply

        apply(model=base, cross_entropy=False, fused_linear_cross_entropy=False)
    return model.train(), base


def loss_of(hidden, head, targets, liger):
    """The mean cross-entropy: Liger's, or a chunk's logits at a time, made again for backward."""
    if liger:
        from liger_kernel.ops.fused_linear_cross_entropy import (
            LigerFusedLinearCrossEntropyFunction as Fused)

        result = Fused.apply(hidden, head, targets)
        return result[0] if isinstance(result, tuple) else result
    from torch.nn.functional import cross_entropy, linear
    from torch.utils.checkpoint import checkpoint

    def part(rows, wanted):
        return cross_entropy(linear(rows, head).float(), wanted, reduction="sum")

    pieces = zip(hidden.split(CHUNK), targets.split(CHUNK))
    return sum(checkpoint(part, *piece, use_reentrant=False) for piece in pieces) / len(targets)


class Side:
    """A model with what trains it, for steps of any length."""

    def __init__(self, task, parts, hooks, torch):
        self.torch, self.parts, self.hooks = torch, parts, hooks
        self.device, self.rate = task["device"], task["rate"]
        self.model, self.base = build(task, parts, torch)
        self.trained = [weight for weight in self.model.parameters() if weight.requires_grad]
        none = contextlib.nullcontext()
        self.lower = torch.autocast(self.device, torch.bfloat16) if task["full"] else none

    def offload(self):
        offload = self.hooks.OffloadActivations() if self.hooks else contextlib.nullcontext()
        if hasattr(offload, "update_model_params"):
            offload.update_model_params(self.model)
        return offload

    def forward(self, offload, ids):
        """The loss over every token but the first, of ids [1, T]."""
        with self.lower:
            with offload:
                hidden = self.base.model(input_ids=ids).last_hidden_state[0]
            return loss_of(hidden[:-1], self.base.lm_head.weight, ids[0, 1:],
                           "liger" in self.parts)

    def train(self, records):
        """Seconds and losses of a step for each record of ids, the optimizer's state made anew."""
        torch, cuda, seconds, losses = self.torch, self.device == "cuda", [], []
        optimizer = torch.optim.AdamW(self.trained, lr=self.rate, weight_decay=0, fused=cuda)
        offload = self.offload()
        wait = torch.cuda.synchronize if cuda else lambda: None
        records = [torch.tensor([ids], device=self.device) for ids in records]
        for ids in records:
            wait()
            start = time.perf_counter()
            loss = self.forward(offload, ids)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
            del loss  # else it is there while the next step's is made
            wait()
            seconds.append(time.perf_counter() - start)
        return seconds, losses


def versions():
    """By name, of what is installed; "cuDNN" where torch has one."""
    import torch

    found = {"torch": torch.__version__}
    if torch.backends.cudnn.is_available():
        found["cuDNN"] = str(torch.backends.cudnn.version())
    for name in ("transformers", "peft", "liger_kernel", "trl", "torchtune"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
