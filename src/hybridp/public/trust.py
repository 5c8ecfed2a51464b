"""Who trusts: the column that says so and its words, everybody alike, or a share that is drawn for a trial.

The choice is public (docs/privacy-model.md), so that a rule on its words may refuse; and nobody counts as trusted who
did not say so with one of the words that mean it.

>>> TrustRule("consent", trusted=("yes",)).rule
'in `consent`, yes means trusted; any other word, or none, means local'
>>> TrustRule("consent", trusted=("yes",), local=("no", "later")).rule
'in `consent`, yes means trusted; no or later means local'
>>> TrustRule("trust").rule
'`trust` says who is trusted and who is local'
>>> TrustRule(everyone="local").rule
'everybody is local'
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeAlias, TypeGuard, overload

from hybridp.errors import must

__all__ = [
    "LABEL",
    "LOCAL",
    "PUBLIC",
    "TRUSTED",
    "Answering",
    "TrustRule",
    "Trusting",
    "Trusts",
    "drawn_trust",
    "keyed",
    "label_column",
    "rule_of",
    "suggestion",
]

TRUSTED, LOCAL = "trusted", "local"
PUBLIC = (
    "Columns of which everybody may know who holds what, exactly: those of groups (by), of own epsilons, of a query's "
    "WHERE, and that of trust where a plan counts it."
)
"""What it means to declare a column public, for a study's field and a command's option."""
LABEL = "trusted_or_local"  # the column of labels where the table has none of its own
# Words that a question about trust is usually answered with, those that agree and those that do not. Only these are
# repeated in a message: whatever else stands in a column that was taken for one of choices may be somebody's data.
_YES: tuple[str, ...] = ("yes", "y", "true", "t", "1", "ja", "oui", "si", "sí", "in", "opt-in")
_YES += ("agree", "agreed", "accept", "accepted", "consent", "consented", "granted", "central", TRUSTED)
_NO: tuple[str, ...] = ("no", "n", "false", "f", "0", "nein", "non", "out", "opt-out", "disagree")
_NO += ("decline", "declined", "refused", "denied", "none", "never", LOCAL)


@dataclass(frozen=True, slots=True)
class Answering:
    """Of the local people only those who answered one question of several: as a column says or, in a trial, as drawn.

    The trial's draw is a number from 0 to 1, by a hash with a `key`; those from `start` on and below `end` answer.
    """

    question: str
    column: str | None = None
    key: str | None = field(default=None, repr=False)
    start: float = 0.0
    end: float = 1.0


@dataclass(frozen=True, slots=True)
class TrustRule:
    """How a table says who trusts the curator.

    - ``TrustRule("trust")``: the column holds `trusted` or `local`, and any other word is refused.
    - ``TrustRule("consent", trusted=("yes",))``: any other word, and a missing one, means local.
    - ``TrustRule("consent", trusted=("yes",), local=("no",))``: any other word is refused.
    - ``TrustRule(everyone="trusted")`` and ``TrustRule(everyone="local")``: no column is needed.
    - ``TrustRule(trial_opt_in=0.05)``: a trial on raw rows, in which every person trusts with this probability,
      whatever their data. It draws everybody's part itself and protects nobody. Every reading draws anew, unless it
      has a `key`.

    Words are compared letter by letter. A column of truth holds the words `true` and `false`, one of whole numbers
    their digits.
    """

    column: str | None = None
    trusted: tuple[str, ...] = ()
    local: tuple[str, ...] = ()
    everyone: Literal["trusted", "local"] | None = None
    trial_opt_in: float | None = None
    key: str | None = field(default=None, repr=False)
    answering: Answering | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("column", "everyone", "trial_opt_in") if getattr(self, name) is not None]
        one = "must be one of a column, everybody alike, and a share for a trial"
        must(len(given) == 1, "trust", one, " and ".join(given) or "none of them")
        for name in ("trusted", "local"):
            words = getattr(self, name)
            object.__setattr__(self, name, (words,) if isinstance(words, str) else tuple(words))
        if (self.trusted, self.local) == ((TRUSTED,), (LOCAL,)):  # which is what a column holds unless it is said
            object.__setattr__(self, "trusted", ())
            object.__setattr__(self, "local", ())
        stated = bool(self.trusted or self.local)
        must(self.column is not None or not stated, "trusted-value", "must go with the column of trust", "no column")
        must(not self.local or bool(self.trusted), "trusted", "must name at least one word", "none")
        both = sorted({*self.trusted} & {*self.local})
        must(not both, "trusted", "must not mean local as well", ", ".join(both))
        known = self.everyone in (None, TRUSTED, LOCAL)
        must(known, "everyone", "must be trusted or local", self.everyone)
        share = self.trial_opt_in
        must(share is None or 0 < share < 1, "trial-opt-in", "must be strictly between 0 and 1", share)

    @property
    def label(self) -> str:
        """The column that holds `trusted` or `local` once the table is open."""
        return LABEL if self.column is None else self.column

    @property
    def rule(self) -> str:
        """The rule in words, for a receipt."""
        if self.everyone is not None:
            return f"everybody is {self.everyone}"
        if self.trial_opt_in is not None:
            return f"TRIAL: every person was drawn as trusted with probability {self.trial_opt_in:g}; nobody was asked"
        if not self.trusted:
            return f"`{self.column}` says who is trusted and who is local"
        others = " or ".join(self.local) or "any other word, or none,"
        return f"in `{self.column}`, {' or '.join(self.trusted)} means trusted; {others} means local"


class Trusting(Protocol):
    """What a study says of trust."""

    @property
    def stated(self) -> TrustRule: ...


Trusts: TypeAlias = TrustRule | Trusting | str
"""A rule, a study's own words on trust, or the name of a column that holds `trusted` or `local`."""


