#!/usr/bin/env python3
"""One mode of bench/peers/sweep.py: a model is made once, then trained at one length after another.

    python3 bench/peers/worker.py TASK.json

The task is torch_side.py's, with mode, lengths (ascending), steps (of each length), seed and peers,
a folder for sys.path, or null. What comes out are lines of JSON on stdout, each an object with
`say`: "lacking" (`why`: no mode could run here), "without" (`why`: this one cannot), "ready"
(device, device_bytes, driver, versions), then for each length "point" (`point`, as results.json has
one, and `process_bytes`: how those were counted) or, the last, "ended" (`reason`, `status`).
Whatever else is printed goes to stderr.

Memory of a point is its own: before it all that the last one left is freed, the allocator's cache
too, and adapters are as they were at first (of a model that is trained whole the weights go on).
`process_device_bytes` is the process at its largest: what the driver counts after the steps, with
what the allocator had reserved at most in place of what it has then. The driver's number is that of
nvidia-smi for this process, or for the only one where it lists that under another number, as it may
in a container; where it lists none, the GPU's used memory less what was used before this process
had opened it. Where there is no nvidia-smi it is not known.
SPDX-License-Identifier: Apache-2.0
"""

import gc
import importlib
import json
import math
import os
import subprocess
import sys
from statistics import median

import torch_side

MIB = 2**20


class Lacking(Exception):
    """Something that every mode needs is not here."""


def ask_driver(about, *cells):
    """Rows of these cells of `nvidia-smi --query-ABOUT`; none where it does not tell."""
    try:
        done = subprocess.run(["nvidia-smi", f"--query-{about}={','.join(cells)}",
                               "--format=csv,noheader,nounits"],
                              capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if done.returncode:
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines()]
    return [row for row in rows if len(row) == len(cells)]


def bytes_of(cell):
    return int(cell) * MIB if cell.isdigit() else None  # "[N/A]" in some containers


class Gpu:
    """What the driver says of the GPU; made before torch opens it."""

    def __init__(self):
        rows = ask_driver("gpu", "uuid", "memory.used", "driver_version")
        self.before = {row[0]: bytes_of(row[1]) for row in rows}
        self.driver = rows[0][2] if rows else None
        self.uuid = None

    def process_bytes(self, least):
        """(bytes of this process, how they were counted), or (None, why not); it has `least`"""
        rows = ask_driver("compute-apps", "gpu_uuid", "pid", "used_memory")
        listed = [row for row in rows if row[0] == self.uuid]
        own = [row for row in listed if row[1] == str(os.getpid())]
        counted = bytes_of((own or listed)[0][2]) if len(own or listed) == 1 else None
        if counted is not None and counted >= least:
            how = "" if own else ", the only one it lists"
            return counted, "nvidia-smi's for the process" + how
        now = {uuid: bytes_of(used) for uuid, used in ask_driver("gpu", "uuid", "memory.used")}
        then, now = self.before.get(self.uuid), now.get(self.uuid)
        if then is None or now is None or now - then < least:
            return None, "not known: nvidia-smi does not tell"
        return now - then, "nvidia-smi's used memory of the GPU, less what was used before"


def processor():
    try:
        with open("/proc/cpuinfo") as file:
            parts = [line.partition(":") for line in file]
    except OSError:
        parts = []
    return next((text.strip() for key, _, text in parts if key.strip() == "model name"), "CPU")


def open_device(task, gpu):
    """What "ready" says of the machine."""
    try:
        import torch
        for name in ("transformers", "peft")[:1 if task["full"] else 2]:
            importlib.import_module(name)
    except ImportError as error:
        raise Lacking(str(error)) from error
    if task["device"] == "cpu":
        return {"device": processor()}
    if not torch.cuda.is_available():
        raise Lacking("torch finds no GPU")
    gpu.uuid = f"GPU-{getattr(torch.cuda.get_device_properties(0), 'uuid', None)}"
    return {"device": torch.cuda.get_device_name(0), "driver": gpu.driver,
            "device_bytes": torch.cuda.mem_get_info(0)[1]}


def what_is_missing(task, parts, missing):
    """Why the mode cannot run as it is named; "": it can."""
    if missing:
        return missing[0]
    if "liger" in parts:  # it passes over what it does not know without a word
        family = task["config"]["model_type"]
        patch = importlib.import_module("liger_kernel.transformers.monkey_patch")
        if family not in getattr(patch, "MODEL_TYPE_TO_APPLY_LIGER_FN", [family]):
            return f"no liger: it has no kernels for {family}"
    return ""


def free(torch, cuda):
    gc.collect()
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        getattr(torch._C, "_host_emptyCache", lambda: None)()  # pinned memory of the hooks
        torch.cuda.reset_peak_memory_stats()


def measure(task, side, gpu, length, steps):
    """(the point, how the process's bytes were counted)"""
    torch, cuda = side.torch, task["device"] == "cuda"
    free(torch, cuda)
    ids = torch.randint(side.base.config.vocab_size, (steps, length),
                        generator=torch.Generator().manual_seed(task["seed"]))
    seconds, losses = side.train(ids.tolist())
    step = median(seconds[1:] or seconds)
    point = {"length": length, "step_seconds": step, "tokens_per_second": length / step,
             "loss": losses[-1] if math.isfinite(losses[-1]) else None}
    if not cuda:
        return point, "none: a CPU has no driver that counts"
    point["peak_device_bytes"] = torch.cuda.max_memory_allocated()
    process, how = gpu.process_bytes(torch.cuda.memory_reserved())
    if process is not None:
        process += torch.cuda.max_memory_reserved() - torch.cuda.memory_reserved()
        point["process_device_bytes"] = process
    return point, how


def work(task, hooks, parts, gpu, say):
    import torch

    side = torch_side.Side(task, parts, hooks, torch)
    first = [] if task["full"] else [weight.detach().to("cpu", copy=True)
                                     for weight in side.trained]
    for length, steps in zip(task["lengths"], task["steps"]):
        with torch.no_grad():
            for weight, begin in zip(side.trained, first):
                weight.copy_(begin)
        point, how = measure(task, side, gpu, length, steps)
        say("point", point=point, process_bytes=how)


def end_of(error):
    """(reason, status) of a series that ends with it"""
    text = str(error).partition("\n")[0].strip()
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in text:
        return "out of host memory", "does not fit"
    if type(error).__name__ == "OutOfMemoryError" or "ALLOC_FAILED" in text:
        return "out of device memory", "does not fit"
    if "out of memory" in text:  # CUDA says the same of pinned memory
        return "out of memory", "does not fit"
    return f"{type(error).__name__}: {text[:160]}".rstrip(": "), "failed"


def main():
    with open(sys.argv[1]) as file:
        task = json.load(file)
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what others print is not for our reader

    def say(what, **more):
        print(json.dumps(dict(say=what, **more)), file=lines, flush=True)

    if task["peers"]:
        sys.path.insert(0, task["peers"])
    gpu = Gpu() if task["device"] == "cuda" else None
    try:
        machine = open_device(task, gpu)
    except Lacking as error:
        return say("lacking", why=str(error))
    parts, hooks, missing = torch_side.parts_that_run(task["mode"], task["device"] == "cuda")
    why = what_is_missing(task, parts, missing)
    if why:
        return say("without", why=why)
    say("ready", versions=torch_side.versions(), **machine)
    try:
        work(task, hooks, parts, gpu, say)
    except Exception as error:  # each ends the series, and others' packages fail in many ways
        sys.excepthook(*sys.exc_info())
        reason, status = end_of(error)
        say("ended", reason=reason, status=status)
    return None


if __name__ == "__main__":
    main()
