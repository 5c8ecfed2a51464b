"""Every task by every key in every medium: what works is run, what does not says why, as `docs/matrix.md` has it.

`HYBRIDP_FREEZE=1 pytest tests/test_matrix.py` writes the page anew. A cell is run as a user would: a declaration,
reports of devices, a release. A refusal counts only where it comes before anything was charged, in one sentence, which
is what the page then says.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from secrets import token_bytes
from typing import Any

import duckdb
import pandas as pd
import pytest
from tests.questions import PROMISE, TASKS, crowd
from tests.service.declared import study_of
from tests.service.sent import send
from tests.service.test_every_question import answers

from hybridp import InvalidInput, Ledger, Source, Study, seeded
from hybridp.blend.tally import Tally
from hybridp.device.client import local_report, trusted_report
from hybridp.protocols.reports import add_file, invitation_tally, number_tally, save_tally
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import Invite
from hybridp.public.mixing import Signer, text
from hybridp.public.randomisers import Bounds, dithered_bit
from hybridp.service import studies
from hybridp.service.core import Service
from hybridp.service.settings import Limits, Settings
from hybridp.tasks.task import ledger_totals, task_of

PAGE = Path(__file__).parent.parent / "docs" / "matrix.md"
NAMES = {
    "mean": "number: mean, sum",
    "own shares": "number: shares below and above, histogram",
    "statistics": "number: other statistics (quantiles, spread, ...)",
    "steered": "number: steered mean",
    "choice": "choice: one of several, bins",
    "ticks": "choice: several of several",
    "count": "count",
    "vector": "vector",
    "records": "records (heavy hitters)",
    "points": "points (K-means)",
    "regression": "regression",
    "table": "table (synthetic rows)",
}
TRUSTED, LOCAL = 200, 600
EPSILONS = [0.5, 1.0, 2.0]
MIXER = {"url": "https://mixer.example", "key": text(Signer(token_bytes(32)).public), "run_by": "the union"}
BESIDE = {"name": "seven", "kind": "count", "column": "line", "value": "7"}


def _declared(task: str, key: str) -> Study:
    """The question under this key, over a table."""
    people: dict[str, Any] = {"public": ["trust", "own", "town"], "trusted": TRUSTED, "local": LOCAL}
    people |= {"column": "id"} if task == "records" else {}
    return Study(**_stated(task, key), trust="trust", people=people)


def _stated(task: str, key: str, *, online: bool = False) -> dict[str, Any]:
    """The same without its people; a page has no fields that are missing."""
    asked = {name: x for name, x in TASKS[task].items() if not online or name not in ("missing", "other")}
    stated: dict[str, Any] = {"title": task, "promise": PROMISE}
    if key == "own epsilons":
        plain = {} if task == "mean" else {"allowed_epsilons": EPSILONS}
        stated["promise"] = {"allowed_epsilons": EPSILONS} if online else {"epsilon_column": "own", **plain}
    elif "mixer" in key:
        stated["mixer"] = {"batch": 300, "delta": 1e-4} | (MIXER if online else {})
    elif key == "by group":
        asked |= {"by": "town", "categories": ["u", "v"], "least": 2}
    return stated | {"questions": [asked, BESIDE] if "several questions" in key else [asked]}


@cache
def _people() -> pd.DataFrame:
    every = crowd().assign(line=["7" if i % 3 else "9" for i in range(len(crowd()))])
    return pd.concat([every[every.trust == "trusted"][:TRUSTED], every[every.trust == "local"][:LOCAL]])


def _sent(study: Study, folder: Path, ledger: Ledger | None = None) -> tuple[Path, dict[str, Any]]:
    """A table with what devices sent, and what else a release needs: invitations, answers to them, batches."""
    people, sent, more = folder / "people.csv", folder / "sent.csv", dict[str, Any]()
    _people().to_csv(people, index=False)
    invited = [question for question in study.questions if question.by_invitation]
    if invited:
        more["invite"] = folder / "invite.json"
        rows = None if invited[0].kind == "points" else people
        study.invite(more["invite"], rows, ledger=ledger)
    if study.drawn and invited:
        study.randomise(people, sent, **more, reports=folder / "answers.csv")
        more["reports"] = folder / "answers.csv"
    elif len(study.questions) > len(invited):
        study.randomise(people, sent)
        if invited:
            study.randomise(people, folder / "answers.csv", **more)
            more["reports"] = folder / "answers.csv"
    else:
        study.randomise(people, folder / "answers.csv", **more)
        sent, more = people, {**more, "reports": folder / "answers.csv"}
    if any(question.kind == "table" for question in study.questions):
        more["model"] = folder / "model"
    if study.mixer is not None:
        _people().drop(columns="trust").tail(350).to_csv(folder / "mixing.csv", index=False)
        invite = {"invite": more["invite"]} if invited else {}
        study.randomise(folder / "mixing.csv", folder / "batch.csv", mixed=True, **invite)
        more["mixed"] = [folder / "batch.csv"]
    return sent, more


@cache
def _sent_once(task: str, key: str) -> tuple[Path, dict[str, Any]]:
    """For all media that charge no ledger."""
    return _sent(_declared(task, key), Path(tempfile.mkdtemp(dir=PLACES[0])))


def _files(task: str, key: str, folder: Path) -> None:
    study = _declared(task, key)
    ledger = Ledger.create(folder / "ledger", ledger_totals(study))
    sent, more = _sent(study, folder, ledger)
    try:
        assert not study.release(sent, ledger=ledger, **more).simulated
    except InvalidInput:
        assert not [entry for entry in ledger.history() if entry.state != "void"]
        raise


def _engines(task: str, key: str, folder: Path) -> None:
    """On rows of a connection of one's own; `tests/engines` holds PostgreSQL and Spark to the same answers."""
    study = _declared(task, key)
    sent, more = _sent_once(task, key)
    more = {**more, "model": folder / "model"} if "model" in more else more
    held = duckdb.connect().read_csv(str(sent), all_varchar=True)
    data = Source(held, decimal=".", public=["trust", "own", "town"])
    study.release(data, **more)


