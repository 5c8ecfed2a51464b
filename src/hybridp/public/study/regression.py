"""The question of a regression, declared as fields with their help and check.

>>> Regression(name="hours", target="hours", on=["age,schooling"], lower=[0], upper=[100]).columns
('age', 'schooling', 'hours')
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hybridp.public.regression import MOST_PREDICTORS
from hybridp.public.study.fields import field, positive
from hybridp.public.study.question import Question, named
from hybridp.public.study.questions import MISSINGS, NOISES, check_box, check_missings

__all__ = ["Regression"]

FORMS = {
    "best": "what promises less error",
    "steered": "how far they are from the line of the trusted people",
    "plain": "all products of the columns",
    "tcm-only": "nothing: only the people who trust are heard",
}


@dataclass(frozen=True, kw_only=True)
class Regression(Question):
    """A target explained by several columns; the promise covers all of them together."""

    kind: ClassVar[str] = "regression"
    _what: ClassVar[str] = "a question of kind regression"

    target: str = field(help="The column that is explained.", check=named)
    on: tuple[str, ...] = field(help="The columns that explain it: A,B.", check=named)
    lower: tuple[float, ...] = field(
        help="Public lower bounds: one for all columns, or one for each, the target's last."
    )
    upper: tuple[float, ...] = field(
        help="Public upper bounds: one for all columns, or one for each, the target's last."
    )
    missing: tuple[float | str, ...] = field((), help=f"{MISSINGS} The target's is the last.")
    model: str = field(
        "linear", help="The model: linear, or logistic for a target of 0 and 1.", choices=("linear", "logistic"),
        option="kind",
    )  # fmt: skip
    form: str = field("best", help="What local people are asked.", choices=FORMS)
    clip: float | None = field(
        None,
        help="A public bound on how far a target lies from the line, in the target's unit (in a plan, in half-ranges "
        "of its bounds); what is farther is clipped. "
        "Default: from the trusted people's release.",
        check=positive,
    )
    noise: str = field("best", help="Noise of the trusted group.", choices=NOISES)
    joint: bool = field(False, help="Intervals that hold for all coefficients together.")

    @property
    def columns(self) -> tuple[str, ...]:
        """The predictors, then the target."""
        return (*self.on, self.target)

    def check(self) -> None:
        split = tuple(part.strip() for text in self.on for part in text.split(","))
        object.__setattr__(self, "on", split)
        self.must(all(split), "on", "must be a list such as A,B without empty parts", ",".join(self.on))
        self.must(self.target not in split, "on", "must not name the target, which cannot explain itself", self.target)
        check_box(self)
        few = len(split) <= MOST_PREDICTORS
        self.must(few, "on", f"must name 1 to {MOST_PREDICTORS} columns", len(split))
        check_missings(self)
        if self.model == "logistic":
            last = self.lower[-1], self.upper[-1]
            rule = "must bound the target of a logistic regression by 0 and 1"
            self.must(last == (0, 1), "upper", rule, f"{last[0]:g} and {last[1]:g}")
            rule = "must not be plain for a logistic regression: its steps need answers about other lines, and a person"
            self.must(self.form != "plain", "form", f"{rule} answers once", self.form)
            self.must(self.clip is None, "clip", "must go with a linear regression", self.clip)

    @property
    def columns_read(self) -> tuple[str, ...]:
        return self.columns
