"""Differential privacy when people do not all trust you the same way.

The public names, imported when they are first used:

>>> import hybridp
>>> hybridp.PureDP(1.0).epsilon
1.0
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hybridp.bench.groups import plan_groups as plan_groups
    from hybridp.bench.models import plan_heavy as plan_heavy
    from hybridp.bench.models import plan_regression as plan_regression
    from hybridp.bench.personal import plan_personal as plan_personal
    from hybridp.bench.planning import plan_mean as plan_mean
    from hybridp.bench.shares import plan_shares as plan_shares
    from hybridp.blend.mean import Rule as Rule
    from hybridp.curator.mean import Columns as Columns
    from hybridp.curator.sources import Source as Source
    from hybridp.curator.vector import VectorColumns as VectorColumns
    from hybridp.device.reports import randomise as randomise
    from hybridp.errors import BudgetExceeded as BudgetExceeded
    from hybridp.errors import HybridpError as HybridpError
    from hybridp.errors import InvalidInput as InvalidInput
    from hybridp.ledger import Ledger as Ledger
    from hybridp.pareto.run import dpareto as dpareto
    from hybridp.protocols.driver import release_distribution as release_distribution
    from hybridp.protocols.driver import release_groups as release_groups
    from hybridp.protocols.driver import release_heavy_hitters as release_heavy_hitters
    from hybridp.protocols.driver import release_joint as release_joint
    from hybridp.protocols.driver import release_kmeans as release_kmeans
    from hybridp.protocols.driver import release_mean as release_mean
    from hybridp.protocols.driver import release_regression as release_regression
    from hybridp.protocols.driver import release_shares as release_shares
    from hybridp.protocols.driver import release_steered as release_steered
    from hybridp.protocols.estimators import HybridKMeans as HybridKMeans
    from hybridp.protocols.estimators import HybridLinearRegression as HybridLinearRegression
    from hybridp.protocols.estimators import HybridLogisticRegression as HybridLogisticRegression
    from hybridp.protocols.synth import fit_synth as fit_synth
    from hybridp.public.budgets import ZCDP as ZCDP
    from hybridp.public.budgets import ApproxDP as ApproxDP
    from hybridp.public.budgets import Neighbours as Neighbours
    from hybridp.public.budgets import PureDP as PureDP
    from hybridp.public.groups import Grouping as Grouping
    from hybridp.public.kmeans import Box as Box
    from hybridp.public.lattice import Bounds as Bounds
    from hybridp.public.messages import Invite as Invite
    from hybridp.public.personal import PersonalDP as PersonalDP
    from hybridp.public.queries import Feature as Feature
    from hybridp.public.trust import TrustRule as TrustRule
    from hybridp.public.vector import VectorBounds as VectorBounds
    from hybridp.randomness import secure as secure
    from hybridp.randomness import seeded as seeded
    from hybridp.release.release import Release as Release
    from hybridp.release.release import read as read
    from hybridp.release.result import result_schema as result_schema
    from hybridp.release.waves import compare_waves as compare_waves
    from hybridp.study import Study as Study
    from hybridp.tasks.distribution import DistributionStudy as DistributionStudy
    from hybridp.tasks.joint import JointStudy as JointStudy
    from hybridp.tasks.kmeans import KMeansStudy as KMeansStudy
    from hybridp.tasks.mean import MeanStudy as MeanStudy
    from hybridp.tasks.personal import PersonalStudy as PersonalStudy
    from hybridp.tasks.records import HeavyStudy as HeavyStudy
    from hybridp.tasks.regression import RegressionStudy as RegressionStudy
    from hybridp.tasks.shares import ShareStudy as ShareStudy
    from hybridp.tasks.shares import choice as choice
    from hybridp.tasks.table import SynthStudy as SynthStudy
    from hybridp.tasks.vector import VectorStudy as VectorStudy

__version__ = "0.1.0"

_PLACES = {
    "ApproxDP": "public.budgets",
    "Box": "public.kmeans",
    "Bounds": "public.lattice",
    "BudgetExceeded": "errors",
    "Columns": "curator.mean",
    "DistributionStudy": "tasks.distribution",
    "Feature": "public.queries",
    "Grouping": "public.groups",
    "HeavyStudy": "tasks.records",
    "HybridKMeans": "protocols.estimators",
    "HybridLinearRegression": "protocols.estimators",
    "HybridLogisticRegression": "protocols.estimators",
    "HybridpError": "errors",
    "InvalidInput": "errors",
    "Invite": "public.messages",
    "JointStudy": "tasks.joint",
    "KMeansStudy": "tasks.kmeans",
    "Ledger": "ledger",
    "MeanStudy": "tasks.mean",
    "Neighbours": "public.budgets",
    "PersonalDP": "public.personal",
    "PersonalStudy": "tasks.personal",
    "PureDP": "public.budgets",
    "RegressionStudy": "tasks.regression",
    "Release": "release.release",
    "Rule": "blend.mean",
    "ShareStudy": "tasks.shares",
    "Source": "curator.sources",
    "Study": "study",
    "SynthStudy": "tasks.table",
    "TrustRule": "public.trust",
    "VectorBounds": "public.vector",
    "VectorColumns": "curator.vector",
    "VectorStudy": "tasks.vector",
    "ZCDP": "public.budgets",
    "choice": "tasks.shares",
    "compare_waves": "release.waves",
    "dpareto": "pareto.run",
    "fit_synth": "protocols.synth",
    "plan_groups": "bench.groups",
    "plan_heavy": "bench.models",
    "plan_mean": "bench.planning",
    "plan_personal": "bench.personal",
    "plan_regression": "bench.models",
    "plan_shares": "bench.shares",
    "randomise": "device.reports",
    "read": "release.release",
    "release_distribution": "protocols.driver",
    "release_groups": "protocols.driver",
    "release_heavy_hitters": "protocols.driver",
    "release_joint": "protocols.driver",
    "release_kmeans": "protocols.driver",
    "release_mean": "protocols.driver",
    "release_regression": "protocols.driver",
    "release_shares": "protocols.driver",
    "release_steered": "protocols.driver",
    "result_schema": "release.result",
    "secure": "randomness",
    "seeded": "randomness",
}

__all__ = ["__version__", *sorted(_PLACES)]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(f"hybridp.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'hybridp' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
