#!/usr/bin/env python3
"""The sweep of `ebb bench` by PyTorch, transformers and PEFT, into the same results.json.

    python3 bench/peers/sweep.py SHAPE|CONFIG.json [--lengths 1k:128k:x2] [--modes LIST] [--full]
                                 [--steps N] [--long-steps N] [--output DIR] [--overwrite]
                                 [--peers DIR] [--python PATH] [--device cuda|cpu] [--limit S]

SHAPE is a name that `ebb init` knows (configs/shapes), CONFIG.json a model's. --lengths are written
as in `ebb bench --sweep length=...`. A mode names PyTorch's parts, joined with "+": ac (layers
checkpointed), liger, trl or tune (TRL's or torchtune's hooks move what is saved to the host), or
plain. DIR of --peers is that of bench/gpu.py. A mode of which a part is missing is left out.

What is trained is what `ebb bench MODEL use_peft=true dtype=bfloat16` trains: one row of random ids
a step, loss over every token but the first, AdamW with Ebb's learning rates, gradients clipped to a
norm of 1; LoRA of rank 16 on every linear layer, or with --full every weight. The first step of a
point is a warm-up, the median of the others its time. It is not the same in this: the ids are
other random ones; PyTorch's adapters are bfloat16 and Ebb's float32; with --full PyTorch has
float32 parameters under autocast, Ebb bfloat16 ones with float32 masters; Ebb evaluates before it
trains, and starts a process for each point. Here a mode has one process, which makes the model once
and goes through the lengths from the shortest on (worker.py, which also says how the process's
memory is counted). --long-steps are those of points from 64k on; --limit is in seconds, for one
point, the first of a mode with its start.

Each point is in DIR/results.json (by default peers-MODEL) as soon as it is measured, and what the
processes say in sweep.log beside it. The same command goes on after an interruption; a series that
has ended is not tried again. `ebb plot` draws the file, alone or beside that of `ebb bench`.
Exit 0: there are points; 1: none; 2: something is missing, or the file holds another sweep.
SPDX-License-Identifier: Apache-2.0
"""

import argparse
import contextlib
import datetime
import hashlib
import json
import os
import queue
import shlex
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
SHAPES = os.path.join(os.path.dirname(os.path.dirname(HERE)), "configs", "shapes")
PARTS = {"ac": "checkpointing", "liger": "Liger", "trl": "TRL offloading",
         "tune": "torchtune offloading"}
MODES = "plain,liger,ac+liger,ac+liger+trl"
LENGTHS, MOST, LONG, SEED = (2, 2**27), 64, 65536, 42  # MOST: of lengths


class Stop(Exception):
    """What keeps the whole sweep from going on: said in one line, exit code 2."""


# ---- Lengths and modes ---------------------------------------------------------------------------


def length_of(word):
    """Tokens: 1536, 1k, 1.5k, 1M."""
    factor = {"k": 1024, "m": 1048576}.get(word[-1:].lower(), 1)
    try:
        value = float(word[:-1] if factor > 1 else word) * factor
    except ValueError:
        value = 0.5
    if value != value or value in (float("inf"), -float("inf")) or value != int(value):
        raise Stop(f"'{word}' is no length in tokens (k is 1024)")
    if not LENGTHS[0] <= value <= LENGTHS[1]:
        raise Stop(f"'{word}' is out of range: wanted {LENGTHS[0]} to {LENGTHS[1]} tokens")
    return int(value)


def range_of(words):
    """FIRST:LAST:xFACTOR or FIRST:LAST:+MORE"""
    first, last, factor, more = length_of(words[0]), length_of(words[1]), 1.0, 0
    if words[2].startswith("+"):
        more = length_of(words[2][1:])
    else:
        with contextlib.suppress(ValueError):
            factor = float(words[2][1:]) if words[2].startswith("x") else 0.0
        if not 1 < factor <= 1024:
            raise Stop(f"'{words[2]}' is no step: wanted x and a factor above 1 (x2), or + and "
                       "what is added")
    if last < first:
        raise Stop("the last value is below the first")
    values = [first]
    while values[-1] < last and len(values) <= MOST:
        values.append(max(int(values[-1] * factor + more), values[-1] + 1))
    return [value for value in values if value <= last]


def lengths_of(text):
    """In ascending order; what `ebb bench` reads behind length=, and that itself."""
    values = []
    for word in filter(None, map(str.strip, text.removeprefix("length=").split(","))):
        words = word.split(":")
        if len(words) not in (1, 3):
            raise Stop(f"'{word}': a range is FIRST:LAST:STEP")
        values += range_of(words) if len(words) == 3 else [length_of(word)]
    double = [value for value in values if values.count(value) > 1]
    if double:
        raise Stop(f"{double[0]} is there twice")
    if len(values) > MOST:
        raise Stop(f"there are more than {MOST} lengths")
    if not values:
        raise Stop("there are no lengths")
    return sorted(values)


