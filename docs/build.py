"""Builds the documentation site, without the network: `python docs/build.py --out out/site`.

Pages that live outside docs/ (changelog, benchmarks, contributing, licence), the tour notebook and the papers' report
become pages of the site, and the reference is written from the code (`generate.py`). All pages are gathered in a folder
of their own, links are turned to where their targets then lie, and Sphinx runs with every warning an error. Needs the
extra `docs`.
"""

from __future__ import annotations

import argparse
import base64
import gc
import importlib.util
import json
import posixpath
import re
import shutil
import sys
import tempfile
from pathlib import Path

__all__ = ["build", "gather", "main", "reference", "tour_page"]

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent

BROUGHT = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "LICENSE": "licence.md",
    "benchmarks/README.md": "benchmarks.md",
    "docs/tour.ipynb": "tour.md",
}
"""Files of the repository and the pages that they become; every other page of docs/ keeps its place."""

LEFT = shutil.ignore_patterns("__pycache__", "*.ipynb", "build.py", "generate.py", "*figures.py", "tour.py")
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
NO_REPORT = """# The papers' report

This copy of the site was built without it. `hybridp papers run FIGURE --out out/papers` runs a figure,
`hybridp papers report --out out/papers` writes the report, and the next build of the site takes it in.
[The page about the papers](papers.md) says more, and what reproduces.
"""
REPORT = """# The papers' report

Every figure and table, its claims and what was found: <a href="papers-report/report.html">the report</a>. How it is
made, and what it shows in short: [the page about the papers](papers.md).
"""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Build the documentation site.")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "site", help="where the site goes [out/site]")
    parser.add_argument("--papers", type=Path, default=ROOT / "out" / "papers", help="the papers' report [out/papers]")
    given = parser.parse_args(arguments)
    code = build(given.out, given.papers)
    if code == 0:
        print(f"Open {given.out / 'index.html'}")
    return code


def build(out: Path, papers: Path) -> int:
    """Sphinx's exit code: 0 when there was not one warning."""
    from sphinx.cmd.build import main as sphinx

    report = (papers / "report.html").is_file()
    with tempfile.TemporaryDirectory() as folder:
        pages = Path(folder) / "pages"
        gather(pages, report=report)
        shutil.rmtree(out, ignore_errors=True)
        gc.disable()  # millions of nodes live to the end: looking for garbage among them takes half of the time
        code = sphinx(["-W", "--keep-going", "-q", "-b", "html", "-d", f"{folder}/trees", str(pages), str(out)])
        gc.enable()
    if code == 0 and report:
        (out / "papers-report").mkdir()
        for file in papers.iterdir():
            if file.suffix in (".html", ".png", ".svg"):
                shutil.copy(file, out / "papers-report")
    return int(code)


def gather(pages: Path, *, report: bool = False) -> None:
    """All pages of the site in one new folder, with links that lead from one to another."""
    shutil.copytree(DOCS, pages, ignore=LEFT)
    for source, page in BROUGHT.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        if source.endswith(".ipynb"):
            text = tour_page(text, pages / "images")
        elif source == "LICENSE":
            text = f"# Licence\n\n```text\n{text}```\n"
        (pages / page).write_text(text, encoding="utf-8")
    for page, text in reference().items():
        (pages / page).parent.mkdir(exist_ok=True, parents=True)
        (pages / page).write_text(text, encoding="utf-8")
    (pages / "papers-report.md").write_text(REPORT if report else NO_REPORT, encoding="utf-8")
    sources = {page: source for source, page in BROUGHT.items()}
    for file in pages.rglob("*.md"):
        page = file.relative_to(pages).as_posix()
        text = file.read_text(encoding="utf-8")
        file.write_text(_turned(text, sources.get(page, f"docs/{page}"), page), encoding="utf-8")


def reference() -> dict[str, str]:
    """The generated pages, by their place in the site."""
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, str] = module.pages()
    return found


def _turned(text: str, source: str, page: str) -> str:
    """The text with its links turned from places in the repository to places in the site."""

    def turn(found: re.Match[str]) -> str:
        target, _, anchor = found[1].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return found[0]
        there = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        place = BROUGHT.get(there, there.removeprefix("docs/"))
        relative = posixpath.relpath(place, posixpath.dirname(page) or ".")
        return f"]({relative}{'#' + anchor if anchor else ''})"

    parts, end = [], 0
    for fence in FENCE.finditer(text):
        # Pygments has no lexer for CSV.
        parts += [LINK.sub(turn, text[end : fence.start()]), re.sub(r"\A```csv", "```text", fence[0])]
        end = fence.end()
    return "".join([*parts, LINK.sub(turn, text[end:])])


def tour_page(notebook: str, images: Path) -> str:
    """The tour as Markdown, with what its cells printed; pictures are written to the folder `images`."""
    parts: list[str] = []
    for number, cell in enumerate(json.loads(notebook)["cells"]):
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        for output in cell["outputs"]:
            if output["output_type"] == "stream":
                parts.append(f"```text\n{''.join(output['text']).rstrip()}\n```")
            else:
                name = f"tour-{number}.png"
                (images / name).write_bytes(base64.b64decode("".join(output["data"]["image/png"])))
                parts.append(f"![What the cell above draws](images/{name})")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