def _tally(task: str, key: str, folder: Path) -> None:
    """Reports are added up first; where there is no tally of a kind, one of numbers shows what a release says to it."""
    study = _declared(task, key)
    sent, more = _sent_once(task, key)
    more = {**more, "model": folder / "model"} if "model" in more else {**more}
    rows = pd.read_csv(more.pop("reports", sent), dtype=str, keep_default_na=False)
    rows = rows[rows.trust == "local"] if "trust" in rows else rows
    rows.to_csv(folder / "local.csv", index=False)
    epsilon = "own" if key == "own epsilons" else None
    question, kind = study.questions[0], study.questions[0].tally_kind
    if not kind or "several questions" in key or key == "by group" or (key == "own epsilons" and question.by_levels):
        tally, kind = Tally.of(Invite(Bounds(0, 100), dithered_bit(PureDP(4.0)))), ""
    elif kind == "vector-mean":
        tally = Tally.of(task_of(study, 0).named(question.columns_read))
    elif kind == "slots":
        tally = invitation_tally(more["invite"])
    else:
        tally = number_tally(folder / "local.csv")
    save_tally(add_file(tally, folder / "local.csv", epsilon=epsilon) if kind else tally, folder / "tally.json")
    _people()[:TRUSTED].to_csv(folder / "trusted.csv", index=False)
    study.release(folder / "trusted.csv", tally=folder / "tally.json", **more)


RUNNING: list[Service] = []
PLACES: list[Path] = []


@pytest.fixture(scope="module", autouse=True)
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A service of this process's own."""
    folder = tmp_path_factory.mktemp("service")
    PLACES.append(folder)
    address = f"sqlite:///{folder / 's.db'}"
    RUNNING.append(Service(Settings.from_environment(address, folder / "k", "http://testserver", Limits(rate=0))))
    yield
    RUNNING.pop().close()


def _service(task: str, key: str, folder: Path) -> None:
    """From the declaration over both groups' answers to the release; a mixer carries none here (`test_mixed`)."""
    service, people = RUNNING[0], {"trusted": 300, "local": 400}
    stated = study_of({**_stated(task, key, online=True), "people": people, "collection": {"min_batch": 4}})
    study = str(studies.create_study(service, stated)["id"])
    for group, rows in (("trusted", _people()[:40]), ("local", _people()[-60:])):
        if group == "local" and "local" not in studies.task_document(service, study)["groups"]:
            studies.open_phase(service, study, sure=True)
        document = studies.task_document(service, study)
        for i, row in enumerate(rows.itertuples()):
            said = answers({"ratio": "vector"}.get(task, task), row)
            said = {"way": said["bus"]} if task == "count" else said
            said |= ({"town": row.town} if key == "by group" else {})
            said |= {"seven": "7" if row.line == "7" else "not 7"} if "several questions" in key else {}
            own: dict[str, Any] = {"epsilon": row.own} if "choices" in document else {}
            made = trusted_report if group == "trusted" else functools.partial(local_report, rng=seeded(i))
            assert send(service, study, [made(document, said, **own)]) == []
    studies.close_study(service, study)
    assert studies.release_study(service, study)["receipt"]["simulated"] is False


