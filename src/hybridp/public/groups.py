"""An answer by group: which column says who is in which, whether everybody may know it, and what becomes of small ones.

A **public** group is known to all, as the choice of trust is: every group is a study of its own, nobody is in two, and
one promise pays for all of them (parallel composition; McSherry 2009, Theorem 4). A **private** group is an answer
too: group and value are asked for together, and the promise covers both (`hybridp.public.joint`).

>>> asked = Grouping("dept", ("sales", "law", "post"), least=20)
>>> asked.arranged({"sales": 90, "law": 12, "post": 9})
({'sales': ('sales',), 'other': ('law', 'post')}, ())
>>> asked.arranged({"sales": 90, "law": 12, "post": 0})
({'sales': ('sales',)}, ('law', 'post'))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from hybridp.errors import InvalidInput, UnusablePublicRows, must

__all__ = ["ALL", "OTHER", "Grouping"]

OTHER, ALL = "other", "all"


@dataclass(frozen=True, slots=True)
class Grouping:
    """By which column, and the public rules. `names` may be left out of a public one, whose column then lists them.

    Groups of fewer than `least` people are merged into `other`; that one is withheld if it still has fewer. People are
    counted where the group is public, and where it is private the noisy counts decide. `compare` asks for differences
    between all pairs of groups ("all") or from one of them; `joint` for intervals that hold all together.
    """

    column: str
    names: tuple[str, ...] = ()
    private: bool = False
    least: int = 1
    compare: str | None = None
    joint: bool = False

    def __post_init__(self) -> None:
        must(self.least >= 1, "least", "must be at least 1", self.least)
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

    def must_remain(self, sizes: Mapping[str, int]) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
        """The same by public counts, under which a rule may refuse."""
        empty = [name for name, size in sizes.items() if size == 0]
        if empty and self.least == 1:
            raise InvalidInput(
                f"`categories` must have somebody in each. Got nobody in `{empty[0]}`: leave it out, or give --least."
            )
        groups, withheld = self.arranged(sizes)
        if not groups:
            raise InvalidInput(f"`least` must leave a group of so many people. Got {self.least:,}, and none is left.")
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
