"""Single chosen queries on a relaxed data set, many at once: three forms of the surrogate, and the gradient by hand.

With p_1..p_k the values of a row at the k targets, the surrogate of "at least r of k" is the probability of at least r
successes in independent trials. Form "partitions" sums generalised products over the sets that succeed (Avent 2023,
Definitions 4.4.2 and 4.4.3), "inclusion" sums products with signs (Definition 4.4.4), and "trials" adds the trials one
by one, which needs the fewest operations. With r = k all are the product query of Definition 4.2.7.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from hybridp.errors import must
from hybridp.public.queries import at_least_coefficients
from hybridp_lab.papers.rap2023.descent import add_rows
from hybridp_lab.papers.rap2023.mechanism import Selection
from hybridp_lab.papers.rap2023.relaxed import Relaxed

__all__ = ["Form", "selected_answers", "selected_loss"]

Form = Literal["trials", "partitions", "inclusion"]
MOST_ENTRIES = 1 << 22


def selected_answers(data: Relaxed, selection: Selection, *, form: Form = "trials") -> Tensor:
    """The answers of D' to the selected queries. Differentiable with respect to `data.values`.

    >>> import numpy as np
    >>> from hybridp_lab.papers.rap2023.relaxed import one_hot
    >>> asked = Selection(np.array([[0, 3], [0, 3]]), np.array([2, 1]))
    >>> selected_answers(one_hot(np.array([[0, 1], [0, 2]]), (2, 3)), asked).tolist()
    [0.5, 1.0]
    """
    must(form in ("trials", "partitions", "inclusion"), "form", "must be trials, partitions or inclusion", form)
    columns = data.values.T
    parts, places = [], []
    for place, targets, r in _alike(data, selection):
        p = columns[targets]
        rule = {"trials": _trials, "partitions": _partitions, "inclusion": _inclusion}[form]
        parts.append(rule(p, r).mean(-1))
        places.append(place)
    if not parts:
        return torch.zeros(0, dtype=data.values.dtype, device=data.values.device)
    order = torch.argsort(torch.cat(places))
    return torch.cat(parts)[order.to(data.values.device)]


def selected_loss(
    data: Relaxed, selection: Selection, wanted: Tensor, weights: Tensor, gradient: Tensor, columns: Tensor
) -> Tensor:
    """sum_q w_q (q(D') - a_q)^2, and its gradient added to `gradient`. Both `gradient` and `columns` are transposed.

    dP(at least r of k)/dp_i = P(exactly r - 1 of the others).
    """
    loss = torch.zeros((), dtype=columns.dtype, device=columns.device)
    for place, targets, r in _alike(data, selection):
        p = columns[targets]  # queries x k x rows
        where = place.to(columns.device)
        error = _trials(p, r).mean(-1) - wanted[where]
        loss = loss + (weights[where] * error * error).sum()
        slope = (2 / data.rows) * weights[where] * error
        for i in range(p.shape[1]):
            others = torch.cat([p[:, :i], p[:, i + 1 :]], dim=1)
            add_rows(gradient, targets[:, i], slope[:, None] * _exactly(others, r - 1), by_product=columns.is_cuda)
    return loss


def _alike(data: Relaxed, selection: Selection) -> Iterator[tuple[Tensor, Tensor, int]]:
    """Queries of the same k and r, in lots that keep to the memory: their places, their columns, and r."""
    inside = selection.columns.size == 0 or int(selection.columns.max()) < sum(data.sizes)
    must(inside, "selection", f"must have columns below {sum(data.sizes)}", "one outside")
    many, least = selection.k, selection.r
    for k, r in sorted(set(zip(many.tolist(), least.tolist(), strict=True))):
        must(1 <= r <= k, "r", f"must be between 1 and k = {k}", r)
        rows = np.flatnonzero((many == k) & (least == r))
        for lot in np.array_split(rows, -(-len(rows) * k * data.rows // MOST_ENTRIES)):
            if len(lot):
                # A row holds its k columns in any order, with -1 elsewhere: the k largest are they.
                columns = -np.sort(-selection.columns[lot], axis=1)[:, :k]
                yield torch.from_numpy(lot), torch.from_numpy(columns).to(data.values.device), int(r)


def _successes(p: Tensor, most: int) -> list[Tensor]:
    """P(exactly j of the trials) for j < `most`, adding one trial at a time."""
    shape = (p.shape[0], p.shape[2])
    counts = [torch.ones(shape, dtype=p.dtype, device=p.device)]
    for i in range(p.shape[1]):
        yes, no = p[:, i], 1 - p[:, i]
        longer = [counts[0] * no]
        longer += [counts[j] * no + counts[j - 1] * yes for j in range(1, len(counts))]
        if len(counts) < most:
            longer.append(counts[-1] * yes)
        counts = longer
    return counts


def _exactly(p: Tensor, r: int) -> Tensor:
    k = p.shape[1]
    if r == k:
        return p.prod(1) if k else torch.ones((p.shape[0], p.shape[2]), dtype=p.dtype, device=p.device)
    return _successes(p, r + 1)[r]


def _trials(p: Tensor, r: int) -> Tensor:
    k = p.shape[1]
    if r == k:
        return p.prod(1)
    if 2 * r > k + 1:
        # Count the failures instead: at least r successes are at most k - r failures.
        return torch.stack(_successes(1 - p, k - r + 1)).sum(0)
    return 1 - torch.stack(_successes(p, r)).sum(0)


def _partitions(p: Tensor, r: int) -> Tensor:
    k = p.shape[1]
    out = torch.zeros_like(p[:, 0])
    for size in range(r, k + 1):
        for plus in combinations(range(k), size):
            minus = [i for i in range(k) if i not in plus]
            out = out + p[:, list(plus)].prod(1) * (1 - p[:, minus]).prod(1)
    return out


def _inclusion(p: Tensor, r: int) -> Tensor:
    k = p.shape[1]
    coefficients = at_least_coefficients(r, k)
    out = torch.zeros_like(p[:, 0])
    for size in range(r, k + 1):
        for some in combinations(range(k), size):
            out = out + float(coefficients[size]) * p[:, list(some)].prod(1)
    return out
