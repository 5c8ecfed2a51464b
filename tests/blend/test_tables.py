"""The blend of trusted tables and local reports: weights by inverse variance, and errors as stated."""

from __future__ import annotations

import numpy as np
import pytest

from hybridp.blend.tables import blend_tables
from hybridp.public.mechanisms import PureDP
from hybridp.public.randomisers import share_oracle
from hybridp.public.shares import ShareReports
from hybridp.public.synth import MeasuredTable

SHAPE = ((0, 1), (4, 5))
K = 20
ORACLE = share_oracle(PureDP(1.0), K)
NOBODY = ShareReports(0, np.zeros(K, np.int64), ORACLE)


def test_an_empty_cell_is_weighed_by_the_inverse_of_both_variances() -> None:
    trusted = MeasuredTable((0, 1), np.zeros((4, 5), np.int64), 10.0)
    told = np.full(K, round(2000 * ORACLE.other))
    ((_, found),) = blend_tables([SHAPE], [trusted], 500, [ShareReports(2000, told, ORACLE)])
    p, q = ORACLE.truth, ORACLE.other
    variances = (10 / 500) ** 2, q * (1 - q) / (p - q) ** 2 / 2000
    wanted = 2500 / np.sqrt(sum(1 / v for v in variances))
    assert found.sigma == pytest.approx(wanted, rel=1e-2)


def test_a_group_of_nobody_has_no_say() -> None:
    counts = np.arange(K).reshape(4, 5)
    ((_, found),) = blend_tables([SHAPE], [MeasuredTable((0, 1), counts, 3.0)], 190, [NOBODY])
    np.testing.assert_array_equal(found.counts, counts)
    told = ShareReports(1000, np.full(K, round(1000 * ORACLE.other)), ORACLE)
    ((_, found),) = blend_tables([SHAPE], [], 0, [told])
    assert found.counts.shape == (4, 5)
    assert np.abs(found.counts).max() < 5
    with pytest.raises(ValueError, match="drawn by somebody"):
        blend_tables([SHAPE, SHAPE], [], 0, [told, NOBODY])


def test_errors_have_the_stated_size_and_are_below_those_of_each_group() -> None:
    """400 collections of one population: cells' errors in units of what is stated, with a control that fails."""
    draw = np.random.default_rng(8)
    shares = draw.dirichlet(np.full(K, 0.5))
    people, local, sigma = 400, 4000, 12.0
    p, q = ORACLE.truth, ORACLE.other
    blended, alone, scale = [], [], []
    for _ in range(400):
        counts = draw.multinomial(people, shares) + np.rint(sigma * draw.standard_normal(K)).astype(np.int64)
        held = draw.multinomial(local, shares)
        told = draw.binomial(held, p) + draw.binomial(local - held, q)
        table = MeasuredTable((0, 1), counts.reshape(4, 5), sigma)
        ((_, found),) = blend_tables([SHAPE], [table], people, [ShareReports(local, told, ORACLE)])
        blended.append(found.counts.ravel() / (people + local) - shares)
        alone.append((counts / people - shares, (told / local - q) / (p - q) - shares))
        scale.append(found.sigma / (people + local))
    error = float(np.sqrt(np.mean(np.square(blended))))
    assert error == pytest.approx(float(np.mean(scale)), rel=0.04)
    each = np.sqrt(np.mean(np.square(alone), axis=(0, 2)))
    assert error < 0.9 * each.min()
    assert abs(float(np.mean(blended))) < 5 * error / np.sqrt(400 * K)
