"""Somebody else's mechanism on the Pareto bench: DP-SGD by Opacus, with Opacus's own accountant.

    hybridp pareto run docs/examples/pareto_opacus.py:problem --init 8 --steps 16 --out opacus.db

Needs `opacus`. Its epsilon is for adding or removing one person and Poisson batches, not for replacement as in the rest
of hybridp: do not lay this front over the library's own without that in mind.
"""

import warnings

import torch
from opacus import PrivacyEngine
from opacus.accountants import RDPAccountant
from torch.utils.data import DataLoader, TensorDataset

from hybridp.pareto import Integer, LogInteger, LogReal, Problem, Space

PEOPLE, DELTA = 2_000, 1e-5
ORDERS = [*(1 + x / 10 for x in range(1, 100)), *range(11, 64), 128, 256, 512]


def privacy(setting):
    accountant = RDPAccountant()
    batches = -(-PEOPLE // setting["batch"])  # an epoch; Opacus draws everybody with probability 1/batches
    accountant.history = [(setting["noise"], 1 / batches, setting["epochs"] * batches)]
    return accountant.get_epsilon(delta=DELTA, alphas=ORDERS)


def utility(setting, seed):
    torch.manual_seed(seed)
    x = torch.randn(PEOPLE + 1_000, 10)
    y = (x.sum(1) + torch.randn(len(x)) > 0).float().unsqueeze(1)
    model = torch.nn.Linear(10, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Opacus warns that seeded noise is no protection; here nobody needs any
        model, optimiser, loader = PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=setting["rate"]),
            data_loader=DataLoader(TensorDataset(x[:PEOPLE], y[:PEOPLE]), batch_size=setting["batch"]),
            noise_multiplier=setting["noise"],
            max_grad_norm=1.0,
        )
        for _ in range(setting["epochs"]):
            for a, b in loader:
                optimiser.zero_grad()
                torch.nn.functional.binary_cross_entropy_with_logits(model(a), b).backward()
                optimiser.step()
    return float(((model(x[PEOPLE:]) > 0) == (y[PEOPLE:] > 0)).float().mean())


problem = Problem(
    "opacus",
    Space(
        {
            "epochs": Integer(1, 10),
            "batch": LogInteger(16, 512),
            "rate": LogReal(0.01, 2),
            "noise": LogReal(0.4, 8),
        }
    ),
    privacy,
    utility,
    anti_ideal=(10.0, 0.5),
    delta=DELTA,
)
