#!/usr/bin/env python3
"""Writes tests/golden/distill.json: distillation losses and gradients as torchtune's and TRL's formulas give them.

    pip install torch
    python3 tools/golden_distill.py tests/golden/distill.json

The formulas are written out here in PyTorch, in double precision, and the gradients are autograd's. Two of torchtune's
are changed where they are not the divergence that they are named after: its forward KL is without the teacher's
entropy (the gradient is the same), so it is added; and a mean over labels is a sum here. Each case says whose formula
it is. The cases of a saved teacher are the same divergences after the other tokens were added up.
SPDX-License-Identifier: Apache-2.0
"""
import json
import sys

import torch
import torch.nn.functional as F

ROWS, STUDENT, TEACHER = 3, 12, 10


def torchtune_forward(student, teacher, _):
    p = F.softmax(teacher, -1)
    return -(p * F.log_softmax(student, -1)).sum() + (p * F.log_softmax(teacher, -1)).sum()


def torchtune_reverse(student, teacher, _):
    q = F.softmax(student, -1)
    return -((q * F.log_softmax(teacher, -1)).sum() - (q * F.log_softmax(student, -1)).sum())


def torchtune_symmetric(student, teacher, ratio):
    return ratio * torchtune_forward(student, teacher, 0) + (1 - ratio) * torchtune_reverse(student, teacher, 0)


def trl_jsd(student, teacher, beta):
    student, teacher = F.log_softmax(student, -1), F.log_softmax(teacher, -1)
    if beta == 0:
        return F.kl_div(student, teacher, reduction="sum", log_target=True)
    if beta == 1:
        return F.kl_div(teacher, student, reduction="sum", log_target=True)
    b = torch.tensor(beta, dtype=student.dtype)
    mixture = torch.logsumexp(torch.stack([student + torch.log(1 - b), teacher + torch.log(b)]), dim=0)
    return (b * F.kl_div(mixture, teacher, reduction="sum", log_target=True) +
            (1 - b) * F.kl_div(mixture, student, reduction="sum", log_target=True))


def distillm_skewed_forward(student, teacher, alpha):
    p, q = F.softmax(teacher, -1), F.softmax(student, -1)
    return (p * (p.log() - (alpha * p + (1 - alpha) * q).log())).sum()


def distillm_skewed_reverse(student, teacher, alpha):
    p, q = F.softmax(teacher, -1), F.softmax(student, -1)
    return (q * (q.log() - ((1 - alpha) * p + alpha * q).log())).sum()


# Name of the divergence, as in op/distill.h, and cases (beta, temperature, tau^2, kd_ratio, columns compared).
CASES = [
    ("forward_kl", torchtune_forward, [(0, 1, False, 0.5, 10), (0, 2, True, 1, 9)]),
    ("reverse_kl", torchtune_reverse, [(0, 1, False, 0.5, 10), (0, 0.5, False, 0.25, 10)]),
    ("symmetric_kl", torchtune_symmetric, [(0.5, 1, False, 0.5, 10), (0.25, 1.5, False, 0.75, 8)]),
    ("jsd", trl_jsd, [(0, 0.9, False, 1, 10), (0.5, 0.9, False, 1, 10), (0.1, 2, True, 0.5, 9), (1, 0.9, False, 1, 10)]),
    ("skewed_forward_kl", distillm_skewed_forward, [(0.1, 1, False, 0.5, 10), (0.6, 2, False, 1, 10)]),
    ("skewed_reverse_kl", distillm_skewed_reverse, [(0.1, 1, False, 0.5, 10), (0.6, 2, False, 1, 10)]),
]
SAVED = 4


def merged(logits, ids):
    """Logarithms of the classes: the tokens `ids`, then all others as one; softmax leaves them as they are."""
    log = F.log_softmax(logits, -1)
    left = torch.ones_like(log).scatter(-1, ids, 0).bool()
    others = torch.logsumexp(log.masked_fill(~left, float("-inf")), -1, keepdim=True)
    return torch.cat([log.gather(-1, ids), others], -1)


def case(name, formula, student, teacher, targets, numbers, saved):
    beta, temperature, square, ratio, vocab = numbers
    z = student.double().clone().requires_grad_(True)
    s, t = z[:, :vocab] / temperature, teacher.double()[:, :vocab] / temperature
    out = {"name": name, "from": formula.__name__, "beta": beta, "temperature": temperature, "scale_t2": square,
           "kd_ratio": ratio, "vocab": vocab}
    if saved:
        logprobs, ids = F.log_softmax(t, -1).topk(SAVED, -1)
        logprobs = logprobs.float()  # as they are saved
        left = torch.log1p(-logprobs.double().exp().sum(-1, keepdim=True))
        s, t = merged(s, ids), torch.cat([logprobs.double(), left], -1)
        out["ids"], out["logprobs"] = ids.tolist(), logprobs.tolist()
    divergence = formula(s, t, beta) * (temperature ** 2 if square else 1)
    cross_entropy = F.cross_entropy(z[:, :vocab], targets, reduction="sum")
    loss = (1 - ratio) * cross_entropy + ratio * divergence
    (gradient,) = torch.autograd.grad(loss, z)
    out["cross_entropy"], out["divergence"], out["loss"] = cross_entropy.item(), divergence.item(), loss.item()
    out["gradient"] = [[float(f"{g:.9g}") for g in row] for row in gradient.tolist()]
    return out


def main():
    generator = torch.Generator().manual_seed(1)
    student = (torch.randn(ROWS, STUDENT, generator=generator) * 3).float()
    teacher = (torch.randn(ROWS, TEACHER, generator=generator) * 3).float()
    targets = torch.tensor([3, 0, 7])
    cases = [case(name, formula, student, teacher, targets, numbers, saved) for saved in (False, True)
             for name, formula, all_numbers in CASES for numbers in all_numbers]
    facts = {"student": student.tolist(), "teacher": teacher.tolist(), "targets": targets.tolist()}
    with open(sys.argv[1], "w") as out:  # a line a case
        lines = [f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in facts.items()]
        cases = ",\n".join("  " + json.dumps(each) for each in cases)
        out.write("{\n" + "".join(lines) + ' "cases": [\n' + cases + "\n ]\n}\n")


main()
