"""The documentation is true: examples run, figures come out, links lead somewhere, the reference is complete.

Blocks of one page run in order, in one directory and one namespace, as a reader would run them. A block of ``>>>``
examples must print what it shows, and a plain Python block what a `text` block right after it shows. Of a `console`
block every ``$ hybridp`` command must end with exit code 0 (3 in a block marked `refused`), and where a command draws
no noise the lines shown must be in its output, in order. `ID` stands for the service's only study. A server in a block
marked `starts` must say where it serves, and is stopped; commands marked `parsed`, or shown in blocks of other
languages, need what a test has not (a crowd, a cluster, hours) and are checked against the options that exist.
"""

from __future__ import annotations

import doctest
import importlib.util
import json
import re
import shlex
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

from hybridp.cli.app import cli, main
from tests import warm

ROOT = Path(__file__).resolve().parent.parent
OWN = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md")]
PAGES = sorted([*OWN, *ROOT.glob("docs/**/*.md")])
NOISELESS = ("plan", "ledger create")
LEFT_OUT = "…"
SETTINGS = ("refused", "starts", "parsed")
GUIDES = ("quickstart", "personal", "heavy-hitters", "vector-mean", "kmeans", "synth", "pareto", "service", "shuffling")
GUIDES += ("choosing-trust", "choosing-epsilon", "privacy-model", "threat-model", "add-a-mechanism", "adaptive")
LANGUAGES = ("python", "console", "text", "csv", "sh", "ini", "nginx", "toml", "yaml", "{toctree}")


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
        return shlex.split(self.line, comments=True)[1:]


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


def runs(page: Path) -> bool:
    """Whether a page has anything to run."""
    kinds = {block.info.split(" ")[0] for block in blocks(page)}
    return bool(kinds & {"python", "console"})


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
    arguments = command.arguments
    if "ID" in arguments:  # options first: an id may begin with a dash
        at = arguments.index("ID")
        end = next((i for i, a in enumerate(arguments) if a.startswith("--")), len(arguments))
        arguments = [*arguments[:at], *arguments[end:], "--", only_study(capsys), *arguments[at + 1 : end]]
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    said = capsys.readouterr()
    assert stopped.value.code == code, f"{where}: {command.line}\n{said.err}"
    if code or command.line.removeprefix("hybridp ").startswith(NOISELESS):
        missing = missing_in_order(command.shown, said.err + said.out)
        assert not missing, f"{where}: {command.line} does not print {missing}"


def only_study(capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit):
        main(["study", "list", "--json"])
    (study,) = json.loads(capsys.readouterr().out)["studies"]
    return str(study["id"])


def start_and_stop(command: Command, where: str) -> None:
    """A server in a process of its own, on a port that the system chooses; it must say where it serves."""
    with tempfile.NamedTemporaryFile("w+") as log:
        words = [*command.arguments, "--port", "0"]
        server = warm.Process(warm.COMMAND, *words, stdout=log, stderr=log, env=warm.unbuffered())
        until = time.monotonic() + warm.PATIENCE
        try:
            while not re.search(r"http://127\.0\.0\.1:[1-9]\d+", said := Path(log.name).read_text(encoding="utf-8")):
                assert server.poll() is None, f"{where}: {command.line} did not serve\n{said}"
                assert time.monotonic() < until, f"{where}: {command.line} says nothing\n{said}"
                time.sleep(0.02)
        finally:
            server.kill()
            server.wait()


def check_options(arguments: list[str], where: str) -> None:
    """The command, its subcommands and its options exist; whether the values are any good is not asked."""
    found: click.Command = cli
    words = iter(arguments)
    context = click.Context(cli)
    for word in words:
        if not isinstance(found, click.Group):
            found = getattr(found, "tasks", {}).get(word, found)
            break
        below = found.get_command(context, word)
        assert below is not None, f"{where}: there is no `{word}` among the commands"
        found = below
    known = {o for p in found.params if isinstance(p, click.Option) for o in (*p.opts, *p.secondary_opts)} | {"--help"}
    unknown = [a for a in arguments if a.startswith("--") and a.partition("=")[0] not in known]
    assert not unknown, f"{where}: {found.name} has no {', '.join(unknown)}"


def run_python(block: Block, names: dict[str, Any], where: str) -> None:
    """Execute the block in the page's namespace; examples are compared with what they show."""
    if not block.text.startswith(">>>"):
        exec(compile(block.text, where, "exec", dont_inherit=True), names)
        return
    example = doctest.DocTestParser().get_doctest(block.text, names, where, where, block.line)
    said: list[str] = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.DocTestRunner(optionflags=flags).run(example, out=said.append, clear_globs=False)
    names.update(example.globs)  # the parser works on a copy
    assert not result.failed, "".join(said)


RUN = [page for page in PAGES if runs(page)]


@pytest.mark.parametrize("page", RUN, ids=lambda p: p.name)
def test_every_example_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")  # the width at which tables are shown
    names: dict[str, Any] = {"__name__": "docs"}
    for block in blocks(page):
        where = f"{page.name}, line {block.line}"
        if block.info == "python":
            capsys.readouterr()
            run_python(block, names, where)
        elif block.info == "text" and block.after == "python":
            assert capsys.readouterr().out.rstrip() == block.text.rstrip(), where
        elif block.info.startswith("console"):
            for command in commands(block):
                if "parsed" in block.info:
                    check_options(command.arguments, where)
                elif "starts" in block.info:
                    start_and_stop(command, where)
                else:
                    run_command(command, 3 if "refused" in block.info else 0, capsys, where)


