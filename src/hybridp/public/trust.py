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

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias, TypeGuard, overload

from hybridp.errors import must
from hybridp.public.fields import Fields, field, named

__all__ = ["LABEL", "LOCAL", "PUBLIC", "TRUSTED", "Answering", "TrustRule", "Trusts", "drawn_trust", "keyed"]
__all__ += ["label_column", "rule_of", "suggestion"]

TRUSTED, LOCAL = "trusted", "local"
PUBLIC = (
    "Columns of which everybody may know who holds what, exactly: those of groups (by), of own epsilons, and that of "
    "trust where a plan counts it."
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
    key: str | None = dataclasses.field(default=None, repr=False)
    start: float = 0.0
    end: float = 1.0


@dataclass(frozen=True)
class TrustRule(Fields):
    """Who trusts the curator, as a study or a table says it.

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

    _label: ClassVar[str] = "trust."
    _alone: ClassVar[str] = "column"

    column: str | None = field(
        None, help="The column that says whether a person trusts the curator.", check=named, option="trust"
    )
    trusted: tuple[str, ...] = field(
        (), help="The words in it for people who do. Default: trusted.", check=named, option="trusted-value"
    )
    local: tuple[str, ...] = field(
        (),
        help="The words in it for people who do not. Default: local; with trusted given, any other word.",
        check=named,
        option="local-value",
    )
    everyone: str | None = field(
        None,
        help="In place of a column: everyone is trusted, or everyone is local.",
        choices=(TRUSTED, LOCAL),
        option="",
    )
    trial_opt_in: float | None = None
    key: str | None = dataclasses.field(default=None, repr=False)
    answering: Answering | None = None

    def __post_init__(self) -> None:
        for name in ("trusted", "local"):  # a column of 0 and 1, or of booleans, has words too
            object.__setattr__(self, name, _words(getattr(self, name)))
        super().__post_init__()

    def check(self) -> None:
        given = [one for one in (self.column, self.everyone, self.trial_opt_in) if one is not None]
        rule = "must be given, or everyone in its place: trusted or local"
        self.must(len(given) == 1, "column", rule, "both" if given else "neither")
        if (self.trusted, self.local) == ((TRUSTED,), (LOCAL,)):  # which is what a column holds unless it is said
            object.__setattr__(self, "trusted", ())
            object.__setattr__(self, "local", ())
        stated = bool(self.trusted or self.local)
        must(self.column is not None or not stated, "trusted-value", "must go with the column of trust", "no column")
        must(not self.local or bool(self.trusted), "trusted", "must name at least one word", "none")
        both = sorted({*self.trusted} & {*self.local})
        must(not both, "trusted", "must not mean local as well", ", ".join(both))
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


def _words(given: Any) -> Any:
    if isinstance(given, (list, tuple)):
        return [_words(one) for one in given]
    return str(given).lower() if isinstance(given, int) else given


Trusts: TypeAlias = TrustRule | str
"""A rule, or the name of a column that holds `trusted` or `local`."""


def rule_of(given: Trusts | None) -> TrustRule | None:
    """The rule that a column's name stands for.

    >>> rule_of("trust") == TrustRule("trust", trusted=("trusted",), local=("local",)) == TrustRule("trust")
    True
    """
    return TrustRule(given) if isinstance(given, str) else given


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
