"""Training with noise, simulated in torch: the mechanisms of the dissertation's chapter 3, for the Pareto bench.

The batches and the noise come from a seeded torch generator (`SIMULATED`), so a model trained here protects nobody:
it shows what a setting would cost and give. What the settings cost is computed in `hybridp_lab.training.accounting`.
"""

from hybridp_lab.training.design import Dense, Design, OneHot
from hybridp_lab.training.linear import LinearLoss, example_slopes, train_linear
from hybridp_lab.training.mlp import Network, network, train_network
from hybridp_lab.training.optimisers import SIMULATED, OptimiserName, Recipe, sample_batches
from hybridp_lab.training.output import train_output

__all__ = [
    "SIMULATED",
    "Dense",
    "Design",
    "LinearLoss",
    "Network",
    "OneHot",
    "OptimiserName",
    "Recipe",
    "example_slopes",
    "network",
    "sample_batches",
    "train_linear",
    "train_network",
    "train_output",
]
