"""A value and a private category, asked for together: one vote a person over the cells of a table.

A cell is a category and an answer: of shares, one of the options; of a number, one of its two public bounds. A person
whose number lies at ``u`` between the bounds (0 the lower, 1 the upper) gives ``u`` of their vote to their category's
upper cell and ``1-u`` to its lower one; so the mean within a category is ``lower + (upper - lower) A/(A + B)``
with A and B its two cells, and the share of an option likewise is its cell over all cells of the category.

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

from dataclasses import dataclass

from hybridp.errors import must
from hybridp.public.bounds import Bounds
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.oracles import share_oracle
from hybridp.public.queries import Feature
from hybridp.public.shares import CountNoise, NoiseName, ShareInvite, count_noise

__all__ = ["STEPS", "Joint"]

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

    def invite(self, guarantee: PureDP | ApproxDP) -> ShareInvite:
        """What goes to every device: the cells, and the report on one of them."""
        return ShareInvite(self.cells, share_oracle(guarantee, self.cells.size))

    def noise(self, guarantee: PureDP | ApproxDP, name: NoiseName = "best") -> CountNoise:
        """The noise of the trusted people's cells."""
        return count_noise(guarantee, self.cells.size, name, self.steps)
