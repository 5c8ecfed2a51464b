"""Noisy marginals -> a graphical model that agrees with them, and records drawn from it. Post-processing.

The model is the exponential family of the measured tables: p(x) proportional to the product of a factor exp(theta_t)
for each table, kept as the calibrated cliques of a junction tree. It is fitted table by table along the tree (iterative
proportional fitting, Jirousek and Preucil 1995), each table's step being exact for

    least relative entropy to the uniform law + sum_t |mu_t - y_t|^2 / (2 lambda_t),   lambda_t = s_t (.1 + 10 s_t),

s_t = sigma_t / people, of which theta_t = (y_t - mu_t) / lambda_t is the dual: an error of a tenth of the noise moves a
cell by a factor of e. The noisier a table is, the less it is followed (10 s_t, but s_t where it has one feature): one
of two features whose noise is a tenth of the people to within that noise, a one-way one where the noise is everybody.
A cell that does not stand out of its noise (`significance`) is a ceiling, as in `hybridp.blend.tables`: its theta is at
most 0. Before the fit the tables are made consistent: what two of them share has one value.

>>> noisy = MeasuredTable((0, 1), np.array([[500, 0], [3, 497]]), 2.0)
>>> model = GraphModel.uniform((2, 2)).fit([noisy], 1000)
>>> bool(abs(model.table((0, 1))[0, 0] - 0.5) < 0.01)
True
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.public.randomisers import Floats
from hybridp.public.synth import MeasuredTable, significance

__all__ = ["Goal", "GraphModel", "consistent", "drawn", "pooled", "together", "tree_cells"]

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
        goals: list[list[Goal]] = [[] for _ in cells]
        for features, y in wanted.items():
            home = tree.home(features)
            assert home is not None
            goals[home].append(Goal.of(features, y, noise[features], tree.cliques[home], sizes))
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
class Goal:
    """One table inside its clique."""

    features: Clique
    wanted: Floats
    ceiling: NDArray[np.bool_]
    slack: float
    axes: tuple[int, ...]
    shape: list[int]

    @staticmethod
    def of(features: Clique, y: Floats, sigma: float, clique: Clique, sizes: Sequence[int]) -> Goal:
        ceiling = y < significance(y.size) * sigma
        shape = [sizes[f] if f in features else 1 for f in clique]
        wanted = np.where(ceiling, np.maximum(y, 0.0), y)
        slack = sigma * (_SLACK + _DOUBT[len(features) > 1] * sigma)
        return Goal(features, wanted, ceiling, slack, _others(clique, features), shape)

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
