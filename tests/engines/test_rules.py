"""Who trusts, by a rule: the same people on every engine."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engines.conftest import ENGINES, Columns, fill_postgres, source_of, write_parquet
from tests.queries import figures, number_query

from hybridp.errors import InvalidInput, TrustRule, UnusablePublicRows
from hybridp.noise import seeded
from hybridp.tables import Raw, add_up, open_rows

N = 300
PEOPLE: Columns = {
    "who": ("VARCHAR", [f"p{i % 150}" for i in range(N)]),
    "pay": ("DOUBLE", [float(i % 100) for i in range(N)]),
    "consent": ("VARCHAR", [("yes", "no", "Yes", None, "", "yes ")[i % 6] for i in range(N)]),
    "agreed": ("BOOLEAN", [(True, False, None)[i % 3] for i in range(N)]),
    "code": ("BIGINT", [(1, 0, None)[i % 3] for i in range(N)]),
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, tuple[Any, Any]]:
    """Where each engine has the people: location, and table."""
    file = tmp_path_factory.mktemp("rows") / "people.parquet"
    write_parquet(file, PEOPLE)
    url = request.getfixturevalue("server")
    fill_postgres(url, "worded", PEOPLE)
    return {"duckdb": (str(file), None), "postgresql": (url, "worded"), "spark": (str(file), None)}


def totals(places: dict[str, tuple[Any, Any]], engine: str, rule: TrustRule, **more: Any) -> Raw:
    location, table = places[engine]
    source = source_of(engine, location)
    asked = number_query(
        value="pay", trust=rule.label, lower=0, upper=100, levels=100, local_raw=True, missing="middle"
    )
    with open_rows(source, table=table, trust=rule, threads=2, **more) as rows:
        return add_up(rows, asked)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("rule", "trusted"),
    [
        (TrustRule("consent", trusted=("yes",)), [i for i in range(N) if i % 6 == 0]),
        (TrustRule("consent", trusted=("yes", "Yes")), [i for i in range(N) if i % 6 in (0, 2)]),
        (TrustRule("agreed", trusted=("true",)), [i for i in range(N) if i % 3 == 0]),
        (TrustRule("agreed", trusted=("True",)), []),
        (TrustRule("code", trusted=("1",)), [i for i in range(N) if i % 3 == 0]),
        (TrustRule(everyone="trusted"), [*range(N)]),
        (TrustRule(everyone="local"), []),
    ],
    ids=lambda this: this.rule if isinstance(this, TrustRule) else "",
)
def test_the_same_people_are_trusted_on_every_engine(
    places: dict[str, tuple[Any, Any]], engine: str, rule: TrustRule, trusted: list[int]
) -> None:
    found = totals(places, engine, rule)
    assert (found.trusted_people, found.local_people) == (len(trusted), N - len(trusted))
    assert found.trusted[0] == sum(i % 100 for i in trusted)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_choice_without_a_listed_word_is_refused(places: dict[str, tuple[Any, Any]], engine: str) -> None:
    with pytest.raises(UnusablePublicRows, match=r"must hold `yes` \(trusted\) or `no` \(local\) in every row"):
        totals(places, engine, TrustRule("consent", trusted=("yes",), local=("no",)))
    with pytest.raises(UnusablePublicRows, match="its type is DOUBLE"):
        totals(places, engine, TrustRule("pay", trusted=("1",)))


def test_the_same_people_are_drawn_on_every_engine(places: dict[str, tuple[Any, Any]]) -> None:
    rule = TrustRule(trial_opt_in=0.4)
    found = {engine: figures(totals(places, engine, rule, person="who", rng=seeded(8))) for engine in ENGINES}
    assert found["duckdb"] == found["postgresql"] == found["spark"]
    assert found["duckdb"] != figures(totals(places, "duckdb", rule, person="who", rng=seeded(9)))
    assert 80 < found["duckdb"][0] < 160
    for engine in ("postgresql", "spark"):
        with pytest.raises(InvalidInput, match="`trial-opt-in` must go with --person on this engine"):
            totals(places, engine, rule, rng=seeded(8))
