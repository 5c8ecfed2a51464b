"""An answer by group: which column says who is in which, whether everybody may know it, and what becomes of small ones.

A **public** group is known to all, as the choice of trust is: every group is a study of its own, nobody is in two, and
one promise pays for all of them (parallel composition; McSherry 2009, Theorem 4). A **private** group is an answer
too: group and value are asked for together, and the promise covers both (`Joint`).

>>> asked = Grouping("dept", ("sales", "law", "post"), least=20)
>>> asked.arranged({"sales": 90, "law": 12, "post": 9})
({'sales': ('sales',), 'other': ('law', 'post')}, ())
>>> asked.arranged({"sales": 90, "law": 12, "post": 0})
({'sales': ('sales',)}, ('law', 'post'))

Of a value and a private category a person has one vote over the cells of a table. A cell is a category and an answer:
of shares, one of the options; of a number, one of its two public bounds. A person whose number lies at ``u`` between
the bounds (0 the lower, 1 the upper) gives ``u`` of their vote to their category's upper cell and ``1-u`` to its lower
one; so the mean within a category is ``lower + (upper - lower) A/(A + B)`` with A and B its two cells, and the share of
an option likewise is its cell over all cells of the category.

**Trusted people.** A vote is a vector of non-negative cells that add up to 1. A replaced person, whose category may
change with their value, moves the votes by at most ``|u| + |u'| = 2`` in the L1 norm, however many cells there are; and
by at most sqrt 2 in the L2 norm, since the two votes have no negative product and a norm of at most 1 each. Those are
the sensitivities of counts of options (`hybridp.public.shares`), and the noise is theirs. Sums and counts measured
one by one, at half of epsilon each, would have twice the variance. Votes are whole numbers of steps, row by row.

**Local people.** A device rounds the number to one of its bounds at random, the upper with probability u: a vote for a
cell, whose mean is the divided one. Of that cell it sends one report, at the whole of epsilon. For all values x, x' and
every report r, ``P(r|x) = sum_c P(c|x) M(r|c) <= max_c M(r|c) <= e^eps min_c M(r|c) <= e^eps P(r|x')``: whatever is
rounded before it, the report is as private as its oracle M says.

>>> asked = Joint(Feature.categorical("dept", ["sales", "law"]), "pay", Bounds(0, 200_000))
>>> asked.cells.values
('sales: 200000', 'sales: 0', 'law: 200000', 'law: 0')
>>> asked.noise(PureDP(1.0)).mechanism.sensitivity == 2 * STEPS
True
>>> asked.invite(PureDP(1.0)).text
'k-rr(epsilon=1.0,options=4 7cfd955b685e4773) on `pay by dept`'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from hybridp.errors import InvalidInput, UnusablePublicRows, must
from hybridp.public.mechanisms import ApproxDP, NoiseName, PureDP
from hybridp.public.messages import Invite
from hybridp.public.queries import Feature
from hybridp.public.randomisers import Bounds, share_oracle
from hybridp.public.shares import CountNoise, OnOptions, count_noise

__all__ = ["ALL", "OTHER", "POPULATION", "STEPS", "Grouping", "Joint"]

OTHER, ALL, POPULATION = "other", "all", "population"


@dataclass(frozen=True, slots=True)
class Grouping:
    """By which column, and the public rules. `names` may be left out of a public one, whose column then lists them.

    Groups of fewer than `least` people are merged into `other`; that one is withheld if it still has fewer. People are
    counted where the group is public, and where it is private the noisy counts decide. `compare` asks for differences
    between all pairs of groups ("all") or from one of them; `joint` for intervals that hold all together. `population`
    is how many people of a population are in each of the named groups, whoever took part: its answer is given too.
    """

    column: str
    names: tuple[str, ...] = ()
    private: bool = False
    least: int = 1
    compare: str | None = None
    joint: bool = False
    population: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.population:
            rule = f"must say of each of the {len(self.names)} categories how many people are in it, of some any"
            each = len(self.population) == len(self.names) and min(self.population) >= 0 < sum(self.population)
            must(each, "population", rule, self.population)
            must(not self.private, "population", "must go with groups that everybody may know", "private ones")
            must(POPULATION not in self.names, "categories", "must not name one `population` beside it", POPULATION)
        must(len(set(self.names)) == len(self.names), "categories", "must all be different", "one twice")
        enough = len(self.names) >= 2 or not self.private
        must(enough, "categories", "must list at least 2 public names where the group is private", len(self.names))

    @property
    def unlisted(self) -> str:
        """What becomes of people in none of the listed private groups, whom nobody can refuse: for receipts and plans.

        >>> Grouping("dept", ("sales", "others"), private=True).unlisted
        'a `dept` that is missing or not listed counts as `others`'
        """
        return f"a `{self.column}` that is missing or not listed counts as `{self.names[-1]}`" * self.private

    def sized(self, sizes: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
        """The people of a public grouping by their listed names, if any; whoever is in none of them is refused."""
        if not self.names:
            return dict(sizes)
        if any(name not in self.names for name in sizes):
            raise UnusablePublicRows(
                f"Column `{self.column}` must hold one of the listed categories in every row: list all, or none."
            )
        return {name: sizes.get(name, (0, 0)) for name in self.names}

    def arranged(self, sizes: Mapping[str, float]) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
        """Which groups are answered for, and of which each is made, by their sizes; and those that are withheld."""
        small = [name for name, size in sizes.items() if size < self.least]
        large = [name for name in sizes if name not in small and (name != OTHER or not small)]
        kept: dict[str, tuple[str, ...]] = {name: (name,) for name in large}
        if not small:
            return kept, ()
        merged = tuple(name for name in sizes if name not in kept)
        if sum(sizes[name] for name in merged) < self.least:
            return kept, merged
        return {**kept, OTHER: merged}, ()

    def weights(self, groups: Mapping[str, tuple[str, ...]]) -> tuple[float, ...]:
        """The share of the population in each of the groups that are left; nothing where it is not known."""
        known = dict(zip(self.names, self.population, strict=False))
        sizes = [sum(known.get(member, 0.0) for member in members) for members in groups.values()]
        must(not known or sum(sizes) > 0, "population", "must be in a group that is not withheld", "nobody")
        return tuple(size / sum(sizes) for size in sizes) if known else ()

    def must_remain(self, sizes: Mapping[str, int]) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
        """The same by public counts, under which a rule may refuse."""
        empty = [name for name, size in sizes.items() if size == 0]
        left = f"nobody in `{', '.join(empty)}`: leave it out, or give --least"
        must(not empty or self.least > 1, "categories", "must have somebody in each", left)
        groups, withheld = self.arranged(sizes)
        must(bool(groups), "least", "must leave a group of so many people", f"{self.least:,}, and none is left")
        if self.compare not in (None, ALL, *groups):
            raise InvalidInput(f"`compare` must be `{ALL}`, or one of the groups that are left. Got `{self.compare}`.")
        return groups, withheld

    def pairs(self, names: Sequence[str]) -> list[tuple[int, int]]:
        """Which group less which, by their places."""
        if self.compare == ALL:
            return list(combinations(range(len(names)), 2))
        if self.compare not in names:
            return []
        base = names.index(str(self.compare))
        return [(i, base) for i in range(len(names)) if i != base]


STEPS = 2**20
"""Parts that a vote is divided into: values of a number are told apart to a millionth of the bounds' width."""


