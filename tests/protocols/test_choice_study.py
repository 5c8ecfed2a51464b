"""Questions of kind choice in a declared study: what is none, what no bin holds, and where a bin begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from hybridp.curator.sums import Columns
from hybridp.errors import UnusablePublicRows
from hybridp.ledger import Ledger
from hybridp.noise import seeded
from hybridp.protocols.driver import release as release_distribution
from hybridp.protocols.driver import release as release_shares
from hybridp.public.mechanisms import PureDP
from hybridp.public.queries import Feature
from hybridp.public.randomisers import Bounds
from hybridp.study import Study
from hybridp.tasks.distribution import DistributionTask
from hybridp.tasks.shares import SharesTask
from hybridp.tasks.task import ledger_totals


@pytest.mark.parametrize("kind", ["date", "timestamp", "int64[]"])
def test_a_column_that_no_bin_can_hold_is_refused_by_its_type_and_costs_nothing(tmp_path: Path, kind: str) -> None:
    """A type is public, so that the refusal tells nothing of the rows, and the charge is void."""
    types = {"date": pa.date32(), "timestamp": pa.timestamp("us"), "int64[]": pa.list_(pa.int64())}
    table = pa.table({"when": pa.nulls(4, types[kind]), "trust": ["trusted", "trusted", "local", "local"]})
    asked = {"name": "when", "kind": "choice", "edges": [0, 1, 2]}
    study = Study(promise=1.0, trust="trust", questions=[asked])
    ledger = Ledger.create(tmp_path / "l", ledger_totals(study), trial=True)
    with pytest.raises(UnusablePublicRows, match="Column `when` must hold numbers; its type is"):
        study.release(table, ledger=ledger, simulate_local=True)
    assert [account.spent.epsilon for account in ledger.accounts()] == [0.0, 0.0]
    assert [entry.state for entry in ledger.history()] == ["void", "void"]
    with pytest.raises(UnusablePublicRows, match="Column `when` must hold numbers; its type is"):
        study.randomise(table, tmp_path / "r.csv")


@pytest.mark.parametrize("trust", ["trusted", "local"])
def test_a_bin_begins_at_its_lower_edge_in_either_kind_of_question(trust: str) -> None:
    """Many people stand at an edge: numpy's [a, b), the last one closed, by a choice with edges and by a histogram."""
    edges, ages = (16.0, 25.0, 40.0, 64.0), [16, 24, 25, 25, 25, 39, 40, 64, 64, 64] * 400
    file = pd.DataFrame({"age": ages, "trust": trust})
    truth = np.histogram(ages, edges)[0] / len(ages)
    run: Any = {"simulate_local": True, "rng": seeded(3)}
    asked = SharesTask(Feature.binned("age", edges), PureDP(8.0))
    cells = release_shares(file, asked, Columns("age", "trust"), **run).facts["estimate"]
    assert cells == pytest.approx(truth, abs=0.02)
    scale = DistributionTask(Bounds(16, 64), PureDP(8.0), at=(), edges=edges, step=1.0)
    found = release_distribution(file, scale, Columns("age", "trust"), **run)
    assert found.of("histogram").facts["estimate"] == pytest.approx(truth, abs=0.03)
    assert found.of("histogram").facts["options"] == ["below 25", "25 to below 40", "40 or more"]
