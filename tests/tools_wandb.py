#!/usr/bin/env python3
"""tools/wandb_tail.py against a stand-in for wandb that keeps what it is told: what is sent of a file that grows, of a
run that is resumed, of another run in the same folder, and what is said of broken files.

    python3 tests/tools_wandb.py

The standard library is enough.
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
import types
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))

import wandb_tail


class StandIn(types.ModuleType):
    """wandb.init and what it returns."""

    def __init__(self):
        super().__init__("wandb")
        self.inits, self.logged, self.finished, self.summary = [], [], 0, {}

    def init(self, **given):
        self.inits.append(given)
        self.id = given["id"] or f"id{len(self.inits)}"
        return self

    def define_metric(self, *names, **given):
        pass

    def log(self, named):
        self.logged.append(named)

    def finish(self):
        self.finished += 1


class WandbTail(unittest.TestCase):
    def setUp(self):
        self.wandb = sys.modules["wandb"] = StandIn()
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folder = place.name
        self.sessions = [{"started": "noon", "first_step": 1}]
        self.write_run()

    def write_run(self):
        with open(os.path.join(self.folder, "run.json"), "w") as file:
            json.dump({"command": "sft", "plan": {"a": 1}, "sessions": self.sessions}, file)

    def write_metrics(self, text, mode="a"):
        with open(os.path.join(self.folder, "metrics.jsonl"), mode) as file:
            file.write(text)

    def step(self, step, mode="a"):
        self.write_metrics(json.dumps({"step": step, "epoch": 0.5, "loss": 2.0 / step, "grad_norm": None,
                                       "skipped": True}) + "\n", mode)

    def tail(self, **given):
        args = dict(output_dir=self.folder, project=None, entity=None, name=None, once=True, new=False, every=0.01)
        args.update(given)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            try:
                wandb_tail.follow(argparse.Namespace(**args))
            except SystemExit as stop:
                return stop.code, said.getvalue()
        return 0, said.getvalue()

    def steps(self):
        return [named["train/global_step"] for named in self.wandb.logged]

    def test_numbers_have_transformers_names(self):
        self.step(1)
        self.write_metrics('{"step": 1, "epoch": 1, "eval_loss": 0.25, "eval_runtime": 3}\n')
        self.write_metrics('{"step": 1, "epoch": 1, "samples": [{"text": "x"}]}\n')
        self.assertEqual(self.tail()[0], 0)
        self.assertEqual(self.wandb.logged, [
            {"train/global_step": 1, "train/epoch": 0.5, "train/loss": 2.0},
            {"train/global_step": 1, "train/epoch": 1, "eval/loss": 0.25, "eval/runtime": 3},
        ])
        self.assertEqual(self.wandb.inits[0]["config"], {"command": "sft"})
        self.assertEqual(self.wandb.finished, 1)

    def test_a_second_start_goes_on_with_the_run_behind_its_last_step(self):
        for step in (1, 2):
            self.step(step)
        self.tail()
        self.step(1, "w")  # resumed from a checkpoint before
        for step in (2, 3, 4):
            self.step(step)
        self.sessions.append({"started": "one", "first_step": 2})
        self.write_run()
        self.tail()
        self.assertEqual(self.steps(), [1, 2, 3, 4])
        self.assertEqual([given["id"] for given in self.wandb.inits], [None, "id1"])
        self.assertEqual([given["resume"] for given in self.wandb.inits], [None, "allow"])

    def test_another_run_in_the_folder_is_another_run(self):
        self.step(1)
        self.tail()
        self.sessions = [{"started": "evening"}]
        self.write_run()
        self.tail()
        self.tail(new=True)
        self.assertEqual(self.steps(), [1, 1, 1])
        self.assertEqual([given["id"] for given in self.wandb.inits], [None, None, None])

    def test_it_follows_until_the_run_has_ended(self):
        looks = []

        def sleep(seconds):
            looks.append(seconds)
            self.step(len(looks))
            if len(looks) == 3:
                self.write_metrics('{"step": 4, "lo')
            if len(looks) == 4:
                self.fail("the run has ended before")
            if len(looks) == 3:
                self.write_metrics('ss": 1}\n')
                self.sessions[0]["ended"] = "later"
                self.write_run()

        self.addCleanup(setattr, wandb_tail.time, "sleep", wandb_tail.time.sleep)
        wandb_tail.time.sleep = sleep
        self.assertEqual(self.tail(once=False)[0], 0)
        self.assertEqual(self.steps(), [1, 2, 3, 4])

    def test_half_a_line_waits_for_its_end(self):
        path = os.path.join(self.folder, "metrics.jsonl")
        tail = wandb_tail.Tail(path)
        self.assertEqual(list(tail.records()), [])  # no file yet
        self.write_metrics('{"step": 1}\n{"st')
        self.assertEqual(list(tail.records()), [{"step": 1}])
        self.write_metrics('ep": 2}')
        self.assertEqual(list(tail.records()), [])
        self.write_metrics("\n")
        self.assertEqual(list(tail.records()), [{"step": 2}])
        with open(path + ".new", "w") as file:  # as a checkpoint's copy takes its place
            file.write('{"step": 1}\n' * 9)
        os.replace(path + ".new", path)
        self.assertEqual(len(list(tail.records())), 9)

    def test_broken_files_are_named(self):
        self.write_metrics("not json\n")
        code, said = self.tail()
        self.assertEqual(code, 2)
        self.assertIn("metrics.jsonl", said)
        os.remove(os.path.join(self.folder, "run.json"))
        code, said = self.tail()
        self.assertEqual(code, 2)
        self.assertIn("there is no run in", said)


if __name__ == "__main__":
    unittest.main()
