"""The report: one well-formed page that needs nothing else, and the commands that write it."""

from __future__ import annotations

import importlib
import json
import re
import sys
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from hybridp.cli.app import main
from hybridp_lab.figure import catalogue as figures
from hybridp_lab.figure.catalogue import Outcome, Verdict, catalogue, picture, read_figures, run_figures
from hybridp_lab.figure.report import report_html
from hybridp_lab.figure.ruling import by_construction, exact, measured, unjudged

MODULE = """
import os
from hybridp_lab.figure.catalogue import Figure, Grid, Verdict
from hybridp_lab.figure.ruling import bounded, exact


def doubles(point):
    if os.environ.get("MADE_UP_BAD"):
        raise RuntimeError("<b>no</b> doubles")
    return [{"x": point["x"], "y": 2 * point["x"]}]


def triples(point):
    return [{"x": point["x"], "y": 3 * point["x"]}]


def judge(rows):
    told = {"place": "sec. 1", "printed": "twice", "found": "so", "erratum": "errata 7", "trials": 12}
    return Verdict((
        bounded("y > x & <script>alert(1)</script>", 2.0, 1.5, 2.5, "above", 1.0, **told),
        exact("y is odd", False, "it is even", place="sec. 2", printed="odd", reason="It was doubled."),
    ))


def draw(rows, canvas):
    if os.environ.get("MADE_UP_INK"):
        raise OSError("no ink")
    canvas.subplots().plot([r["x"] for r in rows], [r["y"] for r in rows])


def figure(name, run, **more):
    grids = {"quick": (Grid({"x": (1, 2)}),), "full": (Grid({"x": (1, 2, 3)}),)}
    return Figure(name, f"Nobody 2000, {name}", "Multiples <grow> & grow.", grids, run, judge, draw, **more)


FIGURES = (
    figure("double-1", doubles),
    figure("triple-1", triples, not_public="Their rows; made-up ones stand in."),
)
"""
VOID = {"meta", "br", "img"}


