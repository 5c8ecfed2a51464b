"""How a release is paid for and how it ends: kept first, then written, drawn and shown."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybridp.cli.common import check_plot, emit, note, progress, randomness, save_plot, show_release
from hybridp.cli.options import option_of
from hybridp.errors import InvalidInput, NotShown
from hybridp.public.envelope import write
from hybridp.public.study.fields import Fields, field
from hybridp.release.receipt import plain

if TYPE_CHECKING:
    from hybridp.randomness import Randomness

__all__ = [
    "Releasing",
    "check_out",
    "finish",
    "open_ledger",
    "out_option",
    "present",
    "silence",
]


@dataclass(frozen=True, kw_only=True)
class Releasing(Fields):
    """How a release is paid for, what it reads beside the rows, and where it goes."""

    ledger: Path | None = field(
        None,
        help="Charge this ledger, which keeps the release; a missing one is made with this release's promise as total.",
    )
    collection: str | None = field(
        None, help="A name for these local reports, charged once; others under it are refused."
    )
    simulate_local: bool = field(False, help="A trial: local rows are raw and are randomised here.")
    tally: Path | None = field(None, help="A tally of local reports (`hybridp tally add`) in place of the local rows.")
    assume_mechanism: bool = field(
        False, help="Take reports that do not say how they were made at your word; the receipt says so."
    )
    seed: int | None = field(None, help="SIMULATION ONLY: a seeded generator protects nobody.")
    table: str | None = field(None, help="The table, in a DuckDB file or a database.")
    out: Path | None = field(None, help="Write the release, as --json has it, to this new file before it is shown.")
    plot: Path | None = field(None, help="Save a picture (.png, .svg, .pdf).")
    as_json: bool = field(False, help="One JSON object on stdout and nothing else.", option="json")

    def check(self) -> None:
        check_plot(self.plot)
        check_out(self.out)
        if self.tally is not None and self.simulate_local:
            raise InvalidInput("`simulate-local` must not go with --tally. Got both.")

    @cached_property
    def rng(self) -> Randomness:
        return randomness(self.seed)

    @property
    def trial(self) -> bool:
        return self.simulate_local or self.rng.simulated

    @property
    def run(self) -> dict[str, Any]:
        """What every protocol of a release is told."""
        return {
            "table": self.table,
            "simulate_local": self.simulate_local,
            "collection": self.collection,
            "assume_mechanism": self.assume_mechanism,
            "rng": self.rng,
        }

    def tallied(self, kind: str) -> Any:
        """The tally, of the kind that this release needs; None without one."""
        from hybridp.protocols.tally import load_tally

        if self.tally is None:
            return None
        found = load_tally(self.tally)
        if found.kind != kind:
            raise InvalidInput(f"`tally` must be of the kind {kind} for this release. Got {found.kind}.")
        return found

    @contextmanager
    def paying(self, totals: dict[str, Any], *, trial: bool = False) -> Iterator[Any]:
        """A bar while it works, and the ledger that pays, if any; `trial` where something else makes it one."""
        paying = open_ledger(self.ledger, totals, trial=self.trial or trial, collection=self.collection)
        with progress() as bar, paying as ledger:
            bar.add_task("reading and adding up", total=None)
            yield ledger

    def finish(self, found: Any, *, spent: bool = True) -> None:
        """The end of a release: kept first, then written, drawn and shown; `spent`: whether anything was."""
        finish(
            found, ledger_file=self.ledger, out_file=self.out, plot_file=self.plot, as_json=self.as_json, spent=spent
        )


out_option = option_of(Releasing, "out", "out_file")


def check_out(path: Path | None) -> None:
    """Refuse a file that cannot be written, before anything is computed or spent."""
    if path is None:
        return
    if not path.parent.is_dir():
        raise InvalidInput(f"`--out` must lie in an existing folder. Got {path}.")
    if path.exists():
        raise InvalidInput(f"`--out` must name a new file. Got {path}, which exists.")
    if not os.access(path.parent, os.W_OK):
        raise InvalidInput(f"`--out` must lie in a folder that can be written to. Got {path}.")


@contextmanager
def open_ledger(
    file: Path | None, totals: dict[str, Any], *, trial: bool, collection: str | None = None
) -> Iterator[Any]:
    """The ledger, or a new one whose totals are what this release promises; None without a file.

    A new one goes again if nothing was charged: a refused command must not decide what people were promised.
    """
    from hybridp.ledger import Ledger

    if file is None:
        if collection is not None:
            raise InvalidInput(f"`collection` must go with --ledger, which charges it once. Got {collection} alone.")
        yield None
        return
    if file.exists():
        yield Ledger.open(file)
        return
    made = Ledger.create(file, totals, trial=trial)
    try:
        yield made
    except BaseException:
        if all(entry.state == "void" for entry in made.history()):
            file.unlink(missing_ok=True)
        raise
    kind = "It is for trials only: a release refuses it. " if trial else ""
    note(f"Created {file}: each group may spend what this release promises, once. {kind}".rstrip())


# --- the end ----------------------------------------------------------------------------------------------------------


def finish(
    found: Any,
    *,
    ledger_file: Path | None,
    out_file: Path | None,
    plot_file: Path | None,
    as_json: bool,
    spent: bool = True,
) -> None:
    """The end of a release; of one that `spent` nothing no word is lost on who pays."""
    document = found.to_dict()
    again = ""
    if ledger_file is not None:
        document["ledger"] = str(ledger_file)
        number = found.receipt.asked.number
        again = f"`hybridp ledger show {ledger_file} --release {number}` shows it again, for free"

    def draw(path: Path) -> None:
        save_plot(path, found.plot)

    present(
        document, lambda: show_release(found), again, out_file=out_file, as_json=as_json, draw=draw, plot_file=plot_file
    )
    if ledger_file is None and spent and not found.simulated:
        note("Nothing was charged: without --ledger nobody adds up what these people were promised.")


def present(
    document: dict[str, Any],
    show: Callable[[], None],
    again: str,
    *,
    out_file: Path | None,
    as_json: bool,
    draw: Callable[[Path], None] | None = None,
    plot_file: Path | None = None,
) -> None:
    """Write, draw and show what was paid for; whatever goes wrong, say how to see it `again`."""
    places = [again] if again else []
    problems: list[str] = []
    answered = False
    try:
        if out_file is not None:
            with _noted(problems, f"`--out` {out_file}"):
                write(out_file, (json.dumps(plain(document), allow_nan=False) + "\n").encode())
                places.append(f"it is in {out_file}")
        if draw is not None and plot_file is not None:
            with _noted(problems, f"`--plot` {plot_file}"):
                draw(plot_file)
                document["plot"] = str(plot_file)
        with _noted(problems, "standard output"):
            if as_json:
                emit({**document, "problems": problems} if problems else document)
            else:
                show()
            answered = True
    except KeyboardInterrupt:
        sentence = f"interrupted after the release was made; {_again(places)}."
        raise NotShown(sentence, answered=answered, code=130) from None
    if not answered:
        silence(sys.stdout)
    if problems:
        said = "; ".join(problems)
        raise NotShown(f"The release was made, but {said}; {_again(places)}.", answered=answered)


def _again(places: list[str]) -> str:
    return "; ".join(places) or "it was kept nowhere: give --ledger or --out for that"


@contextmanager
def _noted(problems: list[str], what: str) -> Iterator[None]:
    """A failure of one way to show a release must not keep it from the others."""
    try:
        yield
    except Exception as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        problems.append(f"{what} could not be written ({reason})")


def silence(stream: Any) -> None:
    """Point a broken stream at nothing, so that the interpreter does not fail again when it closes it."""
    try:
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), stream.fileno())
    except (AttributeError, OSError, ValueError):
        return