def modes_of(text):
    """Names with their parts in one order."""
    modes = []
    for word in filter(None, map(str.strip, text.split(","))):
        parts = word.split("+")
        wrong = [part for part in parts if part not in PARTS and word != "plain"]
        if wrong:
            raise Stop(f"there is no mode '{word}': wanted plain, or of {', '.join(PARTS)} some, "
                       "joined with +")
        if len(set(parts)) < len(parts) or {"trl", "tune"} <= set(parts):
            raise Stop(f"'{word}' has one part twice, or two that move the same")
        modes.append("+".join(part for part in [*PARTS, "plain"] if part in parts))
    double = [mode for mode in modes if modes.count(mode) > 1]
    if double or not modes:
        raise Stop(f"--modes has {double[0]} twice" if double else "--modes names none")
    return modes


def series_name(mode):
    """What the legend calls it: "PyTorch, checkpointing + Liger, TRL offloading"."""
    parts = mode.split("+")
    texts = [" + ".join(PARTS[part] for part in parts if part in ("ac", "liger"))]
    texts += [PARTS[part] for part in parts if part in ("trl", "tune")]
    return ", ".join(["PyTorch", *filter(None, texts)])


# ---- results.json --------------------------------------------------------------------------------


def setting_of(args, text):
    method = ("every weight, float32 under autocast to bfloat16" if args.full else
              "LoRA of rank 16 and alpha 32 on every linear layer, adapters in bfloat16")
    return {"data": "random token ids", "steps": args.steps, "long_steps": args.long_steps,
            "warm_up_steps": int(args.steps > 1), "method": method, "micro_batch": 1,
            "optimizer": f"AdamW, learning rate {rate_of(args):g}, no weight decay, gradients "
                         "clipped to a norm of 1",
            "models": {args.model: {"config": hashlib.sha256(text).hexdigest()[:16],
                                    "weights": "random"}}}


def refuse(path, key, was, now):
    raise Stop(f"'{path}' holds another sweep: {key} was {was} there and is {now} now "
               "(--overwrite measures all of it anew, --output names another folder)")


class Results:
    """The file: opened, compared, added to."""

    def __init__(self, args, text):
        self.path = os.path.join(args.output, "results.json")
        self.setting, kept = setting_of(args, text), None
        if os.path.exists(self.path) and not args.overwrite:
            kept = self.read()
        title = "every weight" if args.full else "LoRA of rank 16"
        self.data = kept or {"format": "ebb results", "version": 1, "kind": "length",
                             "title": f"{args.model}: {title}", "machine": {}, "series": []}
        self.data.setdefault("machine", {}).update(
            date=str(datetime.date.today()),
            command=shlex.join(["python3", "bench/peers/sweep.py", *sys.argv[1:]]))
        self.data["setting"] = {"versions": {}, **self.data.get("setting", {}), **self.setting}
        self.model = args.model

    def read(self):
        try:
            with open(self.path) as file:
                kept = json.load(file)
            was = kept["setting"]
            if (kept["format"], kept["version"], kept["kind"]) != ("ebb results", 1, "length"):
                raise KeyError
            if any(not series["mode"] for series in kept["series"]) or "versions" not in was:
                raise KeyError
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Stop(f"'{self.path}' was not written by this script (--overwrite writes over it, "
                       "--output names another folder)") from error
        for key, value in self.setting.items():
            if was.get(key) != value:
                refuse(self.path, key, json.dumps(was.get(key)), json.dumps(value))
        return kept

    def met(self, ready):
        """Takes the machine and versions in; Stop where points were made by others."""
        machine, versions = self.data["machine"], self.data["setting"]["versions"]
        if machine.get("device", ready["device"]) != ready["device"]:
            refuse(self.path, "the device", machine["device"], ready["device"])
        for name in versions.keys() & ready["versions"].keys():
            if versions[name] != ready["versions"][name]:
                refuse(self.path, name, versions[name], ready["versions"][name])
        versions.update(ready["versions"])
        for key in ("device", "device_bytes", "driver"):
            if ready.get(key):
                machine[key] = ready[key]

    def series(self, mode, make=False):
        for series in self.data["series"]:
            if series["mode"] == mode:
                return series
        series = {"name": series_name(mode), "model": self.model, "mode": mode, "peer": True,
                  "points": []}
        if make:
            self.data["series"].append(series)
        return series

    def due(self, mode, lengths):
        series = self.series(mode)
        done = {point["length"] for point in series["points"]}
        end = (series.get("ended") or {}).get("length", float("inf"))
        return [length for length in lengths if length not in done and length < end]

    def add(self, mode, point):
        """Without what is not known."""
        points = self.series(mode, make=True)["points"]
        points.append({key: value for key, value in point.items() if value is not None})
        points.sort(key=lambda one: one["length"])
        self.save()

    def end(self, mode, length, reason, status):
        self.series(mode, make=True)["ended"] = {"length": length, "reason": reason,
                                                 "status": status}
        self.save()

    def save(self):
        with tempfile.NamedTemporaryFile("w", dir=os.path.dirname(self.path), delete=False) as file:
            json.dump(self.data, file, indent=1)
            file.write("\n")
        os.chmod(file.name, 0o644)
        os.replace(file.name, self.path)


