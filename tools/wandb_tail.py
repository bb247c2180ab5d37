#!/usr/bin/env python3
"""Sends a run's metrics.jsonl to Weights & Biases, while the run goes on or when it is over.

    python tools/wandb_tail.py OUTPUT_DIR [--project NAME] [--entity NAME] [--name NAME]
                               [--once] [--every SECONDS] [--new]

OUTPUT_DIR is what the run was given as output_dir; it may not be there yet. The script ends when
the run does (run.json says so) or with --once after what is there; Ctrl-C ends it at any time. Run
it again, for instance when the run is resumed, and it goes on with the same W&B run behind the last
step that it sent: OUTPUT_DIR/wandb_tail.json remembers both. --new begins another W&B run.

Numbers have transformers' names (train/loss, eval/loss), against train/global_step; run.json's
configuration, machine and versions are the W&B run's config. wandb's own settings count: `wandb
login`, WANDB_PROJECT, WANDB_MODE=offline (each start of the script then makes a folder in wandb/,
which `wandb sync --append` sends).

Needs wandb, and Python 3.8 or later. Exit 0: sent; 2: bad arguments or files; 130: Ctrl-C.
SPDX-License-Identifier: Apache-2.0
"""

import argparse
import json
import os
import sys
import time

STATE = "wandb_tail.json"


def fail(text):
    print(f"wandb_tail: {text}", file=sys.stderr)
    sys.exit(2)


def read_json(path):
    """The object in a file that Ebb replaces as a whole; None where there is none yet."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None
    except ValueError as error:
        fail(f"{path}: {error}")


def first_start(run_json):
    sessions = (run_json or {}).get("sessions") or [{}]
    return sessions[0].get("started")


def is_over(run_json):
    sessions = (run_json or {}).get("sessions") or []
    return bool(sessions) and sessions[-1].get("ended") is not None


def numbers_of(record):
    """(kind, {name: number}); kind None: nothing of it is a number to draw."""
    kind = "train" if "loss" in record else "eval" if "eval_loss" in record else None
    named = {"train/global_step": record["step"]}
    for key, value in record.items():
        if key == "step" or isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        named["eval/" + key[5:] if key.startswith("eval_") else "train/" + key] = value
    return kind, named


class Tail:
    """Whole lines of a file that grows; from the start again where it was replaced or cut."""

    def __init__(self, path):
        self.path, self.place, self.inode, self.rest = path, 0, None, b""

    def records(self):
        try:
            file = open(self.path, "rb")
        except FileNotFoundError:
            return
        with file:
            info = os.fstat(file.fileno())
            if info.st_ino != self.inode or info.st_size < self.place:
                self.place, self.inode, self.rest = 0, info.st_ino, b""
            file.seek(self.place)
            for line in file:
                self.place += len(line)
                self.rest += line
                if not self.rest.endswith(b"\n"):
                    continue  # its end is not written yet
                whole, self.rest = self.rest, b""
                try:
                    yield json.loads(whole)
                except ValueError as error:
                    fail(f"{self.path}: {error}")


class Sender:
    """The W&B run and what it has: the last step of either kind."""

    def __init__(self, folder, run_json, args):
        self.path = os.path.join(folder, STATE)
        self.start = first_start(run_json)
        state = None if args.new else read_json(self.path)
        if state and state.get("started") != self.start:
            state = None  # another run is in this folder now
        self.last = (state or {}).get("last", {"train": -1, "eval": -1})
        import wandb

        keep = ("command", "base_model", "config", "machine", "versions", "numerics")
        self.run = wandb.init(
            id=state["id"] if state else None,
            resume="allow" if state else None,
            project=args.project or os.environ.get("WANDB_PROJECT") or "ebb",
            entity=args.entity,
            name=args.name or os.path.basename(os.path.abspath(folder)),
            config={key: run_json[key] for key in keep if key in run_json},
        )
        self.run.define_metric("train/global_step")
        self.run.define_metric("*", step_metric="train/global_step", step_sync=True)

    def send(self, record):
        kind, named = numbers_of(record)
        if kind is None or record["step"] <= self.last[kind]:
            return 0  # a resumed run makes steps again, with the same numbers
        self.run.log(named)
        self.last[kind] = record["step"]
        return 1

    def save(self):
        state = {"id": self.run.id, "started": self.start, "last": self.last}
        with open(self.path + ".tmp", "w", encoding="utf-8") as file:
            json.dump(state, file)
        os.replace(self.path + ".tmp", self.path)

    def close(self, run_json):
        for key in ("result", "total_steps"):
            if run_json and run_json.get(key) is not None:
                self.run.summary[key] = run_json[key]
        self.save()
        self.run.finish()


def wait_for_run(path, args):
    while True:
        run_json = read_json(path)
        if run_json is not None and first_start(run_json) is not None:
            return run_json
        if args.once:
            fail(f"there is no run in '{os.path.dirname(path)}' (run.json)")
        time.sleep(args.every)


def follow(args):
    folder = args.output_dir
    path = os.path.join(folder, "run.json")
    run_json = wait_for_run(path, args)
    tail = Tail(os.path.join(folder, "metrics.jsonl"))
    sender, sent = Sender(folder, run_json, args), 0
    try:
        while True:
            # read before the lines are: what was written until the run ended is then among them
            run_json = read_json(path)
            if first_start(run_json) != sender.start:
                print("wandb_tail: another run began in this folder", file=sys.stderr)
                break
            new = sum(sender.send(record) for record in tail.records())
            sent += new
            if new:
                sender.save()
            if args.once or is_over(run_json):
                break
            time.sleep(args.every)
    finally:
        sender.close(run_json)
        print(f"wandb_tail: {sent} records sent, up to step {max(sender.last.values())}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("output_dir")
    for key in ("project", "entity", "name"):
        parser.add_argument("--" + key)
    parser.add_argument("--once", action="store_true", help="what is there now, and no more")
    parser.add_argument("--new", action="store_true", help="another W&B run")
    parser.add_argument("--every", type=float, default=2, help="seconds between looks (2)")
    args = parser.parse_args()
    if args.every <= 0:
        fail("--every wants seconds above 0")
    try:
        follow(args)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
