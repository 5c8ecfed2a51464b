"""What commands answer, frozen: the seeded JSON of every command, and the service's interface.

A change of behaviour shows here as a difference, to be meant and said in the changelog. After a meant one,
`HYBRIDP_FREEZE=1 pytest tests/golden` writes the files anew: read `git diff tests/golden` before you commit it.
Whole numbers, names and texts are compared exactly, other numbers to nine digits. The last digits of a fit belong to
the processor: answers with a fit by iterations or linear algebra behind them (`FITTED`) are compared to four digits,
with the digests of documents that hold such numbers left out, and fits of synthetic data by their form alone.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from hybridp.cli.app import main

HERE = Path(__file__).resolve().parent
FREEZE = os.environ.get("HYBRIDP_FREEZE") == "1"
FITTED = ("study", "quantiles", "steered-mean", "regression")
MEAN = "--column pay --trust trust --missing middle --lower 0 --upper 100000 --epsilon 1"
OWN = "--column pay --trust trust --missing middle --lower 0 --upper 100000 --epsilon-column eps --public eps"
VECTOR = "--column pay age --trust trust --missing middle --lower 0 --upper 100000 90 --epsilon 2"
SHARES = "--column eps --options 0.5,1.0 --other more --trust trust --epsilon 1"
BINS = "--column age --lower 20 --upper 80 --bins 24 --missing 77.5..80.0 --trust trust --epsilon 1"
RECORDS = "--person id --column query --trust trust --epsilon 4 --delta 1e-5"
LINE = "--target pay --on age,eps --trust trust --missing middle --lower 20 0 0 --upper 80 2 100000 --epsilon 8"
POINTS = "--column a b --trust trust --missing middle --lower 0 --upper 1 --clusters 2 --epsilon 4"
LINE_FILE = """
schema = 1
promise = {epsilon = 8}
trust = {column = "trust"}
people = {public = ["trust"]}
[[question]]
name = "age"
kind = "number"
missing = "middle"
lower = 20
upper = 80
[[question]]
name = "line"
kind = "regression"
target = "pay"
on = ["age", "eps"]
missing = "middle"
lower = [20, 0, 0]
upper = [80, 2, 100000]
weight = 3
"""

TABLE_FILE = """
schema = 1
promise = {epsilon = 2, delta = 1e-6}
trust = {column = "trust"}
[[question]]
name = "home"
kind = "table"
other = "last"
marginals = ["age,eps"]
features = [{name = "age", edges = [20, 40, 60, 80]}, {name = "eps", values = ["0.5", "1.0", "2.0"]}]
"""

# name -> commands that are run one after another in one folder; every one prints one JSON object
SCENES: dict[str, tuple[str, ...]] = {
    "plan": (
        "plan mean --n 250_000 --opt-in 0.01 --lower 0 --upper 1 --epsilon 1 --delta 1e-6 --sd 0.3 --rmse 0.01",
        "plan mean --n 1000 --opt-in 0.1 --lower 0 --upper 1 --epsilon 4 --local piecewise --mean 0.3",
        "plan mean --groups 0.1:700,2:300 --local-groups 1:9000",
        "plan vector-mean --n 900 --opt-in 0.1 --column a b --lower 0 --upper 14 20 --sd 2 3 --epsilon 1 --delta 1e-6",
        "plan synth --n 6000 --bins age=5 sex=2 work=3 --marginals age,sex 2-of:age,sex,work --epsilon 1 --delta 1e-8",
        "plan heavy-hitters --n 519371 --opt-in 0.05 --epsilon 4 --delta 1e-5 --popularity 0.9:1e5",
        "plan kmeans --column a b --lower 0 --upper 1 --clusters 3 --epsilon 4 --n 6600 --opt-in 0.0909",
    ),
    "mean": (
        f"release mean people.csv {MEAN} --simulate-local --seed 5",
        f"release mean people.csv {MEAN} --simulate-local --seed 5 --delta 1e-6 --noise gaussian --trusted-epsilon 0.5",
        f"release mean people.csv {MEAN} --simulate-local --seed 5 --estimator kvh --sd 9000 --publish estimate-only",
        f"release mean people.csv {MEAN} --simulate-local --seed 5 --estimator full-lm",
        f"release mean people.csv {MEAN} --simulate-local --seed 5 --local piecewise --level 0.9",
        f"release mean people.csv {OWN} --simulate-local --seed 6",
        f"release mean people.csv {OWN} --simulate-local --seed 6 --estimator adpm",
        f"randomise mean people.csv {MEAN} --out sent.csv --seed 4",
        f"release mean sent.csv {MEAN} --seed 4",
        "tally add sent.csv --tally a.tally --trust trust",
    ),
    "study": (
        "init people.csv --yes --column pay --column age --lower 0 --upper 100000 --upper 90 --trust trust "
        "--trusted-value trusted --local-value local --person id",
        "plan study.toml people.csv",
        "release study.toml people.csv --simulate-local --seed 5",
        "randomise study.toml people.csv --out two.csv --seed 4",
        "release study.toml two.csv --seed 4",
        "plan line.toml people.csv",
        "release line.toml people.csv --simulate-local --seed 5",
        "release line.toml people.csv --invite-out invite.json --seed 4",
        "randomise line.toml people.csv --invite invite.json --out line.csv --seed 4",
        "randomise line.toml people.csv --out rest.csv --seed 4",
        "release line.toml rest.csv --invite invite.json --reports line.csv --seed 4",
    ),
    "heavy": (
        f"release heavy-hitters log.csv {RECORDS} --simulate-local --seed 1 --head 5",
        f"release heavy-hitters log.csv {RECORDS} --seed 1 --head 5 --invite-out invite.json",
    ),
    "kmeans": (
        f"release kmeans points.csv {POINTS} --simulate-local --seed 1",
        f"release kmeans points.csv {POINTS} --simulate-local --seed 1 --delta 1e-6",
    ),
    "vector": (
        f"release vector-mean people.csv {VECTOR} --simulate-local --seed 3",
        f"release vector-mean people.csv {VECTOR} --simulate-local --seed 3 --delta 1e-6 --joint",
    ),
    "shares": (
        f"release shares people.csv {SHARES} --simulate-local --seed 7",
        f"release shares people.csv {SHARES} --simulate-local --seed 7 --delta 1e-6 --joint --estimator tcm-only",
        f"release histogram people.csv {BINS} --simulate-local --seed 8",
        f"randomise shares people.csv {SHARES} --out shares.csv --seed 9",
        f"release shares shares.csv {SHARES} --seed 9",
        f"randomise histogram people.csv {BINS} --out bins.csv --seed 9",
        "release count people.csv --column eps --value 0.5 --trust trust --epsilon 1 --simulate-local --seed 7",
        "randomise count people.csv --column eps --value 0.5 --trust trust --epsilon 1 --out count.csv --seed 9",
        "plan count --value yes --shares 0.2 --n 250_000 --opt-in 0.01 --epsilon 1",
        "plan shares --options yes,no,maybe --n 250_000 --opt-in 0.01 --epsilon 1",
        "plan histogram --edges 0,10,20,50 --shares 0.2,0.3,0.5 --n 1000 --opt-in 0.1 --epsilon 0.5 --delta 1e-6",
    ),
    "groups": (
        f"release mean wards.csv {MEAN} --by ward --public ward --compare all --joint --simulate-local --seed 5",
        f"release shares wards.csv {SHARES} --by ward --public ward --categories east,north,south --least 20 "
        "--compare north --simulate-local --seed 7",
        f"release mean wards.csv {MEAN} --by ward --by-private --categories east,north,south --compare all "
        "--simulate-local --seed 5",
        f"release shares wards.csv {SHARES} --by ward --by-private --categories east,north,south --delta 1e-6 "
        "--noise gaussian --simulate-local --seed 5",
        f"randomise mean wards.csv {MEAN} --by ward --out sent.csv --seed 4",
        f"release mean sent.csv {MEAN} --by ward --public ward --seed 4 --out first.json",
        f"release mean wards.csv {MEAN} --by ward --public ward --simulate-local --seed 6 --out second.json",
        "compare first.json second.json",
        "plan mean --n 20_000 --opt-in 0.1 --lower 0 --upper 100 --sd 15 --epsilon 1 --by dept --categories a,b "
        "--compare a",
        "plan shares --options x,y --n 20_000 --opt-in 0.1 --epsilon 1 --by dept --by-private --categories a,b,c",
    ),
    "quantiles": (
        f"release quantiles people.csv {MEAN} --at .5,.9 --below 30000 --spread --simulate-local --seed 5",
        f"release quantiles people.csv {MEAN} --simulate-local --seed 5 --estimator tcm-only --delta 1e-6",
        f"release quantiles people.csv {MEAN} --at .5,.9 --spread --joint --simulate-local --seed 5",
        f"randomise quantiles people.csv {MEAN} --out quantiles.csv --seed 4",
        f"release quantiles quantiles.csv {MEAN} --estimator lm-only --seed 4",
        "tally add quantiles.csv --tally q.tally --trust trust",
        f"release quantiles trusted.csv {MEAN} --tally q.tally --seed 4",
        "plan quantiles --n 20_000 --opt-in 0.05 --lower 0 --upper 100 --at .5,.9 --mean 40 --sd 12 --epsilon 1",
    ),
    "steered-mean": (
        f"release mean people.csv {MEAN} --form steered --simulate-local --seed 5",
        f"release mean people.csv {MEAN} --trusted-epsilon 40 --form steered --simulate-local --seed 5",
        f"release mean people.csv {MEAN} --trusted-epsilon 40 --n 2_000 --invite-out asked.json --seed 5",
        "randomise asked.json people.csv --trust trust --missing middle --epsilon 9 --out told.csv --seed 4",
        "release asked.json told.csv --trust trust",
    ),
    "regression": (
        f"release regression people.csv {LINE} --simulate-local --seed 5",
        f"release regression people.csv {LINE} --simulate-local --seed 5 --delta 1e-6 --form plain",
        f"release regression people.csv {LINE} --seed 5 --clip 40000 --form steered --invite-out asked.json",
        "randomise asked.json people.csv --epsilon 9 --trust trust --out told.csv --seed 4",
        "release asked.json told.csv",
        "plan regression --on age,eps --n 20_000 --opt-in 0.05 --epsilon 1",
    ),
    "synth": (
        "synth fit table.csv --schema schema.json --other last --marginals age,sex sex,works --method tables "
        "--epsilon 2 --delta 1e-6 --rows 60 --seed 2 --out model",
        "synth answer model sex=Male",
        "synth report model",
        "synth fit table.csv --schema schema.json --other last --marginals age,sex sex,works --epsilon 1 --delta 1e-4 "
        "--seed 2 --out pilot",
        "synth invite pilot --out asked.json",
        "randomise asked.json table.csv --epsilon 9 --seed 3 --out told.csv",
        "synth fit told.csv --invite asked.json --out both",
        "plan synth --n 2000 --opt-in 0.1 --schema schema.json --marginals age,sex --epsilon 1 --delta 1e-6",
        "plan table.toml --n 2000 --opt-in 0.1",
        "randomise table.toml people.csv --out home.csv --seed 4",
        "release table.toml home.csv --model home --seed 4",
    ),
}
BY_FORM = {"synth"}


def people(folder: Path) -> None:
    """Files for every scene, of made-up people, the same everywhere."""
    lines = ["id,pay,age,trust,eps"]
    for i in range(400):
        trust = "trusted" if i % 5 == 0 else "local"
        lines.append(f"{i},{15_000 + (7919 * i) % 60_000},{20 + (31 * i) % 60},{trust},{(0.5, 1.0, 2.0)[i % 3]}")
    (folder / "people.csv").write_text("\n".join(lines) + "\n")
    (folder / "trusted.csv").write_text("\n".join([lines[0], *lines[1::5]]) + "\n")
    wards = [f"{line},{('north', 'south', 'east')[i % 11 % 3]}" for i, line in enumerate(lines[1:])]
    (folder / "line.toml").write_text(LINE_FILE)
    (folder / "table.toml").write_text(TABLE_FILE)
    (folder / "wards.csv").write_text("\n".join([f"{lines[0]},ward", *wards]) + "\n")
    words = ("weather", "news", "maps")
    said = [words[i % 7] if i % 7 < 3 else f"rare{i % 40}" for i in range(9_000)]
    log = [f"{i},{text},{'trusted' if i % 3 else 'local'}" for i, text in enumerate(said)]
    (folder / "log.csv").write_text("\n".join(["id,query,trust", *log]) + "\n")
    points = ["a,b,trust"]
    for i in range(3_000):
        x, y = (0.25, 0.3) if i % 2 else (0.75, 0.7)
        points.append(f"{x + (i % 17 - 8) / 200!r},{y + (i % 13 - 6) / 200!r},{'trusted' if i % 10 == 0 else 'local'}")
    (folder / "points.csv").write_text("\n".join(points) + "\n")
    sexes, works = ("Male", "Female"), ("full", "part")
    table = [f"{18 + (37 * i) % 70},{sexes[i % 2]},{works[(i // 3) % 2]}" for i in range(1_200)]
    (folder / "table.csv").write_text("\n".join(["age,sex,works", *table]) + "\n")
    features = [{"name": "age", "edges": [18, 30, 40, 50, 65, 90]}, {"name": "sex", "values": ["Female", "Male"]}]
    features.append({"name": "works", "values": ["full", "part"]})
    (folder / "schema.json").write_text(json.dumps({"features": features}))


def differences(old: Any, new: Any, place: str = "", digits: float = 1e-9) -> list[str]:
    """Where two documents differ, one line each."""
    if isinstance(old, dict) and isinstance(new, dict):
        found = [f"{place}.{key}: only in the {'old' if key in old else 'new'} one" for key in old.keys() ^ new.keys()]
        both = old.keys() & new.keys()
        return found + [d for key in both for d in differences(old[key], new[key], f"{place}.{key}", digits)]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [d for i, (a, b) in pairs for d in differences(a, b, f"{place}[{i}]", digits)]
    if isinstance(old, float) and isinstance(new, (int, float)) and not isinstance(new, bool):
        close = math.isclose(old, new, rel_tol=digits, abs_tol=1e-3 * digits)
        return [] if close else [f"{place}: {old!r} became {new!r}"]
    if digits > 1e-9 and isinstance(old, str) and isinstance(new, str):
        old, new = (re.sub(r"invite=[0-9a-f]{16}", "invite=DIGEST", text) for text in (old, new))
    return [] if type(old) is type(new) and old == new else [f"{place}: {old!r} became {new!r}"]


def form(document: Any) -> Any:
    """Names and kinds alone."""
    if isinstance(document, dict):
        return {key: form(value) for key, value in sorted(document.items())}
    if isinstance(document, list):
        return [form(document[0])] if document else []
    return type(document).__name__


def compare(name: str, found: Any) -> None:
    file = HERE / f"{name}.json"
    if FREEZE:
        file.write_text(json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    frozen = json.loads(file.read_text(encoding="utf-8"))
    changed = differences(frozen, json.loads(json.dumps(found)), digits=1e-4 if name in FITTED else 1e-9)
    assert not changed, "\n".join(["behaviour has changed (see the docstring of this file):", *changed[:20]])


@pytest.mark.parametrize("scene", SCENES)
def test_commands_answer_as_before(
    scene: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    people(tmp_path)
    monkeypatch.chdir(tmp_path)
    told = []
    for line in SCENES[scene]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main([*line.split(), "--json"])
        shown = capsys.readouterr()
        assert left.value.code == 0, f"{line}: {shown.err}"
        document = json.loads(shown.out)
        told.append({"command": line, "answer": form(document) if scene in BY_FORM else document})
    compare(scene, told)


def test_reports_are_drawn_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The very reports that seeded devices write."""
    people(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        main(f"randomise mean people.csv {MEAN} --out sent.csv --seed 4".split())
    assert left.value.code == 0
    compare("reports", (tmp_path / "sent.csv").read_text().splitlines()[:40])


def test_the_interface_of_the_service_is_as_before(tmp_path: Path) -> None:
    """Addresses, answers and fields. The web framework words the rest, and changes it."""
    pytest.importorskip("fastapi", reason="fastapi is not installed: no service (the extra `service`)")
    from hybridp.service.app import build_app
    from hybridp.service.settings import Settings

    settings = Settings.from_environment(database=f"sqlite:///{tmp_path / 'a.db'}", key_file=tmp_path / "a.key")
    described = build_app(settings).openapi()
    found = {
        "paths": {
            path: {how: sorted(answer["responses"]) for how, answer in methods.items()}
            for path, methods in described["paths"].items()
        },
        "fields": {
            name: {"all": sorted(schema.get("properties", {})), "required": sorted(schema.get("required", []))}
            for name, schema in described["components"]["schemas"].items()
            if "ValidationError" not in name
        },
    }
    compare("openapi", found)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda d: d[0]["answer"].update(extra=1),
        lambda d: d[0]["answer"]["people"].pop("n"),
        lambda d: d[0]["answer"]["people"].update(n=d[0]["answer"]["people"]["n"] + 1),
        lambda d: d[0]["answer"]["people"].update(opt_in=0.01 * (1 + 1e-6)),
    ],
    ids=["a new key", "a lost key", "another whole number", "the seventh digit"],
)
def test_a_difference_is_noticed(spoil: Callable[[Any], Any]) -> None:
    frozen = json.loads((HERE / "plan.json").read_text(encoding="utf-8"))
    assert differences(frozen, frozen) == []
    other = json.loads(json.dumps(frozen))
    spoil(other)
    assert differences(frozen, other)


def test_every_command_that_answers_is_in_a_scene() -> None:
    """What is not frozen is named here, with the reason."""
    from hybridp.cli.app import cli

    elsewhere = {
        "demo": "prints a tour", "serve": "never ends", "study": "tests/service", "mix": "tests/mixer",
        "pareto": "tests/cli/test_pareto.py", "papers": "hybridp-lab", "ledger": "times of day",
        "randomise": "reports.json",
    }  # fmt: skip
    run = {" ".join(line.split()[:2]) for lines in SCENES.values() for line in lines}
    for name in cli.list_commands(click.Context(cli)):
        if name in elsewhere:
            continue
        assert any(line.split()[0] == name for line in run), f"{name} is in no scene"
