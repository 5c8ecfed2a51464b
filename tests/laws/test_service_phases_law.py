"""Studies of the service in two phases: each is what files release of the same people and reports, with the same words.

What a first phase draws and publishes is that of `hybridp release --invite-out`, what the second one makes of local
people's reports that of `hybridp release --invite`; the noise itself is in the laws of each task.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("fastapi")

from tests.questions import crowd, question
from tests.service.declared import study_of
from tests.service.sent import asked as one_question
from tests.service.sent import send

from hybridp import InvalidInput, Study, seeded
from hybridp.device.client import local_report, trusted_report
from hybridp.protocols.invited import release_invited
from hybridp.public import envelope
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import MECHANISM, VectorBounds
from hybridp.public.randomisers import dithered_bit
from hybridp.public.regression import Line, line_invite
from hybridp.release.release import Release
from hybridp.service import studies
from hybridp.service.formats import reports_on
from hybridp.tasks.transcript import read_invitation

from .means import LEVELS
from .recording import Recording
from .test_service_law import SEED, Taped, of

PROMISE = {"epsilon": 2.5, "trusted_epsilon": 2.0}
LINE = question("line", "regression", target="b", on=["a", "pay"], upper=100, form="steered")
YES = question(
    "line", "regression", target="yes", on=["a", "pay"], upper=[100, 100, 1], model="logistic", form="steered"
)
STEERED = of("mean", form="steered")
BESIDE = [of("mean"), LINE | {"weight": 2}, of("choice")]
# the questions, the promise, how many local people are expected
CASES: dict[str, tuple[list[dict[str, Any]], dict[str, float], int]] = {
    "mean": ([STEERED], {"epsilon": 1.0, "trusted_epsilon": 24.0}, 5000),
    "quantiles": ([STEERED | {"statistics": ["quantiles"], "at": [0.5]}], PROMISE, 500),
    "line": ([LINE], PROMISE, 500),
    "line, of whose residuals the scale is worth a part": ([LINE], PROMISE, 10**8),
    "logistic": ([YES], PROMISE, 200),
    "beside others": (BESIDE, {"epsilon": 8.0, "trusted_epsilon": 4.0}, 500),
}
EVERYBODY = crowd().assign(yes=(crowd().b > 35).astype(float))[:700]
TRUSTED, LOCAL = EVERYBODY[:400].copy(), EVERYBODY[400:]
TRUSTED.loc[:1, ["pay", "a", "b"]] = [[1e9, -1e9, 1e9], [-1e9, 1e9, -1e9]]


def told(released: Release) -> Any:
    return np.array([[cell.estimate, cell.low, cell.high] for cell in released.cells], dtype=float)


def answers(row: Any, questions: Any) -> Any:
    said = {"pay": row.pay, "way": row.way, "line": [row.a, row.pay, row.yes if "model" in questions[0] else row.b]}
    return {one["name"]: said[one["name"]] for one in questions}


class Phases:
    """A study in two phases from its first answer to its last release, with what it published on the way."""

    def __init__(self, service: Taped, case: str) -> None:
        self.service, self.case, (self.questions, self.promise, expected) = service, case, CASES[case]
        online = [{k: x for k, x in one.items() if k != "missing"} for one in self.questions]
        stated = {"title": case, "promise": self.promise, "collection": {"min_batch": 2}, "questions": online}
        self.study = str(studies.create_study(service, study_of(stated | {"people": {"local": expected}}))["id"])
        self.first_task = studies.task_document(service, self.study)
        self.name = next(one["name"] for one in self.questions if one.get("form") or one["kind"] == "regression")
        sent = [trusted_report(self.first_task, answers(row, self.questions)) for row in TRUSTED.itertuples()]
        assert send(service, self.study, sent) == []
        self.start = len(service.tape.words)
        self.pilot = studies.open_phase(service, self.study, sure=True)
        self.after_pilot, self.spent_first = len(service.tape.words), service.spent(self.study)
        self.between = studies.study_summary(service, self.study)
        self.task = studies.task_document(service, self.study)
        self.reports = [local_report(self.task, answers(row, self.questions), rng=seeded(i))
                        for i, row in enumerate(LOCAL.itertuples())]  # fmt: skip
        assert send(service, self.study, self.reports) == []
        late = trusted_report(self.task | {"groups": ["trusted"]}, answers(TRUSTED.iloc[0], self.questions))
        self.refused_late = send(service, self.study, [late])[0]["code"]
        studies.close_study(service, self.study)
        self.found = studies.release_study(service, self.study)
        self.end = len(service.tape.words)

    @property
    def invitation(self) -> dict[str, Any]:
        found: dict[str, Any] = self.pilot["invitations"][self.name]
        return found

    def files(self, skipped: int, folder: Path) -> tuple[Any, Recording]:
        """The first phase over a table of the trusted people, whose words begin elsewhere on the tape."""
        own = [{k: x for k, x in one.items() if k != "form" or self.name == "line"} for one in self.questions]
        people = {"public": ["trust"], "local": CASES[self.case][2]}
        declared = Study(title="t", promise=self.promise, questions=own, trust="trust", people=people)
        tape, out = Recording(SEED), folder / f"{skipped}.json"
        tape.take(skipped)
        rows = TRUSTED.assign(trust="trusted")
        with tape.as_the_systems():
            if self.name == "line":
                declared.invite(out, rows)
            else:
                more = {"local_people": CASES[self.case][2]} if self.case == "mean" else {}
                declared.release(rows, invite_out=out, **more)
            if len(own) > 1 and skipped == self.start:  # the others come with the release
                others = declared.release(rows, invite=out, reports=self.table_of_reports(out))
                same = Release.of_dict(self.found)
                for name in ("pay", "way"):
                    assert [c.trusted for c in others[name].cells] == pytest.approx(
                        [c.trusted for c in same[name].cells]
                    )
        return json.loads(out.read_text()), tape

    def table_of_reports(self, invited: Path, sent_in: Any = None) -> Path:
        """The reports on the invitation's question, as devices would write them into a table."""
        sent, invite = invited.with_suffix(".csv"), read_invitation(invited).invite
        reports, line = reports_on(invite), invite.way == "line"
        assert reports.units is not None
        with sent.open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow([*invite.encoding.names, MECHANISM] if line else ["trust", self.name, "report", MECHANISM])
            for report in self.reports if sent_in is None else sent_in:
                one = msgspec.convert(report["payload"]["reports"][self.name], reports.type)
                row = reports.units(reports.pack(one))[0].tolist()
                own = ["" if math.isnan(x) else repr(x) for x in row]
                own = own if line else ["local", "", repr(invite.encoding.centre + invite.encoding.half * row[0])]
                out.writerow([*own, invite.text])
        return sent


