"""Noisy marginals -> a graphical model that agrees with them, and records drawn from it. Post-processing.

The model is the exponential family of the measured tables: p(x) proportional to the product of a factor exp(theta_t)
for each table, kept as the calibrated cliques of a junction tree. It is fitted table by table along the tree (iterative
proportional fitting, Jirousek and Preucil 1995), each table's step being exact for

    least relative entropy to the uniform law + sum_t |mu_t - y_t|^2 / (2 lambda_t),   lambda_t = s_t (.1 + 10 s_t),

s_t = sigma_t / people, of which theta_t = (y_t - mu_t) / lambda_t is the dual: an error of a tenth of the noise moves a
cell by a factor of e. The noisier a table is, the less it is followed (10 s_t, but s_t where it has one feature): one
of two features whose noise is a tenth of the people to within that noise, a one-way one where the noise is everybody.
A cell that does not stand out of its noise (`significance`) is a ceiling, as below: its theta is at
most 0. Before the fit the tables are made consistent: what two of them share has one value.

>>> noisy = MeasuredTable((0, 1), np.array([[500, 0], [3, 497]]), 2.0)
>>> model = GraphModel.uniform((2, 2)).fit([noisy], 1000)
>>> bool(abs(model.table((0, 1))[0, 0] - 0.5) < 0.01)
True

Trusted tables with noise and local reports on them -> one table for each marginal. Post-processing.

Of a cell with share f, the trusted people (n_t, noise of standard deviation sigma people) tell f with the variance
``sigma^2/n_t^2 + f(1-f)/n_t``, the n_j local people who drew its marginal with that of their oracle over n_j. The
blend weighs both by the inverse, cell by cell; f is taken from a first blend with the variances of an empty cell.

Records of a graphical model -> records that also follow noisy marginals which no junction tree could hold together.

Post-processing. First the records get weights (raking, Deming and Stephan 1940), table by table, each step exact for

    least relative entropy to equal weights + sum_t |mu_t - y_t|^2 / (2 lambda_t),

as above. The records are a guess from what was measured before, and the new measurements y_t say
themselves how closely they are to be followed. Let q_t be the records' own table and s_t the noise: |y_t - q_t|^2 less
the noise's part, cells times s_t^2, estimates how much the records miss, r_t. Its scatter is s_t^2 sqrt(2 cells), in
which unit it is at least what all tables miss in the mean. Errors of variance r_t q_t are followed with lambda_t =
s_t^2 / r_t. Then the weights become whole numbers of records, so that the new tables stay as near as these can.

Noisy marginals -> records that agree with them, without following their noise, by way of relaxed rows.

A relaxed row has in every feature a point of the simplex in place of one value: a product distribution over records
(Aydore et al. 2021; Avent 2023, Definition 4.2.6). Gradient steps bring the tables of n' such rows to the measured
ones, and records are drawn from the rows in the end. Post-processing.

Least squares is the wrong loss here. Most cells of a large marginal are empty, the positive half of their noise has
a large sum, and rows that follow it take their mass from the cells that matter: on ADULT (eps = .1, 64 marginals) the
largest error is .33, six times that of the measurements themselves. So only cells that stand out of the noise are
targets. Every other cell is a ceiling: the rows must not exceed max(measured, 0) there, and are free below it.

    loss = sum_t 1/sigma_t^2 [ sum over significant cells (T_t - y_t)^2 + sum over the others (T_t - max(y_t, 0))_+^2 ]

With it the largest error is .030, half of the measurements' own, because marginals that overlap support each other.

>>> noisy = MeasuredTable((0, 1), np.array([[500, 0], [3, 497]]), 2.0)
>>> made = raked(GraphModel.uniform((2, 2)), [], [noisy], 1000, rows=1000, seed=0)
>>> len(made), abs(int((made.sum(axis=1) == 2).sum()) - 497) < 10
(1000, True)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.shares import weigh
from hybridp.errors import must
from hybridp.public.randomisers import Floats, estimate
from hybridp.public.shares import ShareReports
from hybridp.public.synth import MeasuredTable, significance

__all__ = ["Goal", "GraphModel", "blend_tables", "consistent", "drawn", "fit_rows", "pair_sums", "pooled", "raked"]
__all__ += ["round_rows", "sparsemax", "together", "tree_cells"]

Clique = tuple[int, ...]
# Theta's unit, in standard deviations of the noise, and how it grows with the noise (of one-way tables, of others).
_SLACK, _DOUBT = 0.1, (1.0, 10.0)
_TINY = 1e-250
_SMALL, _NEAR = 1 << 14, 1e-9  # cells of a product; how near to 1 a table must sum


def _cliques(sizes: Sequence[int], tables: Iterable[Clique]) -> list[Clique]:
    """The largest cliques after triangulation: the feature whose neighbourhood has the fewest cells goes first."""
    near = [{f} for f in range(len(sizes))]
    for table in tables:
        for f in table:
            near[f].update(table)
    weight = [sum(math.log(sizes[g]) for g in around) for around in near]
    left, result = set(range(len(sizes))), list[set[int]]()
    while left:
        gone = min(left, key=lambda f: (weight[f], f))
        clique = near[gone]
        if not any(clique <= other for other in result):
            result.append(set(clique))
        left.remove(gone)
        for f in clique - {gone}:
            near[f] = (near[f] | clique) - {gone}
            weight[f] = sum(math.log(sizes[g]) for g in near[f])
    return [tuple(sorted(clique)) for clique in result]


def tree_cells(sizes: Sequence[int], tables: Iterable[Clique]) -> int:
    """The cells of a junction tree for these tables: what a model of them would hold.

    >>> tree_cells((2, 3, 4), [(0, 1), (1, 2)]), tree_cells((2, 3, 4), [(0, 1), (1, 2), (0, 2)])
    (18, 24)
    """
    return sum(math.prod(sizes[f] for f in clique) for clique in _cliques(sizes, tables))


@dataclass(frozen=True)
class _Tree:
    """A junction tree: `parent` of every clique but the first of `order`, and the features they share."""

    sizes: tuple[int, ...]
    cliques: list[Clique]
    parent: list[int]
    order: list[int]

    @staticmethod
    def of(sizes: tuple[int, ...], tables: Iterable[Clique]) -> _Tree:
        cliques = _cliques(sizes, tables)
        parent, order, rest = [-1] * len(cliques), [0], set(range(1, len(cliques)))
        best = {j: (len({*cliques[j]} & {*cliques[0]}), 0) for j in rest}
        while rest:
            j = max(rest, key=lambda i: (best[i][0], -i))
            parent[j] = best[j][1]
            rest.remove(j)
            order.append(j)
            for k in rest:
                best[k] = max(best[k], (len({*cliques[k]} & {*cliques[j]}), j), key=lambda pair: pair[0])
        return _Tree(sizes, cliques, parent, order)

    def shared(self, j: int) -> Clique:
        return tuple(sorted({*self.cliques[j]} & {*self.cliques[self.parent[j]]}))

    def home(self, features: Iterable[int]) -> int | None:
        wanted = set(features)
        holding = [i for i, clique in enumerate(self._sets) if wanted <= clique]
        return min(holding, key=lambda i: math.prod(self.sizes[f] for f in self.cliques[i]), default=None)

    @cached_property
    def _sets(self) -> list[frozenset[int]]:
        return [frozenset(clique) for clique in self.cliques]

    @cached_property
    def part(self) -> list[int]:
        """Of every clique the first of those that it hangs together with: cliques that share nothing are apart."""
        result = list(range(len(self.cliques)))
        for j in self.order[1:]:
            if self.shared(j):
                result[j] = result[self.parent[j]]
        return result

    @cached_property
    def part_of_feature(self) -> dict[int, int]:
        return {f: self.part[i] for i, clique in enumerate(self.cliques) for f in clique}

    @cached_property
    def _around(self) -> list[set[int]]:
        near: list[set[int]] = [set() for _ in self.cliques]
        for j in self.order[1:]:
            if self.shared(j):
                near[j].add(self.parent[j])
                near[self.parent[j]].add(j)
        return near

    def between(self, wanted: set[int]) -> dict[int, set[int]]:
        """The neighbours of the cliques between features of one part, without leaves that say nothing of their own."""
        part = self.part_of_feature[next(iter(wanted))]
        cliques, near = self._sets, {i: {*self._around[i]} for i, p in enumerate(self.part) if p == part}
        ends = [i for i, around in near.items() if len(around) == 1]
        while ends:
            j = ends.pop()
            if len(near[j]) == 1:
                (k,) = near[j]
                if wanted & cliques[j] <= cliques[k]:
                    del near[j]
                    near[k].remove(j)
                    if len(near[k]) == 1:
                        ends.append(k)
        return near

    def walk(self) -> list[tuple[str, int]]:
        """Every clique once, from the root down and back up: (what is done, clique)."""
        children: list[list[int]] = [[] for _ in self.cliques]
        for j in self.order[1:]:
            children[self.parent[j]].append(j)
        result, stack = list[tuple[str, int]](), [("fit", self.order[0])]
        while stack:
            result.append(stack.pop())
            what, i = result[-1]
            for j in reversed(children[i]) if what == "fit" else ():
                stack += [("up", j), ("fit", j), ("down", j)]
        return result


def _others(clique: Clique, kept: Iterable[int]) -> tuple[int, ...]:
    inside = set(kept)
    return tuple(axis for axis, f in enumerate(clique) if f not in inside)


def _spread(values: Floats, clique: Clique, kept: Iterable[int], sizes: Sequence[int]) -> Floats:
    """An array over `kept`, in their order within the clique, ready to be broadcast over the clique."""
    inside = set(kept)
    return values.reshape([sizes[f] if f in inside else 1 for f in clique])


@dataclass(frozen=True, eq=False)
class GraphModel:
    """Calibrated clique probabilities, and the factors (logarithms) of the tables that they were fitted to."""

    tree: _Tree
    cells: list[Floats]
    theta: dict[Clique, Floats]

    @staticmethod
    def uniform(sizes: Sequence[int]) -> GraphModel:
        tree = _Tree.of(tuple(sizes), ())
        cells = [np.full([sizes[f] for f in c], 1 / math.prod(sizes[f] for f in c)) for c in tree.cliques]
        return GraphModel(tree, cells, {})

    def fit(self, measured: Sequence[MeasuredTable], people: int, *, sweeps: int = 12) -> GraphModel:
        """The model of these tables, from this one's factors on. The same tables and factors give the same model."""
        must(bool(measured), "tables", "must be at least one", 0)
        sizes = self.tree.sizes
        shares, noise = together(measured, people)
        wanted = consistent(shares, noise, sizes)
        theta = {t: self.theta[t] if t in self.theta else np.zeros(y.shape) for t, y in wanted.items()}
        tree = _Tree.of(sizes, wanted)
        cells = _calibrated(tree, theta)
        goals: list[list[Target]] = [[] for _ in cells]
        for features, y in wanted.items():
            home = tree.home(features)
            assert home is not None
            goals[home].append(Target.of(features, y, noise[features], tree.cliques[home], sizes))
        steps = [(what, i) for what, i in tree.walk() if what == "fit" or tree.shared(i)]
        many = Counter(tree.part[i] for i, some in enumerate(goals) for _ in some)
        for sweep in range(sweeps):
            for what, i in steps:
                if what == "fit":
                    for goal in goals[i]:
                        theta[goal.features] = goal.step(cells[i], theta[goal.features])
                else:
                    _pass(tree, cells, i, up=what == "up")
            if not sweep:  # a step is exact: where a table is alone, one is enough
                steps = [(what, i) for what, i in steps if many[tree.part[i]] > 1]
        for j in tree.order[1:]:
            if tree.shared(j):
                _pass(tree, cells, j, up=False)
        return GraphModel(tree, cells, theta)

    # --- answers ------------------------------------------------------------------------------------------------------

    def table(self, features: Sequence[int]) -> Floats:
        """The probabilities of all cells over these features, in ascending order of the features.

        Beyond one clique: the cliques between them are folded into each other, leaf by leaf.
        """
        wanted, tree = set(features), self.tree
        home = tree.home(wanted)
        if home is not None:
            return np.asarray(self.cells[home].sum(axis=_others(tree.cliques[home], wanted)))
        parts: dict[int, list[int]] = {}
        for f in features:
            parts.setdefault(tree.part_of_feature[f], []).append(f)
        if len(parts) > 1:  # apart are independent
            result = np.ones([1] * len(wanted))
            for some in parts.values():
                result = result * _spread(self.table(some), tuple(sorted(wanted)), some, tree.sizes)
            return result
        near = tree.between(wanted)
        factors = {i: (tree.cliques[i], self.cells[i]) for i in near}
        while len(near) > 1:
            j = min((i for i, around in near.items() if len(around) == 1), key=lambda i: factors[i][1].size)
            k = near.pop(j).pop()
            near[k].remove(j)
            (has, values), (other, into) = factors.pop(j), factors[k]
            both = {*tree.cliques[j]} & {*tree.cliques[k]}
            kept = tuple(f for f in has if f in both or f in wanted)
            between = self.cells[j].sum(axis=_others(tree.cliques[j], both))
            given = values.sum(axis=_others(has, kept)) / _spread(np.maximum(between, _TINY), kept, both, tree.sizes)
            needed = wanted.union(*({*tree.cliques[k]} & {*tree.cliques[i]} for i in near[k]))
            out = tuple(sorted((needed & {*other}) | (wanted & {*kept})))
            name = {f: i for i, f in enumerate(sorted({*other, *kept}))}
            labels = [[name[f] for f in part] for part in (kept, other, out)]
            large = math.prod(tree.sizes[f] for f in name) > _SMALL  # only there a plan is worth its time
            factors[k] = (out, np.einsum(given, labels[0], into, labels[1], labels[2], optimize=large))
        ((has, values),) = factors.values()
        return np.asarray(values.sum(axis=_others(has, wanted)))

    def records(self, rows: int, *, seed: int) -> NDArray[np.uint16]:
        """Records drawn from the model, clique by clique. The seed is public.

        Among the rows that agree on what was drawn before, every value comes as often as its probability says, rounded
        up or down (systematic sampling): records scatter less around the model than independent draws.
        """
        must(rows >= 1, "rows", "must be at least 1", rows)
        rng, tree = np.random.default_rng(seed), self.tree
        out = np.zeros((rows, len(tree.sizes)), dtype=np.uint16)
        known: set[int] = set()
        for j in tree.order:
            clique = tree.cliques[j]
            for f in clique:
                if f in known:
                    continue
                given = [g for g in clique if g in known]
                kept = tuple(sorted([*given, f]))
                joint = np.moveaxis(self.cells[j].sum(axis=_others(clique, kept)), kept.index(f), -1)
                group = np.zeros(rows, np.int64)
                for g in given:
                    group = group * tree.sizes[g] + out[:, g]
                out[:, f] = drawn(joint.reshape(-1, tree.sizes[f]), group, rng)
                known.add(f)
        return out


