"""The documentation is true: examples run, figures come out, links lead somewhere, the reference is current.

Blocks of one page run in order, in one directory and one namespace, as a reader would run them. A block of ``>>>``
examples must print what it shows, and a plain Python block what a `text` block right after it shows. Of a `console`
block every ``$ hybridp`` command must end with exit code 0 (3 in a block marked `refused`), and where a command draws
no noise the lines shown must be in its output, in order.
"""

from __future__ import annotations

import doctest
import importlib.util
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

from hybridp.cli.app import main

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/**/*.md")])
GUIDES = ("quickstart", "privacy-model", "errata", "personal", "heavy-hitters", "vector-mean", "kmeans", "synth")
GUIDES += ("pareto", "service", "papers")
RUN = [ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in GUIDES)]
NOISELESS = ("plan", "amplify", "ledger create")
LEFT_OUT = "…"


@dataclass(frozen=True)
class Block:
    """A fenced block: the words after the fence, its text, the line where it starts, and what it directly follows."""

    info: str
    text: str
    line: int
    after: str = ""


@dataclass(frozen=True)
class Command:
    """A command of a console block and the lines shown under it."""

    line: str
    shown: tuple[str, ...]

    @property
    def arguments(self) -> list[str]:
        return shlex.split(self.line)[1:]


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    end, last = 0, ""
    for found in re.finditer(r"^```([^\n]*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        after = "" if text[end : found.start()].strip() else last
        yield Block(found[1].strip(), found[2], text.count("\n", 0, found.start()) + 2, after)
        end, last = found.end(), found[1].strip()


def commands(block: Block) -> Iterator[Command]:
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        joined = re.sub(r"\\\n\s*", "", part)
        line, *shown = joined.rstrip("\n").split("\n")
        if line.startswith("hybridp "):
            yield Command(line, tuple(shown))


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def missing_in_order(shown: tuple[str, ...], output: str) -> list[str]:
    """The shown lines that are not in the output after those before them; trailing blanks do not count."""
    lines = iter([line.rstrip() for line in output.splitlines()])
    return [line for line in shown if line != LEFT_OUT and line.rstrip() not in lines]


def run_command(command: Command, code: int, capsys: pytest.CaptureFixture[str], where: str) -> None:
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        main(command.arguments)
    said = capsys.readouterr()
    assert stopped.value.code == code, f"{where}: {command.line}\n{said.err}"
    if code or command.line.removeprefix("hybridp ").startswith(NOISELESS):
        missing = missing_in_order(command.shown, said.err + said.out)
        assert not missing, f"{where}: {command.line} does not print {missing}"


def run_python(block: Block, names: dict[str, Any], where: str) -> None:
    """Execute the block in the page's namespace; examples are compared with what they show."""
    if not block.text.startswith(">>>"):
        exec(compile(block.text, where, "exec"), names)
        return
    example = doctest.DocTestParser().get_doctest(block.text, names, where, where, block.line)
    said: list[str] = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.DocTestRunner(optionflags=flags).run(example, out=said.append, clear_globs=False)
    names.update(example.globs)  # the parser works on a copy
    assert not result.failed, "".join(said)


@pytest.mark.parametrize("page", RUN, ids=lambda p: p.name)
def test_every_example_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")  # the width at which tables are shown
    names: dict[str, Any] = {"__name__": "docs"}
    ran = 0
    for block in blocks(page):
        where = f"{page.name}, line {block.line}"
        if block.info == "python":
            capsys.readouterr()
            run_python(block, names, where)
            ran += 1
        elif block.info == "text" and block.after == "python":
            assert capsys.readouterr().out.rstrip() == block.text.rstrip(), where
        elif block.info.startswith("console"):
            for command in commands(block):
                run_command(command, 3 if "refused" in block.info else 0, capsys, where)
                ran += 1
    assert ran >= 2


def test_a_wrong_figure_would_be_noticed() -> None:
    wrong = Block("python", ">>> 1 + 1\n3\n", 1)
    with pytest.raises(AssertionError, match="Got"):
        run_python(wrong, {}, "control")
    assert missing_in_order(("a", LEFT_OUT, "c"), "a\nb\nc\n") == []
    assert missing_in_order(("c", "a"), "a\nb\nc\n") == ["a"]


def test_commands_are_read_with_their_continuation_and_output() -> None:
    block = Block("console", "$ make demo\n$ hybridp plan mean --n 2 \\\n    --opt-in 0.5\nfirst\nsecond\n", 1)
    assert list(commands(block)) == [Command("hybridp plan mean --n 2 --opt-in 0.5", ("first", "second"))]


def test_the_reference_is_up_to_date() -> None:
    stale = [path.name for path in load("generate").stale()]
    assert not stale, f"run `make docs`: {stale}"


def test_a_stale_reference_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate = load("generate")
    monkeypatch.setattr(generate, "REFERENCE", tmp_path / "reference")
    assert generate.main(["--check"]) == 1
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    (tmp_path / "reference" / "cli.md").write_text("old", encoding="utf-8")
    assert generate.main(["--check"]) == 1


def test_every_command_and_option_is_documented() -> None:
    reference = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    guides = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    walk = "".join(guide.read_text(encoding="utf-8") for guide in guides)
    for name, command, _ in load("generate").commands():
        assert f"`{name}`" in reference
        if isinstance(command, click.Group):
            continue
        assert name in walk, f"{name} is in no guide"
        section = reference.split(f"## `{name}`\n")[1].split("\n## ")[0].split("\n### ")[0]
        for option in (o for p in command.params if isinstance(p, click.Option) for o in p.opts):
            assert f"`{option}`" in section, f"{name} {option}"


def test_every_public_name_is_documented() -> None:
    reference = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    for module in load("generate").modules():
        section = reference.split(f"\n## `{module.__name__}`\n")[1].split("\n## ")[0]
        for name in module.__all__:
            assert f"### `{name}`\n" in section, f"{module.__name__}.{name}"
    assert " at 0x" not in reference


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as Git hosts make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_local_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        found = (page.parent / file).resolve() if file else page
        assert found.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(found), f"{page.name} links to {target}"


def test_pictures_are_small_and_described() -> None:
    for picture in (ROOT / "docs" / "images").glob("*.png"):
        assert picture.stat().st_size < 100_000, picture.name
    for page in PAGES:
        for text, _ in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            assert text, f"a picture of {page.name} has no description"
