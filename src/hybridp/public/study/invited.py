"""The kinds of questions that local people can answer only when they have been sent an invitation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hybridp.public.study.fields import at_least, between_0_and_1, field
from hybridp.public.study.question import KINDS, Question, named
from hybridp.public.study.questions import MISSINGS, Number, check_box, check_missings
from hybridp.public.study.regression import Regression

__all__ = ["INVITED", "Points", "Records", "needs_invitation"]

RECORD_ESTIMATORS = {
    "alike": "assumes that both groups are alike: anchored where a formula finds that cheap, else hybrid",
    "hybrid": "by the groups' errors, record by record",
    "anchored": "the same, and dishonest reports move a trusted share by little",
}

@dataclass(frozen=True, kw_only=True)
class Records(Question):
    """The most frequent records: discovered by the trusted, then counted by everybody."""

    kind: ClassVar[str] = "records"
    _what: ClassVar[str] = "a question of kind records"

    columns: tuple[str, ...] = field(help="The record's column, or two: query and url.", check=named, option="record")
    head: int = field(50, help="The most queries to keep (M).", check=at_least(1, 10_000))
    discovery_share: float = field(0.95, help="Trusted people used to discover.", check=between_0_and_1)
    reuse: bool = field(True, help="Blend the discovery group's noisy counts too.")
    estimator: str = field("alike", help="How far reports move what the trusted counted.", choices=RECORD_ESTIMATORS)
    max_records: int = field(
        100, help="The most records that one person may send to the service.", check=at_least(1, 1000), option=""
    )
    max_length: int = field(
        200, help="The most characters of a record that is sent to the service.", check=at_least(1, 1000), option=""
    )

    def check(self) -> None:
        self.must(len(self.columns) in (1, 2), "columns", "must be one column, or two: query and url",
                  len(self.columns))  # fmt: skip
        self.must(len(set(self.columns)) == len(self.columns), "columns", "must have different names", "a name twice")

    @property
    def columns_read(self) -> tuple[str, ...]:
        return self.columns


@dataclass(frozen=True, kw_only=True)
class Points(Question):
    """Points in a public box, to be clustered around K centres."""

    kind: ClassVar[str] = "points"
    _what: ClassVar[str] = "a question of kind points"

    columns: tuple[str, ...] = field(help="The columns of the coordinates.", check=named)
    lower: tuple[float, ...] = field(help="Public lower bounds: one for all columns, or one for each.")
    upper: tuple[float, ...] = field(help="Public upper bounds: one for all columns, or one for each.")
    missing: tuple[float | str, ...] = field((), help=MISSINGS)
    clusters: int = field(help="How many centres (K).", check=at_least(1))
    iterations: int | None = field(
        None, help="The most questions to anyone. Default: planned from public numbers.", check=at_least(1)
    )

    def check(self) -> None:
        check_box(self)
        check_missings(self)

    @property
    def columns_read(self) -> tuple[str, ...]:
        return self.columns


INVITED = (Records, Points, Regression)


def needs_invitation(question: Question) -> bool:
    """Whether local people can answer only what they have been sent: these kinds, and the steered mean of a number."""
    mean = isinstance(question, Number) and question.form == "steered" and question.statistics == ("mean",)
    return isinstance(question, INVITED) or mean


KINDS |= {one.kind: one for one in INVITED}
