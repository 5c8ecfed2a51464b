"""The study, declared once: what is written is what is read, what is wrong is refused in a sentence, parts add up."""

from __future__ import annotations

import math
import tomllib
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.questions import question

from hybridp.errors import Fields, InvalidInput, TrustRule, declared
from hybridp.public.mechanisms import ApproxDP, PureDP, split
from hybridp.public.questions import KINDS, to_toml
from hybridp.public.study import Collection, Declaration, People, Promise, Question

SALARY = question("salary", "number", upper=200_000)
AGE = question("age", "number", upper=120, weight=3)
PLACE = question("place", "points", "x", "y", upper=[1, 2], clusters=3)
SEARCH = question("search", "records", "query", "url", head=20)
BODY = question("body", "vector", "height", "weight", upper=[250, 300])
WORK = question("work", "regression", target="hours", on=["age", "years"], upper=[90, 9, 99])
HOME = {
    "name": "home",
    "kind": "table",
    "features": [{"name": "sex", "values": ["F", "M"]}, {"name": "years", "edges": [0, 18, 65, 120]}],
    "marginals": ["sex,years"],
}
TRUST = {"column": "consent", "trusted": ["yes"], "local": ["no"]}


def declare(**changes: object) -> Declaration:
    stated: dict[str, object] = {"title": "Pay", "promise": {"epsilon": 1.0}, "trust": TRUST, "questions": [SALARY]}
    return Declaration(**{**stated, **changes})  # type: ignore[arg-type]


WAY = {"name": "way", "kind": "choice"}
TICKS = {**WAY, "options": ["a", "b", "c"], "several": 2}
STUDIES = {
    "number": declare(),
    "two": declare(
        questions=[SALARY, AGE], promise={"epsilon": 1.0, "delta": 1e-7, "trusted_epsilon": 2, "several": "split"}
    ),
    "vector": declare(questions=[BODY]),
    "records": declare(questions=[SEARCH], promise={"epsilon": 4, "delta": 1e-6}, people={"column": "id"}),
    "points": declare(questions=[PLACE]),
    "regression": declare(questions=[SALARY, WORK], promise={"epsilon": 1.0, "trusted_epsilon": 2}),
    "table": declare(questions=[HOME], promise={"epsilon": 1, "delta": 1e-6}, trust={"everyone": "trusted"}),
    "mixed table": declare(questions=[HOME], promise={"epsilon": 1, "delta": 1e-6}),
    "personal": declare(promise={"epsilon_column": "eps", "share": 0.5}),
    "service": declare(
        asked_by='The "town"\\council',
        people={"column": "id", "trusted": 100, "local": 5000},
        collection={"closes": "2031-05-01T12:00:00+02:00", "min_batch": 50, "by_invitation": True},
    ),
}


def asked(*statistics: str, **more: Any) -> dict[str, Any]:
    return {"questions": [{**SALARY, "statistics": list(statistics), **more}]}


@pytest.mark.parametrize("name", STUDIES)
def test_what_is_written_is_what_is_read(name: str, tmp_path: object) -> None:
    from pathlib import Path

    study, file = STUDIES[name], Path(str(tmp_path), "study.toml")
    study.write(file)
    assert Declaration.read(file) == study
    assert Declaration.of(study.to_dict()) == study
    assert tomllib.loads(file.read_text())["schema"] == 1
    with pytest.raises(InvalidInput, match="must name a new file"):
        study.write(file)


def test_every_line_of_a_written_file_is_explained_by_the_fields_help() -> None:
    lines = to_toml(STUDIES["service"]).splitlines()
    keys = [i for i, line in enumerate(lines) if " = " in line and not line.startswith("#")]
    assert len(keys) > 10
    assert all(lines[i - 1].startswith("# ") for i in keys)
    helps = {one.name: one.help for one in declared(Collection)}
    assert f"# {helps['min_batch']}" in lines


