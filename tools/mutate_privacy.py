"""Would a test notice weaker privacy? `python tools/mutate_privacy.py` weakens it, a line at a time, and looks.

Each file of `tools/privacy_mutants` lists small patches to one task: less noise, a smaller sensitivity, a charge left
out. Every patch is applied by itself to a copy of the tree (the checkout is never touched) and the tests that it names
are run there, up to the first failure. A patch that they notice is killed. One that they do not notice has survived:
write the missing test, or, where the change weakens nothing, say so in one sentence as `harmless`. The test that
noticed a patch last time (`noticed_by.json`, which `--record` brings up to date) is tried first, and alone.

    tests = ["tests/laws/test_mean.py"]        # for every patch of the file that names none itself

    [[mutant]]
    name = "sum-without-noise"
    at = "noisy_sum"                           # function, Class.method, Class or constant, anywhere in src or lab
    old = "total + draw"                       # text that occurs once in there
    new = "total"
    reason = "the trusted sum would be published as it is"

Where several functions share a name, `old` occurs once in all of them, or `at` begins with a module: `mean.noisy_sum`.
A module itself is the last resort (`curator.sums`). White space does not count, nor does a comma before a closing
bracket. Lines of `new` after its first are indented from the line where `old` begins. In JavaScript `at` is a
function, or a file without its ending.

Exit code 1 when a patch survives without a sentence, no longer applies, breaks the code instead of weakening it, never
ends, or is noticed only by a test that fails on the unchanged tree too; 2 when nothing could be tried.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import fnmatch
import hashlib
import json
import multiprocessing
import os
import re
import runpy
import shutil
import signal
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from queue import SimpleQueue

__all__ = ["Code", "Mutant", "Outcome", "load", "main"]

ROOT = Path(__file__).resolve().parent.parent
LISTS = Path("tools") / "privacy_mutants"
NOTICED = LISTS / "noticed_by.json"
NOT_COPIED = (".git", ".venv", "out", "build", "dist", "__pycache__", ".*_cache", ".hypothesis", "*.egg-info")

KILLED, SURVIVED, HARMLESS, STALE, BROKEN, HUNG, UNTRIED = (
    "killed", "survived", "harmless", "stale", "broken", "hung", "untried",
)  # fmt: skip
MEANING = {
    SURVIVED: "no test failed",
    HARMLESS: "no test failed, and the list says why none needs to",
    STALE: "the old text is not in the function exactly once",
    BROKEN: "the patched code does not run at all, so that nothing was tried",
    HUNG: "the tests did not end",
    UNTRIED: "the test that failed does so before anything is changed",
}
# Tests run in forks of a server that has imported what they share, and nothing of the tree that is patched.
_SHARED = ["pytest", "numpy", "scipy.stats", "mpmath", "duckdb", "sqlglot", "click", "rich.progress"]
_SHARED += ["sqlalchemy", "pydantic", "msgspec", "cryptography"]
os.environ.setdefault("OMP_NUM_THREADS", "1")
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(_SHARED)
_IN_A_COPY = "mutant"  # the name of this file in such a fork, which finds it by its path alone
_RUNNING: set[multiprocessing.process.BaseProcess] = set()

# The patched code itself is at fault, not what it does.
_NO_CODE = re.compile(r"^E +(SyntaxError|IndentationError|NameError|UnboundLocalError|ImportError)", re.MULTILINE)
_FAILURE = re.compile(r"^(?:FAILED|ERROR) ([^\s\[]+(?:\[.*?\])?)(?: - .*)?$", re.MULTILINE)
_NOTHING_RUN = (4, 5)  # pytest's exit codes for a test that is not there
_COUNTS = re.compile(r"[^\s,]|,(?!\s*[)\]}])")  # all but white space and a comma before a closing bracket
_JS_FUNCTION = re.compile(r"^(?:export )?(?:async )?function\*? (\w+).*?^}", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Mutant:
    """One deliberate weakening: `old` becomes `new` in the function `at`, and one of `tests` must fail."""

    name: str
    at: str
    old: str
    new: str
    reason: str
    tests: tuple[str, ...]
    harmless: str = ""


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant, how long that took, and the test that noticed it."""

    mutant: str
    status: str
    seconds: float
    by: str = ""
    key: str = ""


