"""The table of docs/papers.md, written from a folder of results.

    python docs/papers_table.py out/papers

Run it after `make papers`: the numbers in the page are those of that run, and none is typed by hand.
"""

from __future__ import annotations

import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parent / "papers.md"
START, END = "<!-- table: written by docs/papers_table.py -->", "<!-- end of table -->"


def table(folder: Path) -> str:
    """One line for each figure in the folder: status, how many claims hold, and what failed or decided."""
    from hybridp_lab.figure.catalogue import catalogue, read_figures

    lines = ["| figure | status | claims that hold | what decided |", "|---|---|---|---|"]
    for outcome in read_figures(list(catalogue().values()), folder=folder):
        if not outcome.verdict.checks:
            continue
        checks = outcome.verdict.checks
        failed = [check for check in checks if not check.holds]
        decided = [f"{c.claim.rstrip('.')}: {c.measured or c.found}" for c in failed or checks[:1]]
        status = outcome.status + (f" (stand-in: {outcome.verdict.status})" if outcome.figure.not_public else "")
        said = ("NOT: " if failed else "") + "; ".join(decided)
        lines.append(
            f"| {outcome.figure.name} | {status} | {len(checks) - len(failed)} of {len(checks)} | {_cell(said)} |"
        )
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "/")


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print("papers_table.py: `folder` must be a folder that `hybridp papers run` wrote.", file=sys.stderr)
        return 2
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{START}\n\n{table(Path(arguments[0]))}\n\n{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