def drawn(joint: Floats, group: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """A value for every row by its group's law, the rows of a group spread evenly over it (systematic sampling)."""
    rows, values = len(group), joint.shape[1]
    order = np.lexsort((rng.random(rows), group))
    start = np.concatenate([[0], np.flatnonzero(np.diff(group[order])) + 1])
    many = np.diff(np.concatenate([start, [rows]]))
    law = np.maximum(joint[group[order][start]], _TINY)
    steps = np.cumsum(law / law.sum(axis=1, keepdims=True), axis=1)
    steps[:, -1] = 1.0
    owner = np.repeat(np.arange(len(start)), many)
    place = (np.arange(rows) - start[owner] + rng.random(len(start))[owner]) / many[owner]
    result = np.searchsorted((steps + np.arange(len(start))[:, None]).ravel(), place + owner, side="right")
    out = np.empty(rows, dtype=np.int64)
    out[order] = np.clip(result - owner * values, 0, values - 1)
    return out


# --- the fit ----------------------------------------------------------------------------------------------------------


def pooled(tables: Sequence[MeasuredTable]) -> dict[Clique, MeasuredTable]:
    """Each marginal once, its features in rising order: what was measured more than once, averaged by its precision.

    >>> once, twice = (MeasuredTable((0,), np.array([n, 10 - n]), sigma) for n, sigma in ((4, 1.0), (9, 2.0)))
    >>> pooled([once, twice])[(0,)].counts.tolist(), round(pooled([once, twice])[(0,)].sigma, 3)
    ([5, 5], 0.894)
    """
    alike: dict[Clique, list[tuple[NDArray[np.int64], float]]] = {}
    for one in tables:
        features = tuple(sorted(one.features))
        ordered = np.transpose(one.counts, [one.features.index(f) for f in features])
        alike.setdefault(features, []).append((ordered, one.sigma**-2))
    result = {}
    for features, parts in alike.items():
        total = math.fsum(precision for _, precision in parts)
        mean = sum(counts * (precision / total) for counts, precision in parts)
        result[features] = MeasuredTable(features, np.rint(mean).astype(np.int64), total**-0.5)
    return result


def together(measured: Sequence[MeasuredTable], people: int) -> tuple[dict[Clique, Floats], dict[Clique, float]]:
    """Shares of people by sorted features, each table once, and their noise."""
    once = pooled(measured)
    return {t: one.counts / people for t, one in once.items()}, {t: one.sigma / people for t, one in once.items()}


def consistent(shares: dict[Clique, Floats], noise: dict[Clique, float], sizes: Sequence[int]) -> dict[Clique, Floats]:
    """The tables moved, each evenly, so that whatever two of them share has one value: the most precise average.

    From the fewest shared features up, so that what was made equal stays so; every table sums to 1.

    >>> a, b = np.array([0.6, 0.4]), np.array([[0.2, 0.2], [0.3, 0.3]])
    >>> made = consistent({(0,): a, (0, 1): b}, {(0,): 1.0, (0, 1): 1.0}, (2, 2))
    >>> made[(0,)].round(4).tolist(), made[(0, 1)].sum(axis=1).round(4).tolist()
    ([0.5333, 0.4667], [0.5333, 0.4667])
    """
    result = {features: y.copy() for features, y in shares.items()}
    common = {tuple(sorted({*a} & {*b})) for a, b in combinations(result, 2)} | set(result) | {()}
    for part in sorted(common, key=lambda c: (len(c), c)):
        tables = [features for features in result if {*part} <= {*features}]
        if part and len(tables) < 2:
            continue
        rest = {t: math.prod(sizes[f] for f in t if f not in part) for t in tables}
        sums = {t: result[t].sum(axis=_others(t, part)) for t in tables}
        weights = {t: 1 / (noise[t] ** 2 * rest[t]) for t in tables}
        total = math.fsum(weights.values())
        agreed = sum(weights[t] * sums[t] for t in tables) / total if part else 1.0
        for t in tables:
            result[t] += _spread(np.asarray((agreed - sums[t]) / rest[t]), t, part, sizes)
    return result


@dataclass(frozen=True, eq=False)
class Target:
    """One table inside its clique."""

    features: Clique
    wanted: Floats
    ceiling: NDArray[np.bool_]
    slack: float
    axes: tuple[int, ...]
    shape: list[int]

    @staticmethod
    def of(features: Clique, y: Floats, sigma: float, clique: Clique, sizes: Sequence[int]) -> Target:
        ceiling = y < significance(y.size) * sigma
        shape = [sizes[f] if f in features else 1 for f in clique]
        wanted = np.where(ceiling, np.maximum(y, 0.0), y)
        slack = sigma * (_SLACK + _DOUBT[len(features) > 1] * sigma)
        return Target(features, wanted, ceiling, slack, _others(clique, features), shape)

    def step(self, cells: Floats, theta: Floats) -> Floats:
        """The table's new factors; its clique is changed in place. Exact: the table's part of the objective is least.

        With mu the table now and c the logarithm of the norm, the new mu' = mu exp(theta' - theta - c) is lambda w,
        w + ln w = ln(mu/lambda) + y/lambda - theta - c (Wright's omega), and theta' = y/lambda - w, or 0 where a
        ceiling is not reached.
        """
        from scipy.special import wrightomega

        slack = self.slack
        mu = np.maximum(cells.sum(axis=self.axes), _TINY)
        drive = self.wanted / slack
        level, free = np.log(mu / slack) + drive - theta, mu * np.exp(np.minimum(-theta, 500.0)) / slack
        norm = 0.0
        for last in (False, False, False, True):
            w = np.maximum(wrightomega(level - norm), _TINY)
            below = self.ceiling & (drive > w)
            mass = np.where(below, free * math.exp(-norm), w)
            over = float(mass.sum()) * slack - 1
            if last or abs(over) < _NEAR:
                break
            slope = float(np.where(below, mass, w / (1 + w)).sum())
            norm += min(max(over / slack / max(slope, 1e-12), -5.0), 5.0)
        new = np.where(below, 0.0, drive - w)
        cells *= np.exp(np.clip(new - theta - norm, -50, 50)).reshape(self.shape)
        cells /= cells.sum()
        return np.asarray(new)


def _pass(tree: _Tree, cells: list[Floats], j: int, *, up: bool) -> None:
    """What a clique and its parent share is brought from one to the other."""
    p, both = tree.parent[j], tree.shared(j)
    inside = {i: cells[i].sum(axis=_others(tree.cliques[i], both)) for i in (j, p)}
    source, target = (j, p) if up else (p, j)
    ratio = inside[source] / np.maximum(inside[target], _TINY)
    cells[target] *= _spread(np.asarray(ratio), tree.cliques[target], both, tree.sizes)


def _calibrated(tree: _Tree, theta: dict[Clique, Floats]) -> list[Floats]:
    """The cliques' probabilities under the factors: messages up and down the tree, in logarithms."""
    from scipy.special import logsumexp, softmax

    sizes = tree.sizes
    result = [np.zeros([sizes[f] for f in clique]) for clique in tree.cliques]
    for features, values in theta.items():
        home = tree.home(features)
        assert home is not None
        result[home] += _spread(values, tree.cliques[home], features, sizes)
    for j in reversed(tree.order[1:]):  # what a clique says of what it shares, and its own cells given that
        both, p = tree.shared(j), tree.parent[j]
        rest = _others(tree.cliques[j], both)
        said = np.asarray(logsumexp(result[j], axis=rest))
        result[p] += _spread(said, tree.cliques[p], both, sizes)
        result[j] = softmax(result[j], axis=rest)
    result[tree.order[0]] = softmax(result[tree.order[0]])
    for j in tree.order[1:]:
        both, p = tree.shared(j), tree.parent[j]
        result[j] *= _spread(result[p].sum(axis=_others(tree.cliques[p], both)), tree.cliques[j], both, sizes)
    return result


# --- tables of both groups, and records -------------------------------------------------------------------------------


def blend_tables(
    marginals: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], trusted: Sequence[MeasuredTable | None],
    trusted_people: int, local: Sequence[ShareReports | None],
) -> list[tuple[MeasuredTable, MeasuredTable]]:  # fmt: skip
    """One table, in people of both groups, for each of `marginals` (its features and shape), from what each group told
    of it: None where it told nothing, [] for a group of nobody.

    Each comes twice: its sigma is the largest standard deviation of a cell, or their root mean square, by which a fit
    to the whole weighs it.
    """
    people = trusted_people + sum(told.people for told in local if told is not None)
    must(people >= 1, "people", "must be at least 1", people)
    result = []
    for i, (features, shape) in enumerate(marginals):
        shares, variances = _blended(trusted[i] if trusted else None, trusted_people, local[i] if local else None)
        counts = np.rint(shares * people).astype(np.int64).reshape(shape)
        reach = np.sqrt(variances) * people
        sizes = float(reach.max()), float(np.sqrt(np.mean(reach**2)))
        result.append((MeasuredTable(features, counts, sizes[0]), MeasuredTable(features, counts, sizes[1])))
    return result


