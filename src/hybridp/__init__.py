"""Differential privacy when people do not all trust you the same way.

The public names, imported when they are first used:

>>> import hybridp
>>> hybridp.PureDP(1.0).epsilon
1.0
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hybridp.curator.sums import Source as Source
    from hybridp.errors import BudgetExceeded as BudgetExceeded
    from hybridp.errors import HybridpError as HybridpError
    from hybridp.errors import InvalidInput as InvalidInput
    from hybridp.errors import TrustRule as TrustRule
    from hybridp.estimators import HybridKMeans as HybridKMeans
    from hybridp.estimators import HybridLinearRegression as HybridLinearRegression
    from hybridp.estimators import HybridLogisticRegression as HybridLogisticRegression
    from hybridp.ledger import Ledger as Ledger
    from hybridp.noise import secure as secure
    from hybridp.noise import seeded as seeded
    from hybridp.pareto.run import dpareto as dpareto
    from hybridp.public.mechanisms import ZCDP as ZCDP
    from hybridp.public.mechanisms import ApproxDP as ApproxDP
    from hybridp.public.mechanisms import Neighbours as Neighbours
    from hybridp.public.mechanisms import PureDP as PureDP
    from hybridp.release.plan import Plan as Plan
    from hybridp.release.release import Release as Release
    from hybridp.release.release import read as read
    from hybridp.release.release import result_schema as result_schema
    from hybridp.release.waves import compare_waves as compare_waves
    from hybridp.study import Study as Study
    from hybridp.study import count as count
    from hybridp.study import heavy_hitters as heavy_hitters
    from hybridp.study import kmeans as kmeans
    from hybridp.study import mean as mean
    from hybridp.study import quantiles as quantiles
    from hybridp.study import regression as regression
    from hybridp.study import shares as shares
    from hybridp.study import total as total
    from hybridp.study import vector_mean as vector_mean

__version__ = "0.2.0"

_MODULES = {
    "curator.sums": "Source",
    "errors": "BudgetExceeded HybridpError InvalidInput TrustRule",
    "ledger": "Ledger",
    "pareto.run": "dpareto",
    "estimators": "HybridKMeans HybridLinearRegression HybridLogisticRegression",
    "public.mechanisms": "ApproxDP Neighbours PureDP ZCDP",
    "noise": "secure seeded",
    "release.plan": "Plan",
    "release.release": "Release read result_schema",
    "release.waves": "compare_waves",
    "study": "Study count heavy_hitters kmeans mean quantiles regression shares total vector_mean",
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = ["__version__", *sorted(_PLACES)]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name in _PLACES:
            return getattr(importlib.import_module(f"hybridp.{_PLACES[name]}"), name)
        raise AttributeError(f"module 'hybridp' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
