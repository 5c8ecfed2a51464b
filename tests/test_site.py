"""The documentation site is built without a warning and without the network, and is complete in itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests import warm

pytest.importorskip("sphinx")
pytest.importorskip("furo")

DOCS = Path(__file__).resolve().parent.parent / "docs"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Links(HTMLParser):
    """What a page loads, where it leads, and the places in it that can be led to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.leads.append(given["href"])
        elif tag != "a":
            self.loads += [given[name] for name in ("src", "href", "data", "srcset") if given.get(name)]


OFFLINE = """
import importlib.util, socket, sys
from pathlib import Path

def no_network(*_, **__):
    raise SystemExit("the site asked for the network")

socket.create_connection = socket.getaddrinfo = no_network
build, docs, brought, out, papers = sys.argv[1:]
spec = importlib.util.spec_from_file_location("build", build)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.DOCS = Path(docs)
if not int(brought):
    module.BROUGHT, module.reference = {}, dict
sys.exit(module.build(Path(out), Path(papers)))
"""


def built(docs: Path, out: Path, papers: Path, *, brought: bool = True) -> subprocess.CompletedProcess[str]:
    """The builder in a process of its own, in which the network cannot be reached."""
    return warm.run(OFFLINE, str(DOCS / "build.py"), str(docs), str(int(brought)), str(out), str(papers))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    papers = folder / "papers"
    papers.mkdir()
    (papers / "report.html").write_text("<!doctype html><title>made up</title>", encoding="utf-8")
    done = built(DOCS, folder / "out", papers)
    assert done.returncode == 0, done.stderr
    return folder / "out"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    return {page: Links(page.read_text(encoding="utf-8")) for page in site.rglob("*.html")}


def test_every_page_of_the_documentation_is_there(site: Path) -> None:
    for source in DOCS.rglob("*.md"):
        assert (site / source.relative_to(DOCS).with_suffix(".html")).is_file(), source.name
    for page in ("changelog", "contributing", "licence", "benchmarks", "tour", "papers-report", "search"):
        assert (site / f"{page}.html").is_file(), page
    assert (site / "papers-report" / "report.html").is_file()
    assert len(list((site / "_images").glob("tour-*.png"))) >= 4


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Links]) -> None:
    for page, found in pages.items():
        outside = [load for load in found.loads if re.match(r"(?:[a-z]+:)?//|https?:", load)]
        assert not outside, f"{page.relative_to(site)} loads {outside}"
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        outside = [
            target for target in re.findall(r"url\(['\"]?([^)'\"]+)", text) if re.match(r"(?:https?:)?//", target)
        ]
        assert not outside, f"{style.name} loads {outside}"
        assert "@import url(http" not in text


def test_links_lead_to_pages_and_places_that_exist(site: Path, pages: dict[Path, Links]) -> None:
    for page, found in pages.items():
        for lead in found.leads:
            if re.match(r"[a-z]+:", lead) or page.is_relative_to(site / "papers-report"):
                continue
            file, _, place = unquote(lead).partition("#")
            target = (page.parent / file).resolve() if file else page
            assert target.is_file(), f"{page.relative_to(site)} leads to {lead}"
            if place and target in pages:
                assert place in pages[target].places, f"{page.relative_to(site)} leads to {lead}"


def test_a_warning_fails_the_build(tmp_path: Path) -> None:
    """One page, whose link leads nowhere; the control is the site itself."""
    docs = tmp_path / "docs"
    (docs / "_static").mkdir(parents=True)
    (docs / "_static" / "site.css").write_text("", encoding="utf-8")
    shutil.copy(DOCS / "conf.py", docs / "conf.py")
    page = "# A page\n\n[a link](nowhere.md)\n\n```{toctree}\npapers-report\npapers\n```\n"
    (docs / "index.md").write_text(page, encoding="utf-8")
    (docs / "papers.md").write_text("# Papers\n", encoding="utf-8")
    assert built(docs, tmp_path / "out", tmp_path, brought=False).returncode != 0


@pytest.mark.skipif(CHROMIUM is None, reason="not installed: Chromium (apt-get install chromium)")
def test_search_works_from_files(site: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    options = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=options)
        asked: list[str] = []
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{(site / 'search.html').as_uri()}?q=staircase")
        found = page.locator("#search-results ul.search li a", has_text="Adding a mechanism")
        found.first.wait_for(timeout=120_000)  # results appear one after another
        browser.close()
    assert all(url.startswith(("file:", "data:")) for url in asked)
