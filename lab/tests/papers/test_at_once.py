"""Many fits of RAP at once: what D' answers, which queries numbers name, and on a GPU the projection itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hybridp.public.queries import Schema, Workload
from hybridp_lab.papers.rap2023 import at_once
from hybridp_lab.papers.rap2023.mechanism import Selection, select
from hybridp_lab.papers.rap2023.original import project_queries
from hybridp_lab.papers.rap2023.relaxed import answers, start
from hybridp_lab.papers.rap2023.workloads import sample_thresholds

SIZES = (4, 2, 7, 3, 5, 6)


@pytest.mark.parametrize(("k", "r"), [(3, 3), (3, 2), (4, 4), (4, 1)])
def test_answers_and_columns_are_those_of_one_fit(k: int, r: int) -> None:
    schema = Schema.from_domain({f"f{i}": size for i, size in enumerate(SIZES)})
    drawn = sample_thresholds(schema, k=k, r=r, count=5, rng=np.random.default_rng(k + r))
    workload, data = Workload(schema, drawn), start(40, SIZES, seed=3)
    result = at_once._answers(data.values.T.contiguous(), workload, torch.empty(workload.queries))
    wanted = torch.cat([part.reshape(-1) for _, part in answers(data, workload)])
    assert torch.allclose(result, wanted, atol=1e-6)
    flat = np.arange(0, workload.queries, 7)
    fit = at_once._Fit(workload, result, 1.0, {}, 1)
    columns = at_once._columns(fit, flat, SIZES, np.cumsum([0, *SIZES[:-1]]))
    assert columns.tolist() == select(workload, flat).columns.tolist()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize(("k", "r"), [(3, 3), (3, 1), (4, 4), (4, 2)])
def test_fits_end_where_the_projection_of_one_ends(k: int, r: int) -> None:
    pytest.importorskip("cupy")
    rng, many = np.random.default_rng(k * r), 30
    features = np.stack([np.sort(rng.choice(len(SIZES), k, replace=False)) for _ in range(2 * many)])
    columns = np.cumsum([0, *SIZES])[features] + (rng.random(features.shape) * np.array(SIZES)[features]).astype(int)
    columns, wanted = columns.reshape(2, many, k), 0.3 * rng.random((2, many))
    x = torch.stack([start(50, SIZES, seed=i).values.T for i in range(2)]).cuda().contiguous()
    least = torch.full((2,), r, device="cuda")
    result = at_once.project_many(
        x, torch.as_tensor(columns).cuda(), least, torch.as_tensor(wanted).cuda(), sizes=SIZES, epochs=20
    )
    for i in range(2):
        asked = Selection(columns[i], np.full(many, r))
        _, loss = project_queries(start(50, SIZES, seed=i), asked, wanted[i], epochs=20)
        assert float(result.losses[i]) == pytest.approx(loss, rel=0.01)