def test_no_block_slips_through() -> None:
    """Every block is of a language known here, and a console block has a command; none hides by a misspelt word."""
    for page in PAGES:
        for block in blocks(page):
            where = f"{page.relative_to(ROOT)}, line {block.line}"
            language, *settings = block.info.split(" ")
            assert language in LANGUAGES, where
            assert set(settings) <= set(SETTINGS), where
            if language == "console":
                assert "$ " in block.text, where
    assert {*GUIDES, "papers", "errata", "README"} - {"adaptive"} <= {page.stem for page in RUN}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_that_are_only_shown_exist(page: Path) -> None:
    for block in blocks(page):
        if block.info in ("text", "sh", "ini"):
            for line in re.sub(r"\\\n\s*", "", block.text).splitlines():
                found = re.search(r"(?:^|bin/)hybridp (.*)", line)
                if found:
                    where = f"{page.name}, line {block.line}"
                    check_options(shlex.split(found[1], comments=True), where)


def test_an_option_that_does_not_exist_is_noticed() -> None:
    check_options(["plan", "mean", "--n", "5"], "control")
    with pytest.raises(AssertionError, match="has no --people"):
        check_options(["plan", "mean", "--people", "5"], "control")
    with pytest.raises(AssertionError, match="no `plot`"):
        check_options(["plot"], "control")


@pytest.mark.parametrize("file", sorted((ROOT / "docs" / "examples").glob("own_*.py")), ids=lambda p: p.name)
def test_the_skeletons_examples_hold_and_the_page_shows_their_code(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, file.stem, module)
    spec.loader.exec_module(module)
    tried = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert tried.attempted >= 2
    assert not tried.failed
    name = "add-a-question.md" if file.stem == "own_ratio" else "add-a-mechanism.md"
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    for part in re.split(r"^(?=@dataclass|def )", file.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        code = part.split("\n# In the library")[0].rstrip()
        assert code in page, f"{file.name}: docs/{name} does not show\n{code}"


def test_the_tour_prints_and_draws_what_it_shows() -> None:
    tour = load("tour")
    saved = json.loads(tour.TOUR.read_text(encoding="utf-8"))
    shown = tour.printed(saved)
    assert tour.printed(tour.run(saved)) == shown, "run `python docs/tour.py`"
    assert sum(pictures for _, pictures in shown) >= 4
    assert tour.TOUR.stat().st_size < 300_000


def test_a_wrong_figure_would_be_noticed() -> None:
    wrong = Block("python", ">>> 1 + 1\n3\n", 1)
    with pytest.raises(AssertionError, match="Got"):
        run_python(wrong, {}, "control")
    assert missing_in_order(("a", LEFT_OUT, "c"), "a\nb\nc\n") == []
    assert missing_in_order(("c", "a"), "a\nb\nc\n") == ["a"]


def test_commands_are_read_with_their_continuation_and_output() -> None:
    block = Block("console", "$ make demo\n$ hybridp plan mean --n 2 \\\n    --opt-in 0.5\nfirst\nsecond\n", 1)
    assert list(commands(block)) == [Command("hybridp plan mean --n 2 --opt-in 0.5", ("first", "second"))]


@pytest.fixture(scope="module")
def generate() -> Any:
    """The writer of the references, and its pages, written once."""
    writer = load("generate")
    pages = writer.pages()
    writer.pages = lambda: pages
    return writer


def test_every_command_and_option_is_documented(generate: Any) -> None:
    reference = generate.pages()["reference/cli.md"]
    guides = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    walk = "".join(guide.read_text(encoding="utf-8") for guide in guides)
    for name, command, _ in generate.commands():
        assert f"`{name}`" in reference
        if isinstance(command, click.Group) or hasattr(command, "tasks"):
            continue
        assert name in walk, f"{name} is in no guide"
        section = reference.split(f"## `{name}`\n")[1].split("\n## ")[0].split("\n### ")[0]
        for option in (o for p in command.params if isinstance(p, click.Option) for o in p.opts):
            assert f"`{option}`" in section, f"{name} {option}"


def test_every_public_name_is_documented(generate: Any) -> None:
    pages = generate.pages()
    for module in generate.modules():
        index = module.__name__ == "hybridp"
        page = pages["reference/" + ("api.md" if index else f"api/{generate.room(module.__name__)}.md")]
        assert " at 0x" not in page
        section = page if index else page.split(f"\n## `{module.__name__}`\n")[1].split("\n## ")[0]
        for name in module.__all__:
            shown = f"| `{name}` |" if index else f"### `{name}`\n"
            assert shown in section or name.startswith("__"), f"{module.__name__}.{name}"


DEVELOPERS = {"dev", "docs", "release", "bench", "peers"}


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_every_extra_is_named_once_where_installing_is_described(page: str) -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = set(tomllib.load(file)["project"]["optional-dependencies"]) - DEVELOPERS
    text = (ROOT / page).read_text(encoding="utf-8")
    (paragraph,) = [p for p in text.split("\n\n") if "pip install" in p and "extras" in p]
    named = [name for name in re.findall(r"`([\w-]+)`|\[plot[\],]", paragraph) if name in extras]
    assert sorted({*named, "plot"}) == sorted(extras)
    assert len(named) == len({*named})


def test_pictures_are_small_described_and_used() -> None:
    pictures = set((ROOT / "docs" / "images").glob("*.png"))
    for picture in pictures:
        assert picture.stat().st_size < 100_000, picture.name
    used = set()
    for page in PAGES:
        for text, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            assert text, f"a picture of {page.name} has no description"
            used.add((page.parent / target).resolve())
    assert pictures == used
