"""`--by`: a mean or shares of every group."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import SECRET, Runner

PUBLIC = "--public dept,way,nowhere"
MEAN = f"--column pay --trust trust --missing middle --lower 0 --upper 100 --epsilon 1 {PUBLIC} --simulate-local"


@pytest.fixture
def people(tmp_path: Path) -> Path:
    sizes = {"law": 120, "sales": 240, "post": 30, "mail": 10}
    depts = [dept for dept, n in sizes.items() for _ in range(n)]
    rows = [
        f"{20 + i % 7 + 40 * (dept == 'law')},{'car' if i % 3 else 'train'},{dept},{('local', 'trusted')[i % 2]},{i}"
        for i, dept in enumerate(depts)
    ]
    rows[1] = f"{SECRET},{SECRET},law,trusted,1"
    file = tmp_path / "people.csv"
    file.write_text("pay,way,dept,trust,id\n" + "\n".join(rows) + "\n")
    return file


def test_whom_no_listed_private_category_holds_counts_in_the_last_one_as_release_and_plan_say(
    run: Runner, people: Path
) -> None:
    """Of 400 people 120 are in law, and 280 in a category that is missing or not on the list: 70 %."""
    people.write_text(people.read_text().replace(",sales,", ",,"))
    by = "--by dept --by-private --categories law,others"
    said = "a `dept` that is missing or not listed counts as `others`"
    trusting = MEAN.replace("--trust trust", "--everyone trusted").replace("--epsilon 1", "--epsilon 20")
    found = run(f"release mean people.csv {trusting.replace('--simulate-local', '')} {by} --json").document
    law, others = found["questions"]["pay"]["mean_by_group"]["by"]["shares"]
    assert (law, others) == pytest.approx((0.3, 0.7), abs=0.01)
    assert said in found["receipt"]["assumes"]
    plan = f"plan mean --n 400 --opt-in 10% --lower 0 --upper 100 --epsilon 1 {by}"
    assert f"Assumes: {said}." in " ".join(run(plan).out.split())
    public = run(f"{plan.replace('--by-private', '')} --json").document  # where such a row is refused
    assert said not in str(public)


def test_two_waves_are_compared_for_free(run: Runner, people: Path) -> None:
    for name in ("first", "second"):
        assert run(f"release mean people.csv {MEAN} --by dept --seed 4 --out {name}.json").code == 0
    found = run("compare first.json second.json --plot p.png --out c.json --json").document
    told = found["questions"]["pay"]["mean_by_group"]
    assert told["labels"] == ["law", "mail", "post", "sales"]
    assert told["estimate"] == [0.0] * 4  # the same seed
    assert told["p_value"] == [1.0] * 4
    assert found["simulated"]
    assert found["receipt"]["promises"] == []
    assert any("whoever is in both waves has paid for both" in line for line in found["receipt"]["assumes"])
    assert Path("p.png").stat().st_size > 1000
    assert run(f"release mean people.csv {MEAN} --by dept --least 20 --seed 4 --out third.json").code == 0
    left = run("compare first.json third.json --json").document["notes"]
    assert left == ["Only one of the waves answers: mean_by_group of pay: mail."]
    assert run(f"release mean people.csv {MEAN} --by way --seed 4 --out way.json").code == 0
    for second, word in (("people.csv", "a file with a release"), ("way.json", "column dept"), ("no.json", "a file")):
        refused = run(f"compare first.json {second}")
        assert refused.code == 2
        assert word in refused.err