def _blended(trusted: MeasuredTable | None, people: int, told: ShareReports | None) -> tuple[Floats, Floats]:
    """The shares of all cells, in C order, and their variances."""
    sides: list[Floats] = []
    if trusted is not None:
        sides.append(np.asarray(trusted.counts.reshape(-1) / people, dtype=np.float64))
    if told is not None and told.people:
        sides.append(estimate(told.oracle, told.counts, told.people)[0])
    must(bool(sides), "people", "must be so many that every marginal is drawn by somebody", "fewer")

    share = variance = np.zeros_like(sides[0])
    for _ in range(2):
        variances, at = [], np.clip(share, 0.0, 1.0)
        if trusted is not None:
            variances.append((trusted.sigma / people) ** 2 + at * (1 - at) / people)
        if told is not None and told.people:
            variances.append(told.oracle.variance(at) / told.people)
        share, variance = weigh(np.array(sides), np.array(variances))
    return share, variance


# --- records of a graphical model that follow more tables than it holds -----------------------------------------------

Codes = NDArray[np.uint16]
_SWEEPS, _ROUNDING = 20, 8
_MOST_KEPT = 1 << 25  # cell numbers of records in tables, four bytes each
_LEAST_BATCH = 32


def raked(
    model: GraphModel, known: Sequence[MeasuredTable], new: Sequence[MeasuredTable], people: int, *,
    rows: int, seed: int,
) -> Codes:  # fmt: skip
    """`rows` records that follow all tables, the model being of the `known` ones. Deterministic; the seed is public.

    So that memory is bounded, no more records are drawn and weighted than the tables leave room for.
    """
    must(bool(new), "tables", "must be at least one", 0)
    sizes, most = model.tree.sizes, max(1 << 15, _MOST_KEPT // (len(known) + len(new)))
    records = model.records(min(rows, most), seed=seed)
    shares, noise = together([*known, *new], people)
    wanted = consistent(shares, noise, sizes)
    cells = [_cells(records, features, sizes) for features in wanted]
    slack = _slack(records, sizes, *together(new, people))
    goals = [Target.of(features, y, noise[features], features, sizes) for features, y in wanted.items()]
    goals = [replace(goal, slack=slack.get(goal.features, goal.slack)) for goal in goals]
    weights = _weighted(goals, cells, len(records))
    last = [i for i, goal in enumerate(goals) if goal.features in slack]
    times = _whole(records, weights * rows, [cells[i] for i in last], [goals[i].wanted.size for i in last], seed)
    return np.repeat(records, times, axis=0)


def _cells(records: Codes, features: Sequence[int], sizes: Sequence[int]) -> NDArray[np.int32]:
    result = np.ravel_multi_index(tuple(records[:, f] for f in features), tuple(sizes[f] for f in features))
    return np.asarray(result, dtype=np.int32)


def _slack(
    records: Codes, sizes: Sequence[int], shares: dict[Clique, Floats], noise: dict[Clique, float]
) -> dict[Clique, float]:
    """lambda of every new table, by what the records miss of all of them."""
    missed, scatter = {}, {}
    for features, y in shares.items():
        own = np.bincount(_cells(records, features, sizes), minlength=y.size) / len(records)
        missed[features] = float(((y.ravel() - own) ** 2).sum()) - y.size * noise[features] ** 2
        scatter[features] = noise[features] ** 2 * math.sqrt(2 * y.size)
    mean = math.fsum(missed[t] / scatter[t] for t in shares) / len(shares)
    least = max(mean, 0.5 / math.sqrt(len(shares)))  # half of the mean's own scatter
    return {t: noise[t] ** 2 / max(missed[t], least * scatter[t]) for t in shares}


def _weighted(goals: list[Target], cells: list[NDArray[np.int32]], records: int) -> Floats:
    weights = np.full(records, 1 / records)
    thetas = [np.zeros(goal.wanted.shape) for goal in goals]
    for _ in range(_SWEEPS):
        for i, (goal, cell) in enumerate(zip(goals, cells, strict=True)):
            now = np.bincount(cell, weights=weights, minlength=goal.wanted.size)
            new = np.array(now, dtype=np.float64).reshape(goal.wanted.shape)
            thetas[i] = goal.step(new, thetas[i])
            weights *= np.divide(new.ravel(), now, out=np.ones_like(now), where=now > 0)[cell]
            weights /= weights.sum()
    return weights


def _whole(
    records: Codes, wanted: Floats, cells: list[NDArray[np.int32]], sizes: list[int], seed: int
) -> NDArray[np.int64]:
    """How often each record comes: whole numbers whose tables are near those of the numbers wanted, with their sum.

    From systematic sampling on, records come once more or once less where that brings the tables nearer (squares), in
    batches that become smaller: those of a batch do not see each other.
    """
    rng, rows, many = np.random.default_rng(seed), round(float(wanted.sum())), len(cells)
    order = np.lexsort(records.T[::-1])
    steps = np.floor(np.cumsum(wanted[order]) + rng.random())
    times = np.empty(len(records), dtype=np.int64)
    times[order] = np.diff(steps, prepend=0.0).astype(np.int64)
    starts, total = np.cumsum([0, *sizes[:-1]]), sum(sizes)
    kind: type[np.signedinteger[Any]] = np.int32 if total < 1 << 31 else np.int64
    places = np.stack(cells, axis=1).astype(kind, copy=False)
    places += starts.astype(places.dtype)  # of every record in all tables, one behind the other
    left = np.concatenate(
        [np.bincount(cell, weights=wanted - times, minlength=size) for cell, size in zip(cells, sizes, strict=True)]
    )

    def missed(some: NDArray[np.int64]) -> Floats:
        return np.asarray(left[places[some]].sum(axis=1))

    def move(some: NDArray[np.int64], by: NDArray[np.int64]) -> None:
        times[some] += by
        np.subtract.at(left, places[some].ravel(), np.repeat(by.astype(np.float64), many))

    for sweep in range(_ROUNDING):
        batch = max(_LEAST_BATCH, len(records) >> (5 + sweep))
        for some in np.array_split(rng.permutation(len(records)), math.ceil(len(records) / batch)):
            score = missed(some)
            by = (score > many / 2).astype(np.int64) - ((score < -many / 2) & (times[some] > 0))
            move(some[by != 0], by[by != 0])
    short = rows - int(times.sum())
    while short:
        side = 1 if short > 0 else -1
        allowed = np.arange(len(records)) if side > 0 else np.flatnonzero(times)
        best = np.argsort(-side * missed(allowed), kind="stable")[: min(abs(short), len(allowed))]
        move(allowed[best], np.full(len(best), side))
        short -= side * len(best)
    return times


# --- relaxed rows -----------------------------------------------------------------------------------------------------

Lines = NDArray[np.float32]
"""Relaxed rows, a column each: one line for every value of a feature, or for the values of all features in turn."""
_LARGE, _STEP = 1 << 15, 1 << 19  # Where larger tables have more cells in all, some are looked at in each step,
_EVERY, _SELDOM = 6, 4  # each in one step of 6; and sums of tables in one of 4.
_MOST = 1 << 22  # numbers of one temporary array
_FLOOR = 1e-3  # Adam's small constant, in shares of people: with the usual 1e-8, what nobody measured drifts


def pair_sums(tables: Sequence[MeasuredTable]) -> list[MeasuredTable]:
    """The two-way marginals that measured tables of more features add up to, each once: their most precise average.

    A cell of a large table seldom stands out of the noise, the sum of many of them may. Sums of a table's k cells have
    sqrt(k) times its noise.

    >>> cube = MeasuredTable((0, 1, 2), np.arange(8).reshape(2, 2, 2), 3.0)
    >>> [(pair.features, pair.counts.tolist(), round(pair.sigma, 3)) for pair in pair_sums([cube])][:1]
    [((0, 1), [[1, 5], [9, 13]], 4.243)]
    """
    sums = []
    for table in tables:
        for kept in combinations(range(len(table.features)), 2) if len(table.features) > 2 else ():
            rest = tuple(axis for axis in range(len(table.features)) if axis not in kept)
            pair, counts = tuple(table.features[axis] for axis in kept), table.counts.sum(axis=rest)
            sums.append(MeasuredTable(pair, counts, table.sigma * math.sqrt(table.counts.size / counts.size)))
    return list(pooled(sums).values())


@dataclass(frozen=True, eq=False)
class Goal:
    """A table that rows are moved to. Where `floor` is 0, shares below `wanted` are no error; elsewhere it is -inf.

    With L and R the products of all combinations of lines of the features on its two sides, the table is L R'/n'. For
    a loss with gradient G with respect to it, those with respect to L and R are G R/n' and G' L/n'.
    """

    sides: tuple[tuple[int, ...], tuple[int, ...]]
    wanted: Lines
    floor: Lines
    weight: float
    every: int = 1

    @staticmethod
    def of(table: MeasuredTable, people: int, least: float, every: int) -> Goal:
        """Of a measured table, by its precision over the largest; its weight makes up for steps that do not look."""
        shape, target = table.counts.shape, table.counts > significance(table.counts.size) * table.sigma
        cut = min(range(1, len(shape) + 1), key=lambda at: math.prod(shape[:at]) + math.prod(shape[at:]))
        flat = math.prod(shape[:cut]), math.prod(shape[cut:])
        wanted = (np.maximum(table.counts, 0) / people).astype(np.float32).reshape(flat)
        floor = np.where(target, -np.inf, 0).astype(np.float32).reshape(flat)
        weight = (least / table.sigma) ** 2 * every
        return Goal((table.features[:cut], table.features[cut:]), wanted, floor, weight, every)

    def add_slope(self, blocks: Sequence[Lines], slopes: Sequence[Lines]) -> None:
        """Add the gradient of the weighted squared errors with respect to the features' blocks; rows in lots."""
        rows = blocks[0].shape[1]
        step = max(1, _MOST // sum(self.wanted.shape))
        lots = [slice(low, low + step) for low in range(0, rows, step)]
        error = -self.wanted
        for lot in lots:
            first, last = (_products([blocks[f][:, lot] for f in side], blocks[0][:1, lot]) for side in self.sides)
            error += first @ last.T / np.float32(rows)
        np.maximum(error, self.floor, out=error)
        error *= np.float32(2 * self.weight / rows)
        for lot in lots:
            sides = [[(blocks[f][:, lot], slopes[f][:, lot]) for f in side] for side in self.sides]
            first, last = (_products([block for block, _ in side], blocks[0][:1, lot]) for side in sides)
            _unfold(error @ last, sides[0])
            _unfold(error.T @ first, sides[1])


def _products(blocks: Sequence[Lines], line: Lines) -> Lines:
    """The products of all combinations of lines, in C order (Khatri and Rao); of none, 1 for every row of `line`."""
    out = blocks[0] if blocks else np.ones_like(line)
    for block in blocks[1:]:
        out = (out[:, None] * block[None]).reshape(-1, out.shape[1])
    return out


def _unfold(slope: Lines, blocks: Sequence[tuple[Lines, Lines]]) -> None:
    """From the gradient of a product to those of its blocks, peeling off the last block each time."""
    for i in range(len(blocks) - 1, 0, -1):
        block, into = blocks[i]
        spread = slope.reshape(-1, *block.shape)
        into += np.einsum("abn,an->bn", spread, _products([one for one, _ in blocks[:i]], block))
        slope = np.einsum("abn,bn->an", spread, block)
    if blocks:
        blocks[0][1][:] += slope


def sparsemax(block: Lines) -> None:
    """The closest point of the simplex to every column, in place (Martins and Astudillo 2016).

    It is max(x - tau, 0) with the tau that makes it sum to one, by Newton's method. The sum is convex, piecewise linear
    and falling in tau, so that the method comes to the root from the left after its first step and stops after finitely
    many: three passes, against a sort, where x was on the simplex one small step ago. It starts from 0; from the tau
    that keeps every value, where 0 would keep none.

    >>> numbers = np.array([[0.75], [0.5], [-1.0]])
    >>> sparsemax(numbers)
    >>> numbers.ravel().tolist()
    [0.625, 0.375, 0.0]
    """
    kept = np.maximum(block, 0)
    count = (kept > 0).sum(0)
    tau = np.where(count > 0, (kept.sum(0) - 1) / np.maximum(count, 1), (block.sum(0) - 1) / len(block))
    tau, count = tau.astype(block.dtype), np.where(count > 0, count, len(block))
    while True:
        np.maximum(np.subtract(block, tau, out=kept), 0, out=kept)
        support = (kept > 0).sum(0)
        if np.array_equal(count, support):
            block[:] = kept
            return
        tau += np.maximum((kept.sum(0) - 1) / support, 0).astype(block.dtype)
        count = support


def fit_rows(tables: Sequence[MeasuredTable], sizes: Sequence[int], people: int, *, rows: int, seed: int) -> Lines:
    """So many relaxed rows that follow these tables, from random ones on. Deterministic; the seed is public.

    They are moved to the one-way tables first, then to all.
    """
    from threadpoolctl import threadpool_limits

    must(bool(tables), "tables", "must be at least one", 0)
    lines = np.random.default_rng(seed).random((sum(sizes), rows), dtype=np.float32)
    for block in np.split(lines, np.cumsum(sizes)[:-1]):
        sparsemax(block)
    sums = [pair for pair in pair_sums(tables) if pair.counts.size <= _LARGE]
    least, goals = min(table.sigma for table in tables), list[Goal]()
    large = [table.counts.size for table in tables if table.counts.size > _LARGE]
    seldom = min(_EVERY, len(large), math.ceil(sum(large) / _STEP))
    for i, table in enumerate((*tables, *sums)):
        shape = tuple(sizes[f] for f in table.features)
        must(table.counts.shape == shape, "counts", f"must be a table of shape {shape}", table.counts.shape)
        every = seldom if table.counts.size > _LARGE else _SELDOM if i >= len(tables) else 1
        goals.append(Goal.of(table, people, least, every))
    ones = [goal for goal in goals if len(goal.sides[0] + goal.sides[1]) == 1]
    with threadpool_limits(1, "blas"):  # Threads that wait for small products spin: many times the work itself.
        if 0 < len(ones) < len(goals):
            _descend(lines, sizes, ones, 60, 0.05)
        _descend(lines, sizes, goals, 100, 0.02)
    return lines


def _descend(lines: Lines, sizes: Sequence[int], goals: Sequence[Goal], steps: int, rate: float) -> None:
    """Adam with a short memory of squares (their size falls by orders of magnitude within a fit), then Sparsemax.

    The learning rate falls in a straight line over the second half of the steps.
    """
    slope, mean, square = (np.zeros_like(lines) for _ in range(3))
    blocks, slopes, means, squares = (np.split(one, np.cumsum(sizes)[:-1]) for one in (lines, slope, mean, square))
    for step in range(1, steps + 1):
        slope[:] = 0
        for i, goal in enumerate(goals):
            if (i + step) % goal.every == 0:
                goal.add_slope(blocks, slopes)
        root = (1 - 0.99**step) ** 0.5
        size = np.float32(rate * min(1.0, 2 * (steps - step + 1) / steps) * root / (1 - 0.9**step))
        for x, g, m, s in zip(blocks, slopes, means, squares, strict=True):
            g *= lines.shape[1]  # undoes the mean over rows
            m += np.float32(0.1) * (g - m)
            s += np.float32(0.01) * (g * g - s)
            x -= size * m / (np.sqrt(s) + np.float32(_FLOOR * root))
            sparsemax(x)


def round_rows(lines: Lines, sizes: Sequence[int], records: int, *, seed: int) -> Codes:
    """Records drawn from relaxed rows: all of these serve equally often (up to one), each feature is drawn by itself.

    The expected answer of the records to a query is that of the rows. They scatter less around it than independent
    draws would: every value of a row that serves m times comes m times its share, rounded up or down (`drawn`).

    >>> round_rows(np.array([[0.0], [1.0], [1.0], [0.0]]), (2, 2), 2, seed=1).tolist()
    [[1, 0], [1, 0]]
    """
    must(records >= 1, "rows", "must be at least 1", records)
    rng, many = np.random.default_rng(seed), lines.shape[1]
    serves = np.full(many, records // many)
    serves[rng.choice(many, records % many, replace=False)] += 1
    owner, blocks = np.repeat(np.arange(many), serves), np.split(lines, np.cumsum(sizes)[:-1])
    return np.stack([drawn(block.T.astype(np.float64), owner, rng) for block in blocks], axis=1).astype(np.uint16)
