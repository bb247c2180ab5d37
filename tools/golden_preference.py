#!/usr/bin/env python3
"""Writes tests/golden/preference.json: losses of preference training and their gradients as TRL's formulas give them.

    pip install torch
    python3 tools/golden_preference.py tests/golden/preference.json

The formulas are written out here in PyTorch, in double precision, as TRL 0.24's trainers have them (DPOTrainer,
CPOTrainer for SimPO, ORPOTrainer, KTOTrainer), and the gradients are autograd's. A mean over pairs or examples is a sum
here, and ORPO's cross-entropy is the mean over a pair's own chosen labels instead of all tokens of the batch.
SPDX-License-Identifier: Apache-2.0
"""
import json
import sys

import torch
import torch.nn.functional as F

VOCAB, COLUMNS = 9, 11
LENGTHS = [3, 2, 1, 4, 2, 2]  # labels of each document
KINDS = [1, 0, 2, 0, 2, 1]    # for KTO


def score(logprob, average):
    """A number for each document: the sum or the mean of its labels' log-probabilities."""
    return torch.stack([part.mean() if average else part.sum() for part in logprob.split(LENGTHS)])


def smoothed(x, smoothing):
    return -F.logsigmoid(x) * (1 - smoothing) - F.logsigmoid(-x) * smoothing


def report(facts, chosen_rewards, rejected_rewards, chosen_logps, rejected_logps):
    facts.update(rewards_chosen=chosen_rewards.sum().item(), rewards_rejected=rejected_rewards.sum().item(),
                 logps_chosen=chosen_logps.sum().item(), logps_rejected=rejected_logps.sum().item())


def dpo(logprob, reference, keys, facts):
    average = keys["loss_type"] == "ipo"
    policy = score(logprob, average)
    ref = score(reference, average) if reference is not None else torch.zeros_like(policy)
    chosen, rejected, beta = policy[0::2], policy[1::2], keys["beta"]
    logits = (chosen - rejected) - (ref[0::2] - ref[1::2])
    if keys["loss_type"] == "sigmoid":
        losses = smoothed(beta * logits, keys["label_smoothing"])
    elif keys["loss_type"] == "hinge":
        losses = torch.relu(1 - beta * logits)
    else:
        losses = (logits - 1 / (2 * beta)) ** 2
    report(facts, beta * (chosen - ref[0::2]), beta * (rejected - ref[1::2]), chosen, rejected)
    return losses.sum()


def simpo(logprob, _, keys, facts):
    policy, beta = score(logprob, True), keys["beta"]
    chosen, rejected = policy[0::2], policy[1::2]
    logits = chosen - rejected - keys["simpo_gamma"] / beta
    report(facts, beta * chosen, beta * rejected, chosen, rejected)
    return smoothed(beta * logits, keys["label_smoothing"]).sum()


def orpo(logprob, _, keys, facts):
    policy, beta = score(logprob, True), keys["beta"]
    chosen, rejected = policy[0::2], policy[1::2]
    log_odds = (chosen - rejected) - (torch.log1p(-torch.exp(chosen)) - torch.log1p(-torch.exp(rejected)))
    report(facts, beta * chosen, beta * rejected, chosen, rejected)
    facts["nll_chosen"] = -chosen.sum().item()
    return (-chosen - beta * F.logsigmoid(log_odds)).sum()


def kto(logprob, reference, keys, facts):
    kinds, beta = torch.tensor(KINDS), keys["beta"]
    policy = score(logprob, False)
    ratios = policy - score(reference, False)
    kl = ratios[kinds == 2].mean().detach().clamp(min=0)
    chosen, rejected = ratios[kinds == 1], ratios[kinds == 0]
    chosen_losses = 1 - torch.sigmoid(beta * (chosen - kl))
    rejected_losses = 1 - torch.sigmoid(beta * (kl - rejected))
    report(facts, beta * chosen, beta * rejected, policy[kinds == 1], policy[kinds == 0])
    facts["kl"] = kl.item()
    return keys["desirable_weight"] * chosen_losses.sum() + keys["undesirable_weight"] * rejected_losses.sum()


# Formula, whether there is a reference, and keys of op/preference.h.
CASES = [
    (dpo, True, {"loss_type": "sigmoid", "beta": 0.1}),
    (dpo, True, {"loss_type": "sigmoid", "beta": 0.5, "label_smoothing": 0.2}),
    (dpo, False, {"loss_type": "sigmoid", "beta": 0.3}),
    (dpo, True, {"loss_type": "ipo", "beta": 0.1}),
    (dpo, False, {"loss_type": "ipo", "beta": 0.7}),
    (dpo, True, {"loss_type": "hinge", "beta": 0.1}),
    (dpo, True, {"loss_type": "hinge", "beta": 2.0}),
    (simpo, False, {"loss_type": "simpo", "beta": 2.0, "simpo_gamma": 1.0}),
    (simpo, False, {"loss_type": "simpo", "beta": 0.1, "simpo_gamma": 0.5, "label_smoothing": 0.1}),
    (orpo, False, {"loss_type": "orpo", "beta": 0.1}),
    (orpo, False, {"loss_type": "orpo", "beta": 1.5}),
    (kto, True, {"loss_type": "kto", "beta": 0.1, "desirable_weight": 1.0, "undesirable_weight": 1.0}),
    (kto, True, {"loss_type": "kto", "beta": 0.4, "desirable_weight": 1.33, "undesirable_weight": 0.75}),
]


def logprobs(logits, targets):
    return F.log_softmax(logits[:, :VOCAB], -1).gather(-1, targets[:, None])[:, 0]


def case(formula, has_reference, keys, logits, reference, targets):
    z = logits.double().clone().requires_grad_(True)
    facts = {"from": formula.__name__, "keys": keys}
    all_keys = {"label_smoothing": 0, "simpo_gamma": 0, **keys}
    reference = logprobs(reference.double(), targets) if has_reference else None
    loss = formula(logprobs(z, targets), reference, all_keys, facts)
    (gradient,) = torch.autograd.grad(loss, z)
    facts["reference"] = has_reference
    facts["loss"] = loss.item()
    facts["gradient"] = [[float(f"{g:.9g}") for g in row] for row in gradient.tolist()]
    return facts


def main():
    generator = torch.Generator().manual_seed(1)
    labels = sum(LENGTHS)
    logits = (torch.randn(labels, COLUMNS, generator=generator) * 2).float()
    reference = (logits + torch.randn(labels, COLUMNS, generator=generator)).float()
    targets = torch.randint(0, VOCAB, (labels,), generator=generator)
    cases = [case(*each, logits, reference, targets) for each in CASES]
    facts = {"vocab": VOCAB, "lengths": LENGTHS, "kinds": KINDS, "targets": targets.tolist(), "logits": logits.tolist(),
             "reference": reference.tolist()}
    with open(sys.argv[1], "w") as out:  # a line a case
        lines = [f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in facts.items()]
        cases = ",\n".join("  " + json.dumps(each) for each in cases)
        out.write("{\n" + "".join(lines) + ' "cases": [\n' + cases + "\n ]\n}\n")


main()