def rule_of(given: Trusts | None) -> TrustRule | None:
    """The rule that a column's name, or a study, stands for.

    >>> rule_of("trust") == TrustRule("trust", trusted=("trusted",), local=("local",)) == TrustRule("trust")
    True
    """
    if given is None or isinstance(given, TrustRule):
        return given
    return TrustRule(given) if isinstance(given, str) else given.stated


def drawn_trust(given: Trusts | None) -> TypeGuard[TrustRule]:
    """Whether this is a trial in which the groups are drawn."""
    return isinstance(given, TrustRule) and given.trial_opt_in is not None


def keyed(given: TrustRule, words: Sequence[int]) -> TrustRule:
    """The rule with a key of random words: whoever reads the table by it draws the same people."""
    return replace(given, key="".join(f"{word:016x}" for word in words))


@overload
def label_column(given: Trusts) -> str: ...
@overload
def label_column(given: None) -> None: ...
def label_column(given: Trusts | None) -> str | None:
    """The column that holds `trusted` or `local` once the table is open.

    >>> label_column("trust"), label_column(TrustRule(everyone="local"))
    ('trust', 'trusted_or_local')
    """
    rule = rule_of(given)
    return None if rule is None else rule.label


def suggestion(column: str, words: Iterable[str]) -> str:
    """What helps somebody whose column holds these words in place of `trusted` and `local`.

    >>> suggestion("consent", ["no", "yes"])
    ' Got the words no, yes in `consent`. Add --trusted-value yes (in a study: `trust.trusted`).'
    >>> suggestion("consent", ["no", "something personal"])
    ' If other words stand for them, name those that mean trusted: --trusted-value WORD.'
    """
    given = sorted(word for word in words if word)
    if {TRUSTED, LOCAL} <= {*given}:  # the words are known, and others are slips
        return ""
    if given and all(word.strip().lower() in (*_YES, *_NO) for word in given):
        agreeing = [word for word in given if word.strip().lower() in _YES]
        options = " ".join(
            f"--trusted-value {word!r}" if " " in word else f"--trusted-value {word}" for word in agreeing
        )
        advice = f"Add {options or '--trusted-value WORD'} (in a study: `trust.trusted`)."
        return f" Got the words {', '.join(given)} in `{column}`. {advice}"
    if {TRUSTED, LOCAL} & {*given}:
        return ""
    return " If other words stand for them, name those that mean trusted: --trusted-value WORD."
