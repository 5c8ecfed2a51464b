"""Where a table holds what a declared question asks for, and what must be declared before it is opened."""

from __future__ import annotations

from typing import Any

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
from hybridp.public.study import Declaration
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


def columns_of(study: Declaration, place: int, trust: Any) -> Columns:
    """Where a table holds what the question asks for, and the reports on it. Options say what a missing field is."""
    question, people = study.questions[place], study.people
    question.check_table(study)
    *_, mechanism = study.report_columns(question) or (MECHANISM,)
    way, several = question.entry(_WAYS), getattr(question, "columns", None)
    value = question.columns_read if way is TABLES else several or question.columns_read[0]
    missing = None if way is not NUMBERS else getattr(question, "missing", None)
    report, person = mechanism.removesuffix("_mechanism"), (people.column, people.record_key, people.record_id)
    return Columns(value, trust, report, *person, None if missing == () else missing, words=way is TABLES)


def reports_in(study: Declaration, place: int) -> tuple[str, ...]:
    """The columns of a table of which one at least is filled where a person reported; none answer an invitation."""
    question = study.questions[place]
    return study.report_columns(question)[: len(getattr(question, "columns", ("one",)))]