def test_every_field_of_every_kind_has_help_and_a_default_that_obeys_its_own_check() -> None:
    for of in (Declaration, Promise, TrustRule, People, Collection, *KINDS.values()):
        for one in declared(of):
            assert one.help.endswith("."), one.name
            values = one.default if isinstance(one.default, tuple) else (one.default,)
            if one.default is None or one.required or one.form in ("table", "tables"):
                continue
            if one.choices:
                assert set(values) <= set(one.choices), one.name
            elif one.check is not None:
                assert all(one.check.ok(v) for v in values), one.name


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"promise": {"epsilon": -1}}, r"`promise.epsilon` must be positive and finite, such as 1.0. Got -1."),
        ({"promise": {}}, r"`promise.epsilon` must be given, or epsilon_column"),
        ({"promise": {"epsilom": 1}}, r"`promise.epsilom` must be left out.* Did you mean `epsilon`"),
        ({"promise": {"epsilon": math.nan}}, r"`promise.epsilon` must be a finite number. Got nan."),
        ({"promise": {"epsilon": True}}, r"`promise.epsilon` must be a finite number. Got True."),
        ({"promise": {"epsilon": 1, "epsilon_column": "e"}}, r"`promise.epsilon` must not go with everyone's own"),
        ({"promise": {"epsilon": 1, "delta": 1}}, r"`promise.delta` must be at least 0 and less than 1. Got 1."),
        ({"promise": {"epsilon": 1e-12}, "questions": [SALARY, AGE]}, r"must leave some epsilon to every part"),
        ({"trust": {}}, r"`trust.column` must be given, or everyone in its place: trusted or local. Got neither."),
        ({"trust": {"column": "c", "everyone": "local"}}, r"`trust.column` .* Got both."),
        ({"trust": {"column": "c", "trusted": ["a"], "local": ["a"]}}, r"`trusted` must not mean local as well"),
        ({"trust": {"column": "c", "local": ["no"]}}, r"`trusted` must name at least one word. Got none."),
        ({"trust": {"everyone": "local", "trusted": "yes"}}, r"must go with the column of trust"),
        ({"trust": {"everyone": "nobody"}}, r"`trust.everyone` must be one of trusted, local. Got 'nobody'."),
        ({"questions": []}, r"`questions` must hold at least one. Got none."),
        ({"questions": [SALARY, {**SALARY, "name": "SALARY"}]}, r"`name` must be a question's own"),
        ({"questions": [{"name": "x"}]}, r"`x.kind` must be given: one of number, choice, count, vector"),
        ({"questions": [{"name": "x", "kind": "numbr"}]}, r"`x.kind` must be one of .* Did you mean `number`"),
        ({"questions": [{"name": "x", "kind": "number", "lower": 0}]}, r"`x.upper` must be given: public upper bound"),
        ({"questions": [{**BODY, "columns": []}]}, r"columns` must be 1 to 10,000. Got 0."),
        ({"questions": [{**SALARY, "uper": 1}]}, r"`salary.uper` must be left out: .* Did you mean `upper`"),
        ({"questions": [{**SALARY, "upper": 0}]}, r"`salary.upper` must be greater than lower \(0\). Got 0."),
        ({"questions": [{**SALARY, "upper": math.inf}]}, r"`salary.upper` must be a finite number. Got inf."),
        ({"questions": [{**SALARY, "upper": "200000"}]}, r"`salary.upper` must be a finite number. Got '200000'."),
        ({"questions": [{**SALARY, "estimator": "kvh"}]}, r"`salary.sd` must be given for the estimator kvh"),
        ({"questions": [{**SALARY, "estimator": "fixed"}]}, r"`salary.trusted_weight` must be given for the estimator"),
        ({"questions": [{**SALARY, "statistics": ["quantiles"], "at": [0.5], "form": "steered", "by": "town"}]},
         r"`salary.by` must be left out where trusted people are asked first"),
        ({"questions": [{**SALARY, "sd": 150_000}]}, r"`salary.sd` must be at most 100000 for these bounds"),
        ({"questions": [{**BODY, "estimator": "full-lm"}]}, r"`body.estimator` must be one of"),
        ({"questions": [{**SALARY, "estimator": "unified"}]}, r"`salary.estimator` must go with everyone's own"),
        ({"questions": [{**SALARY, "statistics": ["median"]}]}, r"`salary.statistics` must be"),
        ({"questions": [{**SALARY, "noise": "gaussian"}]}, r"`promise.delta` must be positive for the Gaussian"),
        (asked("quantiles"), r"`salary.at` must be given exactly when statistics names quantiles. Got nothing."),
        (asked("mean", at=[0.5]), r"`salary.at` must be given exactly when statistics names quantiles. Got 1."),
        (asked("quantiles", at=[1.0]), r"`salary.at` must be strictly between 0 and 1. Got 1"),
        (asked("shares-above", above=[-1]), r"`salary.above` must lie between 0 and 200000. Got -1."),
        (asked("histogram", edges=[0, 20, 10]), r"`edges of salary` must be .* each above the one before. Got 0, 20"),
        (asked("histogram", edges=[0, 10, 3e5]), r"`salary.edges` must lie within the bounds, 0 to 200000. Got 0 to"),
        (asked("gini", lower=-1), r"`salary.statistics` must not be asked for where the lower bound is negative"),
        (asked("sd", estimator="full-lm"), r"`salary.estimator` must not be full-lm where more than the mean"),
        ({"questions": [{"name": "smokes", "kind": "count"}]}, r"`smokes.value` must be given"),
        ({**asked("sum"), "promise": {"epsilon_column": "own"}}, r"`salary.statistics` must be the mean alone, or"),
        ({"questions": [{**BODY, "upper": [1, 2, 3]}]}, r"`body.upper` must be one number, or one for each of the 2"),
        ({"questions": [SEARCH], "promise": {"epsilon": 1, "delta": 1e-6}}, r"`people.column` must be given for s"),
        ({"questions": [SEARCH]}, r"`promise.delta` must be positive for search, a question of kind records"),
        ({"questions": [{**HOME, "method": "tables"}], "promise": {"epsilon": 1, "delta": 1e-6}},
         r"`home.method` must be left out where local people take part.* Got tables."),
        ({"questions": [SALARY, AGE], "promise": {"epsilon_column": "e"}}, r"`salary` must be the only one where"),
        ({"questions": [{"name": "way", "kind": "choice", "options": ["a", "b"], "missing": "exclude"}],
          "promise": {"epsilon_column": "e", "allowed_epsilons": [1]}}, "`way.missing` must not be exclude where"),
        ({"questions": [SALARY, {**AGE, "column": "Salary"}]}, r"`age.column` must not be read by another question"),
        ({"questions": [PLACE], "people": {"column": "id"}}, r"`people.column` must be left out with place, .* row"),
        ({"questions": [HOME], "people": {"column": "id"}, "promise": {"epsilon": 1, "delta": 1e-6},
          "trust": {"everyone": "trusted"}}, r"`people.column` must be left out with home, a question of kind table"),
        ({"questions": [{**WORK, "on": ["age", "hours"]}]}, r"`work.on` must not name the target"),
        ({"questions": [{**WORK, "model": "logistic"}]}, r"`work.upper` must bound the target .* by 0 and 1. Got 0"),
        ({"questions": [{**WORK, "model": "logistic", "upper": 1, "form": "plain"}]}, r"`work.form` must not be plain"),
        ({"questions": [{**WORK, "model": "logistic", "upper": 1, "clip": 1}]}, r"`work.clip` must go with a linear"),
        ({"questions": [{**WORK, "on": [f"c{i}" for i in range(99)], "upper": 1}]}, r"`work.on` must name 1 to"),
        ({"questions": [{**WORK, "noise": "gaussian"}]}, r"`promise.delta` must be positive for the Gaussian noise"),
        ({"questions": [SALARY, WORK], "promise": {"epsilon": 1, "several": "drawn"}},
         r"`promise.several` must be split, or left out: `work` is of kind regression, which everybody answers"),
        ({"questions": [{**WAY, "options": ["a"]}]}, "at least 2"),
        ({"questions": [{**WAY, "options": ["a", "a"]}]}, "different"),
        ({"questions": [{**WAY, "options": ["a", "b"], "other": "a"}]}, "different"),
        ({"questions": [{**WAY, "options": ["a", "b"], "edges": [1, 2, 3]}]}, "edges"),
        ({"questions": [{**WAY, "edges": [3, 2, 1]}]}, "each above"),
        ({"questions": [WAY]}, "neither"),
        ({"questions": [{**TICKS, "several": 9}]}, r"`several` must be at most the number of options"),
        ({"questions": [{**TICKS, "other": "none"}]}, r"`way.other` must be left out where several may be ticked"),
        ({"questions": [{**TICKS, "noise": "gaussian"}], "promise": {"epsilon": 1, "delta": 1e-6}},
         r"`way.noise` must be left out where several may be ticked"),
        ({"questions": [{**TICKS, "options": ["a;b", "c"]}]}, r"`values of way` must hold no `;`"),
        ({"questions": [{**TICKS, "options": [], "edges": [0, 1, 2]}]}, r"`way.several` must go with options"),
        ({"level": 1}, r"`level` must be strictly between 0 and 1. Got 1."),
        ({"title": "two\nlines"}, r"`title` must be text of one line."),
        ({"people": {"record_key": "r"}}, r"`people.column` must go with record_key. Got nothing."),
        ({"collection": {"closes": "soon"}}, r"`collection.closes` must be a moment with its time zone"),
        ({"collection": {"closes": "2030-01-01T00:00:00"}}, r"`collection.closes` must be a moment with its time zone"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_when_it_is_declared(changes: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as refused:
        declare(**changes)
    assert "\n" not in str(refused.value)


def test_a_missing_field_of_the_study_itself_is_a_sentence_too() -> None:
    with pytest.raises(InvalidInput, match=r"`questions` must be given: what is asked. Got nothing."):
        Declaration(promise=1, trust="trust")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"`schema` must be 1, the version that this hybridp reads. Got 2."):
        Declaration.of({**STUDIES["number"].to_dict(), "schema": 2})


def test_files_that_are_no_study_are_refused_in_a_sentence(tmp_path: object) -> None:
    from pathlib import Path

    folder = Path(str(tmp_path))
    for content, said in [
        (b"title = ", "must be a TOML file"),
        (b"\xff\xfe", "must be a file in UTF-8"),
        (b'title = "a"', "`promise` must be given"),
    ]:
        file = folder / "study.toml"
        file.write_bytes(content)
        with pytest.raises(InvalidInput, match=said):
            Declaration.read(file)
    with pytest.raises(InvalidInput, match="must be a study file that can be read"):
        Declaration.read(folder / "none.toml")


def test_words_of_a_column_of_numbers_or_booleans_are_words() -> None:
    assert TrustRule(column="c", trusted=[1], local=[0]).trusted == ("1",)  # type: ignore[arg-type]
    assert TrustRule(column="c", trusted=[True], local=False).local == ("false",)  # type: ignore[arg-type]


def test_columns_of_reports_have_the_questions_names_where_there_are_several() -> None:
    one, two = STUDIES["number"], STUDIES["two"]
    assert one.report_columns(one.questions[0]) == ("report", "report_mechanism")
    assert two.report_columns(two.questions[1]) == ("age_report", "age_report_mechanism")
    with pytest.raises(InvalidInput, match="must leave the names of the columns of reports free"):
        declare(questions=[SALARY, {**AGE, "column": "salary_report"}])


@given(
    epsilon=st.floats(1e-3, 100),
    delta=st.one_of(st.just(0.0), st.floats(1e-12, 0.1)),
    weights=st.lists(st.floats(0.01, 100), min_size=1, max_size=12),
)
@settings(max_examples=200, deadline=None)
def test_parts_of_a_promise_are_the_promise_as_a_ledger_counts(
    epsilon: float, delta: float, weights: list[float]
) -> None:
    """Whole units of 10^-12 and 10^-18: never more than was promised, nothing lost, each in proportion to a unit."""
    whole = ApproxDP(epsilon, delta) if delta else PureDP(epsilon)
    parts = split(whole, weights)
    exact = Fraction(repr(epsilon))
    assert sum(Fraction(repr(part.epsilon)) for part in parts) == Fraction(math.floor(exact * 10**12), 10**12)
    total = sum(Fraction(repr(w)) for w in weights)
    for part, weight in zip(parts, weights, strict=True):
        assert abs(Fraction(repr(part.epsilon)) - exact * Fraction(repr(weight)) / total) <= Fraction(2, 10**12)
    spent = sum(Fraction(repr(part.delta)) for part in parts)
    assert 0 <= Fraction(repr(delta)) - spent < Fraction(1, 10**15)
    assert all(Fraction(repr(part.delta)) * 10**18 % 1 == 0 for part in parts)


def test_the_whole_promise_is_one_questions_and_two_share_it_by_weight() -> None:
    assert STUDIES["number"].parts[0].everybody == PureDP(1.0)
    salary, age = STUDIES["two"].parts
    assert (salary.everybody, age.everybody) == (ApproxDP(0.25, 2.5e-8), ApproxDP(0.75, 7.5e-8))
    assert salary.trusted is not None
    assert salary.trusted.epsilon == 0.5


def test_the_words_of_the_declaration_are_those_of_the_mechanisms() -> None:
    """The room of what is public may not import the others: its lists of words are held to theirs here."""
    from typing import get_args

    from hybridp.blend.heavy import HeavyEstimator
    from hybridp.blend.mean import EstimatorName
    from hybridp.blend.shares import ShareEstimator
    from hybridp.public.randomisers import LocalName, VectorLocalName
    from hybridp.public.study import PERSONAL_ESTIMATORS
    from hybridp.tasks.regression import FormName

    def words(kind: str, name: str) -> set[str]:
        return set(next(one.choices for one in declared(KINDS[kind]) if one.name == name))

    synonyms = ("naive", "trusted", "local")
    quantiles = {"hybrid"}  # of a distribution alone
    assert words("number", "estimator") == {*get_args(EstimatorName), *PERSONAL_ESTIMATORS, *synonyms, *quantiles}
    assert words("number", "local") == set(get_args(LocalName))
    assert words("choice", "estimator") == {*get_args(ShareEstimator), *synonyms}
    assert words("vector", "local") == set(get_args(VectorLocalName))
    assert words("records", "estimator") == set(get_args(HeavyEstimator))
    assert words("regression", "form") == set(get_args(FormName))


def test_a_kind_is_found_by_its_name_and_names_itself() -> None:
    for kind, of in KINDS.items():
        assert of.kind == kind
        assert issubclass(of, Question)
        assert issubclass(of, Fields)


@pytest.mark.parametrize(
    "changes",
    [
        {"trust": {"column": "salary", "trusted": ["1"]}},
        {"people": {"column": "salary"}},
        {"promise": {"epsilon_column": "salary"}},
        {"questions": [BODY], "trust": {"column": "weight"}},
    ],
    ids=["trust", "person", "own epsilon", "vector"],
)
def test_a_question_asks_for_no_column_that_a_release_reads_as_public(changes: dict[str, object]) -> None:
    """Reports take the place of local people's values, and of the words of trust with them."""
    with pytest.raises(InvalidInput, match=r"must not be the column of .*, which is public"):
        declare(**changes)