@pytest.fixture(scope="module", params=CASES)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Phases]:
    service = Taped(tmp_path_factory.mktemp("service"))
    yield Phases(service, request.param)
    service.close()


def test_the_first_phase_is_that_of_files_with_the_same_words(run: Phases, tmp_path: Path) -> None:
    for skipped in (run.start, run.start + 97):
        invitation, tape = run.files(skipped, tmp_path)
        same = invitation["answers"] == run.invitation["answers"]
        assert same == (skipped == run.start)
        if same:
            assert run.case == "quantiles" or invitation["asks"] == run.invitation["asks"]  # a table has its own people
            assert len(tape.words) == run.end
    assert run.after_pilot == run.end or run.case == "beside others"
    assert list(run.pilot["questions"]) == [run.name]  # nothing of the others yet
    assert not run.pilot["simulated"]


def test_each_group_is_charged_once_in_its_own_phase(run: Phases) -> None:
    trusted, local = run.promise["trusted_epsilon"], run.promise["epsilon"]
    several = len(run.questions) > 1
    assert run.spent_first == {"trusted": (trusted / 2 if several else trusted, 0.0), "local": (0.0, 0.0)}
    assert run.service.spent(run.study) == {"trusted": (trusted, 0.0), "local": (local, 0.0)}
    promised = [{p["group"]: p["epsilon"] for p in found["receipt"]["promises"] if p["epsilon"] is not None}
                for found in (run.pilot, run.found)]  # fmt: skip
    assert promised == [{"trusted": trusted / 2 if several else trusted}, {"trusted": trusted, "local": local}]
    first, both = run.pilot["receipt"]["ledger_entries"], run.found["receipt"]["ledger_entries"]
    assert (len(first), len(both), both[:1]) == (1, 3 if several else 2, first)
    assert studies.release_study(run.service, run.study) == run.found
    assert run.service.spent(run.study)["local"] == (local, 0.0)


