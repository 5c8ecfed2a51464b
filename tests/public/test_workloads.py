"""The user's own list of questions about a table."""

from __future__ import annotations

import pytest

from hybridp.errors import InvalidInput
from hybridp.public.queries import Schema, Threshold, listed_workload

SCHEMA = Schema.from_domain({"a": 2, "b": 3, "c": 4, "d": 50})


def test_a_question_is_asked_once() -> None:
    work = listed_workload(SCHEMA, ["c , a", "1-of: a,b", "c,a"])
    assert work.thresholds == (Threshold((2, 0), 2), Threshold((0, 1), 1))


def test_bad_lists_are_refused() -> None:
    with pytest.raises(InvalidInput, match="one of a, b, c, d"):
        listed_workload(SCHEMA, ["a,salary"])
    with pytest.raises(InvalidInput, match="different"):
        listed_workload(SCHEMA, ["a,a"])