# ---- Text ----------------------------------------------------------------------------------------


def size_text(count):
    if count is None:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.4g} {unit}"
        count /= 1024
    return None


def time_text(seconds):
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def table(results, modes):
    """Lines: each mode's points, then where modes ended."""
    rows = [results.series(mode) for mode in modes]
    titles = ["length", "peak", "process", "step", "tokens/s", "loss"]
    lines = [results.data["title"], "".join(f"{title:>12}" for title in titles)]
    for series in rows:
        lines += [series["name"]] * bool(series["points"])
        for point in series["points"]:
            loss = point.get("loss")
            cells = [str(point["length"]), size_text(point.get("peak_device_bytes")),
                     size_text(point.get("process_device_bytes")),
                     f"{point['step_seconds']:.4g} s", f"{point['tokens_per_second']:.0f}",
                     "-" if loss is None else f"{loss:.4f}"]
            lines.append("".join(f"{cell:>12}" for cell in cells))
    for series in rows:
        end = series.get("ended")
        if end:
            what = "failed" if end["status"] == "failed" else "stops fitting"
            lines.append(f"{series['name']} {what} at {end['length']} tokens: {end['reason']}")
    return lines


# ---- Running -------------------------------------------------------------------------------------


def rate_of(args):
    return 2e-5 if args.full else 2e-4


class Sweep:
    def __init__(self, args, config, results):
        self.args, self.config, self.results = args, config, results
        self.left = {mode: results.due(mode, args.lengths) for mode in args.modes}
        self.due, self.done = sum(map(len, self.left.values())), 0

    def steps_of(self, length):
        return self.args.long_steps if length >= LONG else self.args.steps

    def seconds_of(self, length):
        """About what a point takes, by those there are; None: there are none."""
        known = [(abs(point["length"] - length), point) for series in self.results.data["series"]
                 for point in series["points"]]
        if not known:
            return None
        near = min(known, key=lambda pair: pair[0])[1]
        return near["step_seconds"] * length / near["length"] * self.steps_of(length)

    def tell(self, mode, length, what):
        times = [self.seconds_of(one) for lengths in self.left.values() for one in lengths]
        left = f"; about {time_text(sum(times))} left" if times and None not in times else ""
        print(f"{self.done}/{self.due}  {self.args.model}, {series_name(mode)}, {length} tokens: "
              f"{what}{left}", file=sys.stderr, flush=True)

    def task(self, mode):
        args, lengths = self.args, self.left[mode]
        return {"mode": mode, "config": self.config, "device": args.device, "full": args.full,
                "rate": rate_of(args), "lengths": list(lengths), "seed": SEED,
                "steps": [self.steps_of(length) for length in lengths],
                "peers": args.peers and os.path.abspath(args.peers)}

    def end(self, mode, reason, status):
        """The series ends at the first length that is due; what was due behind it is over too."""
        length, over = self.left[mode][0], len(self.left[mode])
        self.results.end(mode, length, reason, status)
        self.left[mode] = []
        self.done += over
        self.tell(mode, length, reason)

    def take(self, mode, message):
        """A line of the worker's; True where nothing comes behind it."""
        say = message["say"]
        if say == "lacking":
            raise Stop(f"{self.args.python} lacks what PyTorch's side needs: {message['why']} "
                       "(--python PATH names another)")
        if say == "ready":
            self.results.met(message)
        elif say == "point":
            self.left[mode].pop(0)
            self.done += 1
            point = message["point"]
            self.results.data["setting"]["process_device_bytes"] = message["process_bytes"]
            self.results.add(mode, point)
            size = size_text(point.get("process_device_bytes", point.get("peak_device_bytes")))
            self.tell(mode, point["length"], f"{size}, {point['tokens_per_second']:.0f} tokens/s")
        elif say == "ended":
            self.end(mode, message["reason"], message["status"])
        else:
            self.leave_out(mode, message["why"])
        return say in ("ended", "without") or not self.left[mode]

    def leave_out(self, mode, why):
        self.due -= len(self.left[mode])
        self.left[mode] = []
        print(f"{series_name(mode)} is left out: {why}", file=sys.stderr, flush=True)

    def run(self, mode, log):
        """Starts the mode's process and takes what it says, until it or its time is over."""
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(self.task(mode), file)
            file.flush()
            command = [self.args.python, os.path.join(HERE, "worker.py"), file.name]
            environment = dict(os.environ, HF_HUB_OFFLINE="1")
            environment.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
            begin = log.tell()
            try:
                process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True,
                                           env=environment)
            except OSError as error:
                raise Stop(f"{self.args.python}: {error.strerror}") from error
            try:
                ready, over = self.listen(mode, process)
            finally:
                process.kill()  # no effect where it has ended
                code = process.wait()
        if over or not self.left[mode]:
            return
        log.seek(begin)
        said = [line for line in log.read().splitlines() if line.strip()] or ["nothing said"]
        if code == -9:
            self.end(mode, "killed by signal 9, as systems do that are out of memory", "killed")
        elif ready:
            self.end(mode, f"exit {code}: {said[-1].strip()[:160]}", "failed")
        else:
            self.leave_out(mode, f"exit {code}: {said[-1].strip()[:160]}")

    def listen(self, mode, process):
        """(it said "ready", nothing more is to be said of the mode)"""
        lines, ready = queue.Queue(), False

        def pump():
            for line in process.stdout:
                lines.put(line)
            lines.put(None)

        threading.Thread(target=pump, daemon=True).start()
        while True:
            try:
                line = lines.get(timeout=self.args.limit)
            except queue.Empty:
                why = f"more than {self.args.limit:g} s"
                if ready:
                    self.end(mode, why, "failed")
                else:
                    self.leave_out(mode, why)
                return ready, True
            if line is None:
                process.wait()
                return ready, False
            try:
                message = json.loads(line)
            except ValueError:  # the end of a process that was killed while it wrote
                continue
            if self.take(mode, message):
                return ready, True
            ready = ready or message["say"] == "ready"

    def run_all(self):
        with open(os.path.join(self.args.output, "sweep.log"), "a+") as log:
            for mode in self.args.modes:
                if self.left[mode]:
                    self.run(mode, log)