@dataclass(frozen=True, slots=True)
class Joint:
    """A private category, `by`, with the answers of one column: its options, or the bounds of a number."""

    by: Feature
    value: str
    answers: Feature | Bounds

    @property
    def size(self) -> int:
        """Cells of one category."""
        return 2 if isinstance(self.answers, Bounds) else self.answers.size

    @property
    def steps(self) -> int:
        """Parts of a person's vote."""
        return STEPS if isinstance(self.answers, Bounds) else 1

    @property
    def cells(self) -> Feature:
        """All cells, category by category, as the options of one question."""
        if isinstance(self.answers, Bounds):
            ends = self.answers.upper, self.answers.lower
            words: tuple[str, ...] = tuple(f"{end:.12g}" for end in ends)
            words = words if len(set(words)) == 2 else tuple(map(repr, ends))  # bounds that differ in a late digit
        else:
            words = self.answers.values
        names = tuple(f"{category}: {word}" for category in self.by.values for word in words)
        rule = "must name other groups: with an answer each, written `group: answer`, all must be different"
        must(len(set(names)) == len(names), "categories", rule, f"{len(set(names))} of {len(names)}")
        return Feature(f"{self.value} by {self.by.name}", names)

    def invite(self, guarantee: PureDP | ApproxDP) -> OnOptions:
        """What goes to every device: the cells, and the report on one of them."""
        return Invite(self.cells, share_oracle(guarantee, self.cells.size))

    def noise(self, guarantee: PureDP | ApproxDP, name: NoiseName = "best") -> CountNoise:
        """The noise of the trusted people's cells."""
        return count_noise(guarantee, self.cells.size, name, self.steps)
