"""The table of docs/papers.md, written from the laboratory's committed results, or from a folder of results.

    python docs/papers_table.py [out/papers]

The numbers in the page are those of the points in that folder, and none is typed by hand.
"""

from __future__ import annotations

import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parent / "papers.md"
START, END = "<!-- table: written by docs/papers_table.py -->", "<!-- end of table -->"
TOLD = ("refuted", "undecided")


def table(folder: Path) -> str:
    """How many claims have each status; one line for each entry in the folder; and what is refuted or undecided."""
    from hybridp_lab.figure.catalogue import catalogue, read_figures
    from hybridp_lab.figure.declared import ORDER

    outcomes = read_figures(list(catalogue().values()), folder=folder)
    claims = [(o, check) for o in outcomes for check in o.verdict.claims]
    counts = ", ".join(f"{sum(c.status == s for _, c in claims)} {s}" for s in reversed(ORDER))
    lines = [f"{len(claims)} claims: {counts}.", "", "| entry | grid | claims |", "|---|---|---|"]
    for o in outcomes:
        grid = f"{o.scope}, {o.times} times" if o.times > 1 else o.scope
        told = ", ".join(f"{many} {status}" for status, many in o.verdict.counts.items()) or o.status
        beside = sum(check.stand_in == "reproduced" for check in o.verdict.claims)
        known = sum(bool(check.stand_in) for check in o.verdict.claims)
        told += f" (on the stand-in {beside} of {known} reproduced)" if known else ""
        lines.append(f"| {o.figure.name} | {grid} | {told} |")
    lines += ["", "| entry | claim | status | printed | measured | why |", "|---|---|---|---|---|---|"]
    for o, check in claims:
        if check.status in TOLD:
            why = "; ".join(text.rstrip(".") for text in (check.erratum, check.reason, check.cost) if text)
            cells = (o.figure.name, f"{check.claim} ({check.place})", check.status, check.printed)
            cells = (*cells, f"{check.measured or check.found}", why)
            lines.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "/")


def main(arguments: list[str]) -> int:
    from hybridp_lab.figure.catalogue import RESULTS

    folder = Path(arguments[0]) if arguments else RESULTS
    if len(arguments) > 1 or not folder.is_dir():
        print("papers_table.py: `folder` must be a folder that `hybridp papers run` wrote.", file=sys.stderr)
        return 2
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{START}\n\n{table(folder)}\n\n{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