class Problem(Exception):
    """Why nothing could be tried."""


class Code:
    """The source files of a tree, and where in them each function, class and constant is."""

    def __init__(self, root: Path) -> None:
        files = sorted(p for d in ("src", "lab") for p in (root / d).rglob("*") if p.suffix in {".py", ".js"})
        self.texts = {path.relative_to(root): path.read_text(encoding="utf-8") for path in files}
        self._places: dict[str, list[tuple[str, Path, int, int]]] = defaultdict(list)
        for path, text in self.texts.items():
            module = ".".join(path.with_suffix("").parts[1:]).removesuffix(".__init__")
            spans = _python(text) if path.suffix == ".py" else ((m[1], *m.span()) for m in _JS_FUNCTION.finditer(text))
            for name, start, end in [("", 0, len(text)), *spans]:
                full = f"{module}.{name}".strip(".")
                self._places[full.rpartition(".")[2]].append((full, path, start, end))

    def patched(self, mutant: Mutant) -> tuple[Path, str] | None:
        """The file that holds the function, and its text with the patch; None unless `old` is there exactly once."""
        old = "".join(_COUNTS.findall(mutant.old))
        result: set[tuple[Path, int, int]] = set()
        for full, path, start, end in self._places[mutant.at.rpartition(".")[2]]:
            if f".{full}".endswith(f".{mutant.at}"):
                letters = list(_COUNTS.finditer(self.texts[path], start, end))
                for m in re.finditer(f"(?={re.escape(old)})", "".join(m[0] for m in letters)):
                    result.add((path, letters[m.start()].start(), letters[m.start() + len(old) - 1].end()))
        if len(result) != 1:
            return None
        ((path, start, end),) = result
        before, after = self.texts[path][:start], self.texts[path][end:]
        line = before[before.rfind("\n") + 1 :]
        indent = line[: len(line) - len(line.lstrip())]
        return path, before + mutant.new.replace("\n", f"\n{indent}") + after


