#!/usr/bin/env python3
"""Ten steps of PyTorch's optimisers and the schedules of transformers, for tests/train/optimizer_test.cc.

usage: optimisers.py > tests/golden/optimisers.json
"""
import json
import sys

import torch
import transformers

STEPS = 10


def problem():
    """A matrix, which decays, and a bias, which does not; the same gradients for every optimiser."""
    generator = torch.Generator().manual_seed(5)
    values = [torch.randn(7, 5, generator=generator), torch.randn(9, generator=generator)]
    gradients = [[torch.randn(p.shape, generator=generator) * 10.0 ** (step % 3 - 1) for p in values] for step in range(STEPS)]
    return values, gradients


def flat(tensors):
    return [float(x) for t in tensors for x in t.flatten()]


def run(make, clip=0.0):
    values, gradients = problem()
    parameters = [torch.nn.Parameter(v.clone()) for v in values]
    optimiser = make(parameters)
    after, norms = [], []
    for step in range(STEPS):
        for parameter, gradient in zip(parameters, gradients[step]):
            parameter.grad = gradient.clone()
        norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, clip if clip > 0 else 1e30)))
        optimiser.step()
        after.append(flat(p.detach() for p in parameters))
    return {"after": after, "norms": norms}


def adamw(parameters):
    return torch.optim.AdamW([{"params": parameters[:1], "weight_decay": 0.3}, {"params": parameters[1:], "weight_decay": 0.0}], lr=0.02,
                             betas=(0.9, 0.97), eps=1e-6)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.03, momentum=0.8)


def schedule(make):
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.SGD([parameter], lr=1.0)
    scheduler = make(optimiser)
    rates = []
    for _ in range(201):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        scheduler.step()
    return rates


def main():
    values, gradients = problem()
    t = transformers
    out = {
        "shapes": [list(v.shape) for v in values],
        "values": flat(values),
        "gradients": [flat(g) for g in gradients],
        "adamw": run(adamw),
        "adamw_clipped": run(adamw, clip=2.0),
        "sgd": run(sgd),
        # 200 steps, 20 of warm-up; rates of steps 0 to 200
        "schedules": {
            "linear": schedule(lambda o: t.get_linear_schedule_with_warmup(o, 20, 200)),
            "cosine": schedule(lambda o: t.get_cosine_schedule_with_warmup(o, 20, 200)),
            "inverse_sqrt": schedule(lambda o: t.get_inverse_sqrt_schedule(o, 20)),
            "warmup_stable_decay": schedule(lambda o: t.get_wsd_schedule(o, 20, 50, num_training_steps=200, decay_type="linear", min_lr_ratio=0.1)),
        },
    }
    json.dump(out, sys.stdout)
    print()


if __name__ == "__main__":
    main()