def _plan(task: str, key: str, folder: Path) -> None:
    study = _declared(task, key)
    data = _people() if key in ("own epsilons", "by group") else None
    people = {} if data is not None else {"trusted": TRUSTED, "local": LOCAL}
    shuffled = {"shuffled": 350} if "mixer" in key else {}
    study.plan(data, **people, **shuffled)


def _trial(task: str, key: str, folder: Path) -> None:
    study = _declared(task, key)
    more: dict[str, Any] = {"model": folder / "model"} if task == "table" else {}
    assert study.release(_people(), simulate_local=True, rng=seeded(1), **more).simulated


MEDIA: dict[str, Callable[[str, str, Path], None]] = {
    "files, frames": _files, "engines": _engines, "tally": _tally, "service": _service, "plan": _plan, "trial": _trial,
}  # fmt: skip
KEYS = ("one epsilon", "own epsilons", "mixer", "by group", "several questions", "mixer, several questions")
FREEZE = os.environ.get("HYBRIDP_FREEZE") == "1"
SEEN: dict[tuple[str, str], list[str]] = {}


def why_not(task: str, key: str, medium: str) -> str:
    """Nothing where it works, or the sentence that refuses it."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            MEDIA[medium](task, key, Path(folder))
        except InvalidInput as refusal:
            name, said = TASKS[task]["name"], str(refusal).partition(" Got ")[0]
            return re.sub(rf"\b{name}\b", "the question", said.replace(f"`{name}", "`QUESTION"))
    return ""


def _read() -> dict[tuple[str, str], list[str]]:
    """What the page says of every task and key: nothing where a medium works, or why it does not."""
    found: dict[tuple[str, str], list[str]] = {}
    for part in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        head, *lines = part.splitlines()
        reasons = dict(line.split(". ", 1) for line in lines if line[:1].isdigit())
        for line in lines:
            name, *row = (cell.strip() for cell in line.strip("|").split("|"))
            if name in NAMES.values():
                found[name, head] = ["" if cell == "yes" else reasons[cell[3:-1]] for cell in row]
    return found


def _rows(key: str) -> list[str]:
    """Shares are statistics like others but where everyone has an epsilon of their own."""
    return [task for task in NAMES if task != "own shares" or key == "own epsilons"]


@pytest.mark.parametrize(("task", "key"), [(task, key) for key in KEYS for task in _rows(key)])
def test_the_page_says_what_works_and_why_not(task: str, key: str) -> None:
    row = [why_not(task, key, medium) for medium in MEDIA]
    if FREEZE:
        SEEN[NAMES[task], key.capitalize()] = row
        PAGE.write_text("\n".join(_lines()) + "\n", encoding="utf-8")
        return
    assert _read()[NAMES[task], key.capitalize()] == row


@pytest.mark.parametrize("key", KEYS)
def test_a_new_question_works_wherever_the_kind_does_that_it_is_a_case_of(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`docs/add-a-question.md`: one file."""
    spec = spec_from_file_location("own_ratio", PAGE.parent / "examples" / "own_ratio.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "own_ratio", module)
    spec.loader.exec_module(module)
    monkeypatch.setitem(TASKS, "ratio", {**TASKS["vector"], "kind": "ratio", "lower": [0, 1]})
    row = [bool(why_not("ratio", key, medium)) for medium in MEDIA]
    assert row == [bool(why) for why in _read()[NAMES["vector"], key.capitalize()]]


def _lines() -> Iterator[str]:
    """The page: a table a key, and under it every reason once."""
    yield from (
        "# What works with what",
        "",
        "Every kind of question, by what people are promised or how they are told apart, over every way of collecting",
        "and planning. A dash is a refusal, with its reason below. A test writes this page, and runs every cell.",
    )
    for key in KEYS:
        reasons: dict[str, int] = {}
        yield from ("", f"## {key.capitalize()}", "", f"| | {' | '.join(MEDIA)} |", f"|---|{'---|' * len(MEDIA)}")
        for name in (NAMES[task] for task in _rows(key)):
            row = SEEN.get((name, key.capitalize()), [])
            told = (f"- ({reasons.setdefault(why, len(reasons) + 1)})" if why else "yes" for why in row)
            yield f"| {name} | {' | '.join(told)} |"
        yield ""
        yield from (f"{number}. {why}" for why, number in reasons.items())