def test_people_are_asked_in_turn_about_what_the_first_release_says(run: Phases) -> None:
    several = len(run.questions) > 1
    assert (run.first_task["groups"], run.task["groups"], run.refused_late) == (["trusted"], ["local"], "wrong-phase")
    assert (run.between["phase"], run.between["status"], run.between["raw_deleted"]) == (2, "open", not several)
    assert studies.study_summary(run.service, run.study)["raw_deleted"]
    with pytest.raises(InvalidInput, match="group"):
        local_report(run.first_task, answers(LOCAL.iloc[0], run.questions), rng=seeded(1))
    assert run.task["guarantee"]["local"] == {"epsilon": run.promise["epsilon"], "delta": 0.0}
    asked = next(one for one in run.task["questions"] if one["name"] == run.name)
    assert run.invitation["digest"].removeprefix("sha256:")[:16] in asked["mechanism"]
    before = next(one for one in run.first_task["questions"] if one["name"] == run.name)
    assert [before.get(name) or None for name in ("line", "windows")] == [None, None]
    (first,) = [r["document"] for r in studies.study_summary(run.service, run.study)["releases"] if
                r["kind"] == "discovery"]  # fmt: skip
    assert json.dumps(first["invitations"], sort_keys=True) == json.dumps(run.pilot["invitations"], sort_keys=True)


def test_the_final_release_is_that_of_the_files(run: Phases, tmp_path: Path) -> None:
    """The same blend of the same numbers and reports."""
    envelope.save(tmp_path / "invite.json", run.invitation)
    sent = run.table_of_reports(tmp_path / "invite.json")
    trust = {} if run.name == "line" else {"trust": "trust"}
    files = release_invited(sent, tmp_path / "invite.json", **trust)
    found = Release.of_dict(run.found)
    np.testing.assert_allclose(told(found[run.name]), told(files), rtol=1e-9)
    heard = {name: next(iter(facts.values()))["groups"]["local"]["people"] for name, facts in found.questions.items()}
    assert heard == {one["name"]: len(LOCAL) for one in run.questions}


def test_steered_quantiles_are_asked_in_any_number_of_phases_as_over_files(run: Phases, tmp_path: Path) -> None:
    """People of each phase answer about what those before them said; everybody's reports are charged once."""
    if run.case != "quantiles":
        return
    service, spent = run.service, list[float]()
    stated = {"title": "t", "promise": run.promise, "collection": {"min_batch": 20}, "people": {"local": 300}}
    online = [{k: x for k, x in one.items() if k != "missing"} for one in run.questions]
    study = str(studies.create_study(service, study_of(stated | {"questions": online}))["id"])
    first = studies.task_document(service, study)
    assert send(service, study, [trusted_report(first, {"pay": row.pay}) for row in TRUSTED.itertuples()]) == []
    assert list(studies.export(service, study)) == []  # nobody was asked yet
    file, windows, exported, late = tmp_path / "2.json", list[Any](), 0, list[Any]()
    for phase, rows in ((2, LOCAL[:150]), (3, LOCAL[150:250]), (4, LOCAL[250:])):
        invitation = studies.open_phase(service, study, phase)["invitations"]["pay"]
        assert studies.open_phase(service, study, phase)["invitations"]["pay"] == invitation
        spent.append(service.spent(study)["local"][0])
        if phase == 2:
            envelope.save(file, invitation)
        else:  # the files have asked the same people, and come to the same windows
            assert json.loads(file.read_text())["answers"] == invitation["answers"]
            assert json.loads(file.read_text())["asks"] == invitation["asks"]
            assert send(service, study, late)[0]["code"] == "wrong-phase"
        task = studies.task_document(service, study)
        windows.append(task["questions"][0]["windows"])
        reports = [local_report(task, {"pay": row.pay}, rng=seeded(phase * 1000 + i))
                   for i, row in enumerate(rows.itertuples())]  # fmt: skip
        late = [local_report(task, {"pay": 5.0}, rng=seeded(9))]
        if phase == 3:
            few = reports[:19]
            assert send(service, study, few) == []
            with pytest.raises(studies.Refused, match="at least 20 local people; 19"):
                studies.open_phase(service, study, 4)
        with pytest.raises(studies.Refused, match=f"in phase {phase}: the next one is {phase + 1}"):
            studies.open_phase(service, study, phase + 2)
        assert send(service, study, reports) == []
        exported += len(reports)
        assert len(list(studies.export(service, study))) == exported
        envelope.save(tmp_path / f"{phase}-in.json", invitation)
        sent, following = run.table_of_reports(tmp_path / f"{phase}-in.json", reports), tmp_path / f"{phase + 1}.json"
        more = {} if phase == 4 else {"invite_out": following}
        files = release_invited(sent, tmp_path / f"{phase}-in.json", trust="trust", **more)
        file = following
    studies.close_study(service, study)
    found = studies.release_study(service, study)
    same = Release.of_dict(found)
    np.testing.assert_allclose(told(same["pay"]), told(files), rtol=1e-9)
    assert next(iter(same.questions["pay"].values()))["groups"]["local"]["people"] == len(LOCAL)
    assert len({json.dumps(one) for one in windows}) == 3
    assert spent == [0.0, run.promise["epsilon"], run.promise["epsilon"]]
    assert service.spent(study) == {"trusted": (2.0, 0.0), "local": (run.promise["epsilon"], 0.0)}
    assert studies.study_summary(service, study)["people"] == {"trusted": len(TRUSTED), "local": len(LOCAL)}