def _python(text: str) -> Iterator[tuple[str, int, int]]:
    """Name, start and end of each function, class, method and constant of a module."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def within(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, int, int]]:
        for node in body:
            first, last = node.lineno, node.end_lineno or node.lineno
            names: list[str] = []
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names, first = [node.name], min([first, *(d.lineno for d in node.decorator_list)])
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]
            yield from ((prefix + name, starts[first - 1], starts[last]) for name in names)
            if isinstance(node, ast.ClassDef):
                yield from within(node.body, f"{prefix}{node.name}.")

    return within(ast.parse(text).body, "")


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description="Weaken privacy, a line at a time, and see whether a test notices.")
    parser.add_argument("--only", action="append", metavar="PATTERN", help="names to try, e.g. 'mean/*'; repeatable")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="mutants tried at a time [1]")
    parser.add_argument("--limit", type=int, default=900, metavar="S", help="seconds before tests count as hung [900]")
    parser.add_argument("--out", type=Path, metavar="FILE", help="add each outcome as a line, and skip what is there")
    parser.add_argument("--record", action="store_true", help="keep which test noticed what, to be tried first")
    given = parser.parse_args(arguments)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # tidy up as after Ctrl-C
    try:
        patterns = given.only or ["*"]
        mutants = [m for m in load(root) if any(fnmatch.fnmatch(m.name, p) for p in patterns)]
        if not mutants:
            raise Problem(f"No mutant has such a name; {LISTS} lists them all.")
        outcomes = _run(root, mutants, jobs=given.jobs, limit=given.limit, out=given.out)
    except Problem as problem:
        print(problem, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted: nothing was left behind.", file=sys.stderr)
        return 130
    if given.record:
        noticed = _noticed(root) | {o.mutant: o.by for o in outcomes if o.status == KILLED}
        still = {m.name: noticed[m.name] for m in load(root) if m.name in noticed}
        (root / NOTICED).write_text(json.dumps(still, indent=0, sort_keys=True) + "\n", encoding="utf-8")
    _report(outcomes, {m.name: m for m in mutants})
    return int(any(o.status not in (KILLED, HARMLESS) for o in outcomes))


def load(root: Path = ROOT) -> list[Mutant]:
    """Every mutant of every list, named `list/name`."""
    result: list[Mutant] = []
    for path in sorted((root / LISTS).glob("*.toml")):
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        for entry in document.get("mutant", []):
            tests = tuple(entry.pop("tests", document.get("tests", [])))
            try:
                result.append(Mutant(**{**entry, "name": f"{path.stem}/{entry['name']}"}, tests=tests))
            except (KeyError, TypeError) as error:
                raise Problem(f"{path.name}: {entry.get('name', 'a mutant without a name')}: {error}") from None
    return result


def _noticed(root: Path) -> dict[str, str]:
    path = root / NOTICED
    result: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return result


def _key(mutant: Mutant, patch: tuple[Path, str] | None, root: Path) -> str:
    """Of the patch, the file that it changes and the tests that it names: another key, and it is tried again."""
    files = [root / f for f in sorted({t.split("::")[0] for t in mutant.tests})]
    texts = [f.read_text(encoding="utf-8") for f in files if f.is_file()]
    return hashlib.sha256(repr((mutant, patch, texts)).encode()).hexdigest()[:16]


def _before(out: Path | None, keys: dict[str, str]) -> dict[str, Outcome]:
    """What an earlier run wrote of the same patches to the same texts."""
    lines = out.read_text(encoding="utf-8").splitlines() if out is not None and out.is_file() else []
    read = [Outcome(**json.loads(line)) for line in lines]
    return {o.mutant: o for o in read if keys.get(o.mutant) == o.key}


def _run(root: Path, mutants: list[Mutant], *, jobs: int, limit: int, out: Path | None = None) -> list[Outcome]:
    noticed = _noticed(root)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = [Path(folder) / str(i) for i in range(jobs)]
        free: SimpleQueue[Path] = SimpleQueue()
        for copy in copies:
            shutil.copytree(root, copy, ignore=shutil.ignore_patterns(*NOT_COPIED), symlinks=True)
            free.put(copy)
        code = Code(copies[0])
        patches = {m.name: code.patched(m) for m in mutants}
        keys = {m.name: _key(m, patches[m.name], copies[0]) for m in mutants}
        outcomes = _before(out, keys)

        def attempt(mutant: Mutant) -> Outcome:
            copy = free.get()
            start = time.monotonic()
            try:
                status, by = _attempt(mutant, patches[mutant.name], copy, limit, noticed.get(mutant.name))
                return Outcome(mutant.name, status, round(time.monotonic() - start, 1), by, keys[mutant.name])
            finally:
                free.put(copy)

        def red(tests: list[str]) -> set[str]:
            """Those of some tests that fail before anything is changed, and so can tell nothing."""
            copy = free.get()
            try:
                code, text = _pytest(copy, tests, limit=limit, to_the_end=True)
                return set() if code == 0 else set(_FAILURE.findall(text)) or set(tests)
            except TimeoutError:
                return set(tests)
            finally:
                free.put(copy)

        pool = ThreadPoolExecutor(jobs)
        try:
            for done in as_completed([pool.submit(attempt, m) for m in mutants if m.name not in outcomes]):
                o = done.result()
                outcomes[o.mutant] = o
                if out is not None:
                    with out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(asdict(o)) + "\n")
                count = f"[{len(outcomes)}/{len(mutants)}]"
                print(f"{count:>9} {o.status:8} {o.mutant} {o.seconds:.0f} s {o.by}", file=sys.stderr, flush=True)
            killers = sorted({o.by for o in outcomes.values() if o.status == KILLED})
            print(f"{len(killers)} tests that noticed, on the unchanged tree", file=sys.stderr, flush=True)
            by_file = [list(nodes) for _, nodes in groupby(killers, lambda node: node.split("::")[0])]
            for test in sorted(set[str]().union(*pool.map(red, by_file))):
                print(f"{test} fails before anything is changed", file=sys.stderr, flush=True)
                for o in [o for o in outcomes.values() if o.status == KILLED and o.by == test]:
                    outcomes[o.mutant] = replace(o, status=UNTRIED)
        finally:  # also after Ctrl-C: nothing more begins, and what runs is ended
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(_RUNNING):
                process.kill()
            pool.shutdown()
    return [outcomes[m.name] for m in mutants]


def _attempt(
    mutant: Mutant, patch: tuple[Path, str] | None, copy: Path, limit: int, first: str | None
) -> tuple[str, str]:
    """What became of a mutant on a copy, and the test that noticed it."""
    if patch is None:
        return STALE, ""
    path = copy / patch[0]
    original, times = path.read_bytes(), path.stat()
    try:
        path.write_text(patch[1], encoding="utf-8")
        # Compiled files are told apart by size and whole second: a time of its own keeps an old one from being used.
        os.utime(path, (times.st_atime, times.st_mtime - 1000))
        try:
            code, text = _pytest(copy, [first], limit=limit) if first else (0, "")
            if code in (0, *_NOTHING_RUN):
                code, text = _pytest(copy, mutant.tests, limit=limit)
        except TimeoutError:
            return HUNG, ""
    finally:
        path.write_bytes(original)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink()
    if code == 0:
        return (HARMLESS if mutant.harmless else SURVIVED), ""
    if _NO_CODE.search(text) or code in _NOTHING_RUN:
        return BROKEN, text[-1500:]
    by = _FAILURE.search(text)
    return KILLED, by[1] if by else text[-300:]


def _pytest(copy: Path, tests: Iterable[str], *, limit: int, to_the_end: bool = False) -> tuple[int, str]:
    """Exit code and output of the tests on a copy; whatever they started ends with them."""
    output = copy.parent / f"{copy.name}.txt"
    given = {"GIVEN": (copy, [*tests, *([] if to_the_end else ["-x"])], output)}
    process = _SERVER.Process(target=runpy.run_path, args=(__file__, given, _IN_A_COPY))
    process.start()
    _RUNNING.add(process)
    process.join(limit)
    hung = process.is_alive()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.join()
    _RUNNING.discard(process)
    if hung:
        raise TimeoutError
    return process.exitcode or 0, output.read_text(encoding="utf-8", errors="replace")


def _inside(copy: Path, tests: list[str], output: Path) -> None:
    """In a process of its own, with the copy's source in front of any other and nothing of it imported before."""
    os.setsid()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with output.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    places = [str(copy / "src"), str(copy / "lab")]
    os.environ |= {"PYTHONPATH": os.pathsep.join(places), "COLUMNS": "300"}
    sys.path[:0] = places
    os.chdir(copy)
    # Compiled once for all mutants of a copy, also where the user wants none in the checkout.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    import pytest

    code = int(pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", *tests]))
    sys.stdout.flush()
    os._exit(code)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.killpg(0, signal.SIGKILL)


def _report(outcomes: list[Outcome], mutants: dict[str, Mutant]) -> None:
    counts = Counter(o.status for o in outcomes)
    print(f"\n{len(outcomes)} mutants: " + ", ".join(f"{n} {status}" for status, n in counts.most_common()))
    for status, meaning in MEANING.items():
        these = [mutants[o.mutant] for o in outcomes if o.status == status]
        if these:
            print(f"\n{status}: {meaning}")
        for m in these:
            print(f"  {m.name}: {m.harmless if status == HARMLESS else m.reason}")
    noticed = [o.mutant for o in outcomes if o.status == KILLED and mutants[o.mutant].harmless]
    if noticed:
        print(f"\nCalled harmless, but a test notices: drop the sentence of {', '.join(noticed)}.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
if __name__ == _IN_A_COPY:
    _inside(*globals()["GIVEN"])