class Page(HTMLParser):
    """Checks nesting as it reads, and keeps every tag with its attributes, and the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def checked(html: str) -> Page:
    """A page that is well-formed, stands alone and can be read without eyes."""
    page = Page(html)
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert "http:" not in html
    assert "https:" not in html
    assert "@import" not in html
    assert "url(" not in html
    assert not page.all("script")
    assert not page.all("link")
    for _, attrs in page.tags:
        assert not [name for name in attrs if name.startswith("on") or name == "style"]
        if "href" in attrs:
            assert str(attrs["href"]).removeprefix("#") in ids
        if "src" in attrs:
            assert str(attrs["src"]).startswith("data:image/svg+xml;base64,")
    assert page.all("html") == [{"lang": "en"}]
    assert all(attrs.get("alt") for attrs in page.all("img"))
    assert all(attrs.get("scope") in ("row", "col") for attrs in page.all("th"))
    assert len(page.all("caption")) == len(page.all("table"))
    assert len(page.all("h1")) == 1
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html
    assert "Not private." in "".join(page.text)
    return page


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "made_up_report.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "made_up_report", raising=False)
    monkeypatch.setattr(figures, "_CATALOGUES", ("made_up_report",))
    return importlib.import_module("made_up_report")


def test_the_page_tells_everything(made: Any, tmp_path: Path) -> None:
    result = run_figures(made.FIGURES, folder=tmp_path)
    images = {o.figure.name: picture(o) for o in result}
    html = report_html(result, pictures=images, now=datetime(2030, 1, 2, tzinfo=UTC))
    page = checked(html)
    text = " ".join("".join(page.text).split())
    assert len(page.all("img")) == len(result)
    for told in (
        "2030-01-02", "4 claims of 2 entries", "1 refuted", "2 not judgeable", "1 reproduced after the erratum",
        "2 in the quick grid", "y > x & <script>alert(1)</script>", "2 (1.5 to 2.5)", "[above 1]", "12 trials",
        "errata 7", "It was doubled.", "sec. 2", "twice", "it is even", "Their rows; made-up ones stand in.",
        "on the stand-in: refuted", "Multiples <grow> & grow.", "2 points", "x: 1, 2; 1 trial",
    ):  # fmt: skip
        assert told in text, told


def test_every_figure_of_the_catalogue_is_in_the_report(tmp_path: Path) -> None:
    pytest.importorskip("botorch")
    result = read_figures(list(catalogue().values()), folder=tmp_path)
    page = checked(report_html(result, pictures={}, now=datetime.now(UTC)))
    ids = {attrs.get("id") for attrs in page.all("section")}
    assert ids == set(catalogue())
    assert {attrs["href"] for attrs in page.all("a")} == {f"#{name}" for name in catalogue()}


def test_states_are_words_and_not_only_colours(made: Any) -> None:
    base = made.FIGURES[0]
    told: Any = {"place": "sec. 1", "printed": "c"}
    shown = []
    for i, (checks, more) in enumerate(
        [
            ((exact("a", True, "b", **told),), {}),
            ((exact("a", True, "b", erratum="errata 1", **told),), {}),
            ((exact("a", False, "b", **told),), {}),
            ((measured("a", [0.0, 1.0, 0.2, 0.9, 0.1, 0.8], "above", 0.4, **told).priced(1e-3, 5),), {}),
            ((unjudged("a", "nobody knows", **told),), {}),
            ((by_construction("a", True, "b", reason="by definition", **told),), {}),
            ((), {"error": "ValueError: broken"}),
            ((), {"missing": 2}),
        ]
    ):
        figure = replace(base, name=f"f-{i}")
        shown.append(Outcome(figure, "quick", (), (), Verdict(checks), 0, 1.0, **more))  # type: ignore[arg-type]
    page = checked(report_html(shown, pictures={}, now=datetime.now(UTC)))
    text = "".join(page.text)
    for word in ("reproduced after the erratum", "refuted", "undecided", "not judgeable", "error", "not computed"):
        assert word in text
    assert "true by construction" in text
    assert "more trials would decide with a chance of 80 %: about minutes" in text
    assert "ValueError: broken" in text
    assert "2 of 2 points are missing" in text


# --- the commands -----------------------------------------------------------------------------------------------------


def command(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["papers", *args])
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def test_run_writes_the_report(made: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    code, said, _ = command(capsys, "run", "all", "--out", str(out), "--jobs", "1")
    assert code == 0
    assert "double-1" in said
    assert "not judgeable" in said
    checked((out / "report.html").read_text(encoding="utf-8"))
    code, said, _ = command(capsys, "run", "double-1", "--full", "--out", str(out), "--jobs", "1", "--json")
    document = json.loads(said)
    assert (code, document["private"], document["report"]) == (0, False, str(out / "report.html"))
    [told] = document["figures"]
    assert (told["scope"], told["computed_now"], told["status"], told["points"]) == ("full", 1, "refuted", 3)
    assert "rows" not in told
    assert Path(told["picture"]).exists()
    assert Path(told["results"]).exists()
    text = (out / "report.html").read_text(encoding="utf-8")
    checked(text)
    assert 'id="triple-1"' in text
    assert "1 in the quick grid; 1 in the published grid" in text


def test_an_error_is_told_and_the_code_is_1(
    made: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    monkeypatch.setenv("MADE_UP_BAD", "1")
    code, _, err = command(capsys, "run", "all", "--out", str(out), "--jobs", "1")
    assert code == 1
    assert "double-1: RuntimeError: <b>no</b> doubles" in err
    page = checked((out / "report.html").read_text(encoding="utf-8"))
    assert "RuntimeError: <b>no</b> doubles" in "".join(page.text)
    assert len(page.all("img")) == 1
    monkeypatch.delenv("MADE_UP_BAD")
    monkeypatch.setenv("MADE_UP_INK", "none")
    code, said, _ = command(capsys, "run", "double", "--out", str(out), "--jobs", "1", "--json")
    assert code == 1
    assert "no ink" in json.loads(said)["figures"][0]["error"]


def test_the_report_is_made_again_without_computing(
    made: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    command(capsys, "run", "triple", "--out", str(out), "--jobs", "1")
    (out / "report.html").unlink()
    monkeypatch.setenv("MADE_UP_BAD", "1")  # whatever is computed now fails
    code, said, _ = command(capsys, "report", "--out", str(out), "--json")
    assert code == 0
    assert [f["status"] for f in json.loads(said)["figures"]] == ["not computed", "not judgeable"]
    page = checked((out / "report.html").read_text(encoding="utf-8"))
    assert {attrs["id"] for attrs in page.all("section")} == {"double-1", "triple-1"}
    monkeypatch.setattr("hybridp_lab.figure.catalogue.RESULTS", out)
    other = tmp_path / "committed"
    code, again, _ = command(capsys, "report", "--committed", "--out", str(other), "--json")
    assert (code, (other / "report.html").exists()) == (0, True)
    assert [f["status"] for f in json.loads(again)["figures"]] == ["not computed", "not judgeable"]


def test_verdicts_are_every_claim_of_a_folder(made: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    command(capsys, "run", "double", "--out", str(out), "--jobs", "1")
    code, said, err = command(capsys, "verdicts", str(out), "--json")
    first, second = json.loads(said)
    assert (code, first["entry"], first["status"]) == (0, "double-1", "reproduced after the erratum")
    assert (first["claim"], first["place"]) == ("y > x & <script>alert(1)</script>", "sec. 1")
    assert (first["printed"], first["value"], first["interval"], first["trials"]) == ("twice", 2.0, [1.5, 2.5], 12)
    assert (second["status"], second["interval"], second["trials"]) == ("refuted", None, 0)
    assert "triple-1: 2 of 2 points are missing" in err
    code, said, _ = command(capsys, "verdicts", str(out))
    assert (code, "1 refuted" in said, "it is even" in said) == (0, True, True)
    code, said, err = command(capsys, "verdicts", str(tmp_path / "nowhere"))
    assert (code, said) == (2, "")
    assert "must be a folder with results" in err


def test_a_time_to_decide_is_for_the_quick_grids(made: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    code, _, err = command(capsys, "run", "double", "--full", "--decide", "1", "--out", out)
    assert (code, "leave out --full" in err) == (2, True)
    code, _, err = command(capsys, "run", "double", "--decide", "-1", "--out", out)
    assert (code, "`decide` must be a positive number of minutes" in err) == (2, True)
    code, said, _ = command(capsys, "run", "double", "--decide", "1", "--out", out, "--jobs", "1", "--json")
    assert (code, json.loads(said)["figures"][0]["status"]) == (0, "refuted")


def test_wrong_names_and_folders_are_one_sentence(
    made: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said, err = command(capsys, "run", "nothing", "--out", str(tmp_path / "a"))
    assert (code, said) == (2, "")
    assert re.fullmatch(r"hybridp: `name` must be all, or the beginning of one of [^\n]*Got nothing\.\n", err)
    assert not (tmp_path / "a").exists()
    code, _, err = command(capsys, "report", "--out", str(tmp_path / "a"))
    assert code == 2
    assert "must be a folder with results" in err


def test_the_list(made: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, said, _ = command(capsys, "list", "--json")
    first, second = json.loads(said)["figures"]
    assert code == 0
    assert (first["name"], first["points"], first["inputs"]) == ("double-1", {"quick": 2, "full": 3}, ["none"])
    assert second["not_public"] == "Their rows; made-up ones stand in."
    code, said, _ = command(capsys, "list")
    assert code == 0
    assert "double-1" in said
    assert "triple-1" in said
