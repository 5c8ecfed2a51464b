"""Where a table holds what a declared question asks for, and what must be declared before it is opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from hybridp.curator.sources import (
    CHOICES,
    NUMBERS,
    TABLES,
    Columns,
    asks,
    must_be_public,
    unstated,
)
from hybridp.public.messages import MECHANISM
from hybridp.public.study import Declaration, Number, Points, Records, Regression, Vector
from hybridp.public.trust import TrustRule, rule_of

__all__ = ["columns_of", "must_declare", "reports_in", "trust_rule"]


def trust_rule(study: Declaration) -> TrustRule | str:
    """How a table says who trusts: the column's name where it holds `trusted` and `local`, otherwise the rule."""
    rule = rule_of(study.trust)
    assert rule is not None
    return rule.column if rule.column is not None and not rule.trusted else rule


_WAYS = {"choice": CHOICES, "table": TABLES, "": NUMBERS}


def must_declare(study: Declaration, data: Any) -> None:
    """Refuse what is not declared, before anything is opened: that a column is public by whose groups, or own epsilons,
    it is told exactly who holds what; and what a missing field counts as, where no query says that there is none."""
    for asked in study.questions:
        by = asked.groups
        if asks(data) and not asked.says_missing and study.trust.everyone != "local":
            raise unstated(asked.columns_read[0], asked.entry(_WAYS))
        if by is not None and not by.private:
            must_be_public(data, "by", by.column)
    if study.promise.epsilon_column is not None:
        must_be_public(data, "epsilon-column", study.promise.epsilon_column)


def columns_of(study: Declaration, place: int, trust: Any) -> Any:
    """Where a table holds what the question asks for, and the reports on it."""
    study.questions[place].check_table(study)
    return study.questions[place].entry(_COLUMNS)(study, place, trust)


def one_column(study: Declaration, place: int, trust: Any) -> Columns:
    """Where a table holds an option, which says itself what a missing field counts as, and the reports on it."""
    asked, people = study.questions[place], study.people
    report = study.report_columns(asked)[0]
    return Columns(asked.columns_read[0], trust, report, people.column, people.record_key, people.record_id)


def number_columns(study: Declaration, place: int, trust: Any) -> Columns:
    """The same of a number."""
    return replace(one_column(study, place, trust), missing=cast(Number, study.questions[place]).missing)


def reports_in(study: Declaration, place: int) -> tuple[str, ...]:
    """The columns of a table of which one at least is filled where a person reported; none answer an invitation."""
    question = study.questions[place]
    return study.report_columns(question)[: len(getattr(question, "columns", ("one",)))]


def record_columns(study: Declaration, place: int, trust: Any) -> Columns:
    """Where a table holds people's records."""
    asked, people = cast(Records, study.questions[place]), study.people
    return Columns(asked.columns, trust, None, people.column, people.record_key, people.record_id)


def several_columns(study: Declaration, place: int, trust: Any) -> Columns:
    """Where a table holds a vector and the reports on it, the coordinates of points, or predictors and the target."""
    asked = cast(Vector | Points | Regression, study.questions[place])
    *_, mechanism = study.report_columns(asked) or (MECHANISM,)
    report = mechanism.removesuffix("_mechanism")
    return Columns(asked.columns, trust, report, study.people.column, missing=asked.missing or None)


def table_columns(study: Declaration, place: int, trust: Any) -> Columns:
    """Where a table holds the columns of a synthetic one, and the reports on it."""
    asked = study.questions[place]
    report, *_ = study.report_columns(asked) or ("report",)
    return Columns(asked.columns_read, trust, report, words=True)


_COLUMNS: dict[str, Callable[[Declaration, int, Any], Any]] = {
    "choice": one_column, "count": one_column,
    "number": number_columns, "points": several_columns, "records": record_columns, "regression": several_columns,
    "table": table_columns, "vector": several_columns,
}  # fmt: skip
