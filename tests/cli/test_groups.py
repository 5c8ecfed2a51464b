"""`--by`: a mean or shares of every group; what is refused, in one sentence, with nothing charged."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import SECRET, Runner

PUBLIC = "--public dept,way,nowhere"
MEAN = f"--column pay --trust trust --missing middle --lower 0 --upper 100 --epsilon 1 {PUBLIC} --simulate-local"
SHARES = f"--column way --options car,train --missing train --trust trust --epsilon 1 {PUBLIC} --simulate-local"


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


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (f"mean people.csv {MEAN} --by pay", "another column"),
        (f"shares people.csv {SHARES} --by way", "another column"),
        (f"mean people.csv {MEAN} --by trust", "who trusts"),
        (f"mean people.csv {MEAN} --by nowhere", "`by` must be a column"),
        (f"mean people.csv {MEAN} --by dept --least 0", "`least` must be at least 1"),
        (f"mean people.csv {MEAN} --by dept --least 1000", "none is left"),
        (f"mean people.csv {MEAN} --by dept --categories law,sales", "one of the listed categories"),
        (f"mean people.csv {MEAN} --by dept --categories law,sales,post,mail,none", "nobody in `none`"),
        (f"mean people.csv {MEAN} --by dept --categories law,law", "different"),
        (f"mean people.csv {MEAN} --by dept --compare nobody", "`compare` must be"),
        (f"mean people.csv {MEAN} --by dept --least 40 --compare post", "`compare` must be"),
        (f"mean people.csv {MEAN} --least 5", "must go with by"),
        (f"mean people.csv {MEAN} --compare all", "must go with by"),
        (f"mean people.csv {MEAN} --joint", "must go with by"),
        (f"mean holes.csv {MEAN} --by dept", "a group in every row"),
        (f"mean moved.csv {MEAN} --by dept --person id", "one group for each person"),
        (f"mean alone.csv {MEAN} --by dept --estimator tcm-only", "nobody in `mail`"),
        (
            "mean people.csv --column pay --trust trust "
            "--missing middle --lower 0 --upper 9 --epsilon-column id --by dept",
            "left out",
        ),
    ],
)
def test_bad_groups_are_refused_in_one_sentence_and_nothing_is_charged(
    run: Runner, people: Path, line: str, word: str
) -> None:
    text = people.read_text()
    Path("holes.csv").write_text(text.replace(",law,", ",,", 1))
    Path("moved.csv").write_text(text + "3,car,sales,trusted,1\n")
    Path("alone.csv").write_text("\n".join(row.replace("mail,trusted", "mail,local") for row in text.split("\n")))
    refused = run(f"release {line} --ledger l")
    assert refused.code == 2
    assert word in refused.err
    assert refused.err.strip().count("\n") == 0
    assert SECRET not in refused.err
    assert not Path("l").exists()


PRIVATE = "--by dept --by-private --categories law,sales,post,mail"


def test_a_private_category_is_answered_for_merged_and_withheld_by_noisy_counts(run: Runner, people: Path) -> None:
    line = f"release mean people.csv {MEAN.replace('--epsilon 1', '--epsilon 20')} {PRIVATE}"
    found = run(f"{line} --least 80 --compare law --joint --ledger l --plot p.png --seed 8 --json").document
    told = found["questions"]["pay"]["mean_by_group"]
    assert told["by"]["private"]
    assert told["by"]["categories"] == ["law", "sales"]
    assert told["by"]["withheld"] == ["post", "mail"]
    assert told["by"]["shares"] == pytest.approx([0.3, 0.6], abs=0.03)
    assert told["estimate"] == pytest.approx([63, 23], abs=10)  # numbers are rounded to a bound
    assert "people" not in told["by"], "how many people a private category has is not told"
    (gap,) = told["differences"]
    assert (gap["of"], gap["less"]) == ("sales", "law")
    assert gap["interval"][0] < -40 < gap["interval"][1]
    assert any("by noisy counts" in line for line in found["receipt"]["assumes"])
    merged = run(f"{line} --least 35 --seed 8 --json").document["questions"]["pay"]["mean_by_group"]
    assert merged["by"]["members"][-1] == ["post", "mail"]
    none = run(f"{line} --least 5000 --seed 8 --json").document["questions"]["pay"]["mean_by_group"]
    assert none["by"]["categories"] == []
    assert run(f"{line} --least 5000 --seed 2").code == 0
    narrow = run(f"{line} --sd 5 --estimator tcm-only --seed 1 --json").document["questions"]["pay"]["mean_by_group"]
    wide = run(f"{line} --estimator tcm-only --seed 1 --json").document["questions"]["pay"]["mean_by_group"]
    assert narrow["estimate"] == wide["estimate"]
    assert narrow["interval"][1][0] - narrow["interval"][0][0] < wide["interval"][1][0] - wide["interval"][0][0]


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


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (f"mean people.csv {MEAN} --by dept --by-private", "at least 2"),
        (f"mean people.csv {MEAN} --by-private", "must go with by"),
        (f"mean people.csv {MEAN} --by pay --by-private --categories a,b", "another column"),
        (f"mean people.csv {MEAN} {PRIVATE} --estimator anchored", "private category"),
        (f"mean people.csv {MEAN} {PRIVATE} --local laplace", "private category"),
        (f"mean people.csv {MEAN} {PRIVATE} --compare nobody", "`compare` must be"),
        (f"shares people.csv {SHARES} {PRIVATE} --estimator anchored", "private category"),
        (f"shares people.csv {SHARES} --by nowhere --by-private --categories a,b", "`by` must be a column"),
    ],
)
def test_a_bad_private_category_is_refused_in_one_sentence_and_nothing_is_charged(
    run: Runner, people: Path, line: str, word: str
) -> None:
    refused = run(f"release {line} --ledger l")
    assert refused.code == 2
    assert word in refused.err
    assert refused.err.strip().count("\n") == 0
    assert SECRET not in refused.err
    assert not Path("l").exists()


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
    assert "What changed in pay" in run("compare first.json second.json").out
    assert run(f"release mean people.csv {MEAN} --by dept --least 20 --seed 4 --out third.json").code == 0
    left = run("compare first.json third.json --json").document["notes"]
    assert left == ["Only one of the waves answers: mean_by_group of pay: mail."]
    assert run(f"release mean people.csv {MEAN} --by way --seed 4 --out way.json").code == 0
    for second, word in (("people.csv", "a file with a release"), ("way.json", "column dept"), ("no.json", "a file")):
        refused = run(f"compare first.json {second}")
        assert refused.code == 2
        assert word in refused.err


def test_plans_predict_what_releases_show(run: Runner, people: Path) -> None:
    crowd = "--n 400 --opt-in 0.5 --lower 0 --upper 100 --epsilon 4 --sd 5 --by dept --categories law,sales,post,mail"
    line = f"plan mean {crowd} --shares 0.3,0.6,0.075,0.025 --compare law"
    public, private = (
        run(f"{line}{more} --json").document["questions"]["value"]["mean_by_group"] for more in ("", " --by-private")
    )
    errors = public["predicted"]["estimators"]["hybrid"]["rmse_population"]
    # by hand: 60 trusted people of `law` with noise of 100/4 on their sum, and 60 reports
    e = 2.718281828459045**4
    alone, local = 25 / 60 + 2 * 25**2 / 60**2, (25 + 50**2 * min(((e + 1) / (e - 1)) ** 2 - 2 / 3, 0.167)) / 60
    assert errors[0] == pytest.approx((1 / (1 / alone + 1 / local)) ** 0.5, rel=0.02)
    assert any("a release that is told none finds every group's own" in line for line in public["assumes"])
    assert any("the release is told this sd too" in line for line in private["assumes"])
    unknown = run(f"{line.replace(' --sd 5', '')} --by-private --json").document["questions"]["value"]["mean_by_group"]
    assert any("the largest possible is assumed, as a release without one" in line for line in unknown["assumes"])
    wider = private["predicted"]["estimators"]["hybrid"]["rmse_population"]
    assert all(p > q for p, q in zip(wider, errors, strict=True))
    gaps = public["predicted"]["differences"]
    assert [(gap["of"], gap["less"]) for gap in gaps] == [(name, "law") for name in ("sales", "post", "mail")]
    errors = public["predicted"]["estimators"]["everyone"]["rmse_population"]
    assert errors[0] == pytest.approx(0.5 * (alone + local) ** 0.5, rel=0.02)  # each half counts by its people
    assert gaps[0]["standard_error"] == pytest.approx((errors[0] ** 2 + errors[1] ** 2) ** 0.5)
    assert "by dept (private)" in run(f"{line} --by-private --plot p.png").out
    assert Path("p.png").stat().st_size > 1000
    line = "plan shares --options a,b,c --n 9000 --opt-in 0.1 --epsilon 1 --by dept --categories x,y"
    shares = run(f"{line} --json").document
    assert len(shares["questions"]["choice"]["shares_by_group"]["by_option"]["hybrid"][0]) == 3
    Path("study.toml").write_text(
        "schema = 1\npeople.public = ['dept', 'trust']\n[promise]\nepsilon = 2.0\n[trust]\ncolumn = 'trust'\n"
        "[[question]]\nname = 'pay'\nkind = 'number'\n"
        "missing = 'middle'\nlower = 0\nupper = 100\nby = 'dept'\nleast = 40\n"
    )
    told = run("plan study.toml people.csv --json").document["questions"]["pay"]["mean_by_group"]
    assert told["by"]["categories"] == ["law", "sales", "other"]
    assert told["shares"] == pytest.approx([0.3, 0.6, 0.1])
    assert run("plan study.toml people.csv").code == 0
    for bad, word in (
        (f"plan mean {crowd} --shares 0.5,0.5", "shares"),
        (f"plan mean {crowd} --shares a,b,c,d", "shares"),
        ("plan mean --n 400 --opt-in 0.5 --lower 0 --upper 9 --epsilon 1 --by dept", "listed"),
        (f"plan mean {crowd} --rmse 3", "must not join `by`"),
        ("plan study.toml --n 400 --opt-in 0.5", "listed"),
    ):
        refused = run(bad)
        assert refused.code == 2
        assert word in refused.err