def test_a_device_says_whether_its_value_is_above_a_threshold_in_the_windows(run: Phases) -> None:
    """At ε = 30 no bit is flipped: the answer is the very comparison, of whole numbers."""
    if run.case != "quantiles":
        return
    promise = {"epsilon": 30.0, "delta": 0.0}
    how = {"name": "dithered", "flips": str(dithered_bit(PureDP(30.0)).flips)}
    windows = [[0.125, 0.25], [0.5, 0.625]]
    task = one_question(run.task, windows=windows, randomiser=how, guarantee=promise)
    said = set()
    for i, value in enumerate([0.0, 13.0, 16.0, 24.0, 31.0, 50.5, 55.0, 62.0, 80.0] * 6):
        sent = local_report(task, value, rng=seeded(i))["payload"]["reports"]["pay"]
        half, rest = divmod(sent["threshold"], LEVELS // 2)
        threshold = 100 * (windows[half][0] + 0.125 * rest / (LEVELS // 2))
        assert sent["above"] == (value > threshold)
        said.add((sent["above"], half))
    assert len(said) == 4
    for wrong in ([[0.5, 0.25]], [[0.1, 0.3], [0.2, 0.4]], [[-0.5, 0.5]], [[0.5, 1.5]], []):
        with pytest.raises(InvalidInput, match="windows"):
            local_report(one_question(task, windows=wrong), 3.0, rng=seeded(1))


def test_a_device_reports_a_coordinate_of_the_score_and_is_refused_less_noise(run: Phases) -> None:
    """At ε = 30 a number is told within a narrow window of the true one."""
    if run.case not in ("line", "logistic"):
        return
    (stated,) = run.task["questions"]
    line, sides = stated["line"], stated["coordinates"]
    bounds = VectorBounds.of([c["lower"] for c in sides], [c["upper"] for c in sides])
    asked = Line(stated["model"], line["form"], bounds, tuple(line["centre"]), line["clip"])
    question = line_invite(asked, PureDP(30.0))
    sure = one_question(run.task, guarantee={"epsilon": 30.0, "delta": 0.0}, randomiser=reports_on(question).mechanism)
    task, seen = {name: value for name, value in sure.items() if name != "bytes"}, set()
    for i, row in enumerate(LOCAL[:20].itertuples()):
        *first, y = answers(row, run.questions)["line"]
        x = [1.0, *(value / 50 - 1 for value in first)]
        at = sum(b * c for b, c in zip(line["centre"], x, strict=True))
        away = y / 50 - 1 - at if run.case == "line" else y - 1 / (1 + math.exp(-at))
        score = [c * min(max(away, -line["clip"]), line["clip"]) for c in x]
        sent = local_report(task, [*first, y], rng=seeded(i))["payload"]["reports"]["line"]
        assert sent["each"] == pytest.approx([score[place] for place in sent["coordinates"]], abs=0.08 * line["clip"])
        seen |= {*sent["coordinates"]}
    assert seen == {0, 1, 2}
    person = answers(LOCAL.iloc[0], run.questions)["line"]
    with pytest.raises(InvalidInput, match="small enough for 1-DP"):
        local_report(one_question(run.task, guarantee={"epsilon": 1.0, "delta": 0.0}), person, rng=seeded(1))
    with pytest.raises(InvalidInput, match="must be the report of each coordinate"):
        local_report(one_question(run.task, randomiser=stated["randomiser"] | {"reported": 2}), person, rng=seeded(1))
