#!/usr/bin/env python3
"""Makes sgd.json: torch.optim.SGD with the schedule of torchvision's detectors (LinearLR over the first iterations,
MultiStepLR over epochs, both chained as in references/detection), float32, on a convex function.

Of each case: settings, parameters before the first step, and after each step the gradient, the parameters and the rate
that the step used. Parameter 0 has weight decay, parameter 1 has none."""
import json
import os

import torch

EPOCHS, EPOCH_STEPS, WARMUP = 6, 5, 4
MILESTONES, GAMMA, WARMUP_FACTOR = [3, 5], 0.1, 0.001

CASES = [
    {"lr": 0.05, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0},
    {"lr": 0.05, "momentum": 0.9, "nesterov": False, "weight_decay": 0.1},
    {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
]


def run(case):
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(5)), torch.nn.Parameter(torch.randn(3))]
    targets = [torch.randn(5), torch.randn(3)]
    groups = [{"params": [params[0]], "weight_decay": case["weight_decay"]}, {"params": [params[1]], "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=case["lr"], momentum=case["momentum"], nesterov=case["nesterov"],
                                foreach=False)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=WARMUP_FACTOR, total_iters=WARMUP)
    milestones = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=MILESTONES, gamma=GAMMA)
    result = dict(case, start=[p.tolist() for p in params], steps=[])
    for epoch in range(EPOCHS):
        for _ in range(EPOCH_STEPS):
            optimizer.zero_grad()
            loss = sum(((p - t) ** 2).sum() + (p - t).abs().sum() for p, t in zip(params, targets))
            loss.backward()
            rate = optimizer.param_groups[0]["lr"]
            gradients = [p.grad.tolist() for p in params]
            optimizer.step()
            if epoch == 0:
                warmup.step()
            result["steps"].append({"lr": rate, "gradients": gradients, "params": [p.tolist() for p in params]})
        milestones.step()
    return result


def main():
    torch.set_num_threads(1)
    here = os.path.dirname(os.path.abspath(__file__))
    golden = {"torch": torch.__version__.split("+")[0], "epoch_steps": EPOCH_STEPS, "warmup_steps": WARMUP,
              "milestone_epochs": MILESTONES, "gamma": GAMMA, "warmup_factor": WARMUP_FACTOR,
              "cases": [run(case) for case in CASES]}
    with open(os.path.join(here, "sgd.json"), "w", encoding="utf-8") as file:
        json.dump(golden, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