# ---- Start ---------------------------------------------------------------------------------------


def read_config(args):
    """The model's name, and its config.json as bytes and as transformers takes it."""
    path = args.config if os.sep in args.config or args.config.endswith(".json") else (
        os.path.join(SHAPES, args.config + ".json"))
    if os.path.isdir(path):
        path = os.path.join(path, "config.json")
    try:
        with open(path, "rb") as file:
            text = file.read()
        config = json.loads(text)
        if not isinstance(config["model_type"], str):
            raise ValueError
    except OSError as error:
        names = ", ".join(sorted(name[:-5] for name in os.listdir(SHAPES)))
        raise Stop(f"{path}: {error.strerror} (shapes: {names})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise Stop(f"{path} is no config.json of a model") from error
    for key in ("torch_dtype", "dtype", "architectures", "transformers_version"):
        config.pop(key, None)
    stem, folder = os.path.splitext(os.path.basename(path))[0], os.path.dirname(path)
    args.model = os.path.basename(os.path.abspath(folder)) if stem == "config" else stem
    return text, config


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("config", metavar="SHAPE|CONFIG.json")
    parser.add_argument("--lengths", default="1k:128k:x2", help="1k:128k:x2, 1k:16k:+1k or 1k,3k")
    parser.add_argument("--modes", default=MODES, help=f"with commas between (default: {MODES})")
    parser.add_argument("--full", action="store_true", help="train every weight")
    parser.add_argument("--steps", type=int, default=5, help="of a point, the first untimed")
    parser.add_argument("--long-steps", type=int, help="of points from 64k on (default: as others)")
    parser.add_argument("--output", metavar="DIR", help="default: peers-MODEL")
    parser.add_argument("--overwrite", action="store_true", help="measure all of it anew")
    parser.add_argument("--peers", metavar="DIR", help="folder with Liger's package and the hooks")
    parser.add_argument("--python", default=sys.executable, metavar="PATH",
                        help="the interpreter that has torch (default: this one)")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--limit", type=float, default=900, help="seconds for a point")
    args = parser.parse_args()
    args.long_steps = args.long_steps or args.steps
    if min(args.steps, args.long_steps) < 1 or args.limit <= 0:
        parser.error("--steps, --long-steps and --limit are above 0")
    args.lengths, args.modes = lengths_of(args.lengths), modes_of(args.modes)
    return args


def main():
    try:
        args = arguments()
        text, config = read_config(args)
        args.output = args.output or f"peers-{args.model}"
        os.makedirs(args.output, exist_ok=True)
        results = Results(args, text)
        Sweep(args, config, results).run_all()
    except Stop as error:
        print(f"bench/peers/sweep.py: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"bench/peers/sweep.py: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", file=sys.stderr)
        return 130
    if not any(results.series(mode)["points"] for mode in args.modes):
        print("no point was measured", file=sys.stderr)
        return 1
    print("\n".join([*table(results, args.modes), results.path]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
