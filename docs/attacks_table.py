"""The table of attacks in docs/threat-model.md and its picture, from `hybridp papers attacks`.

    python docs/attacks_table.py [TRIALS]

The numbers in the page are those of one run, and none is typed by hand.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import matplotlib as mpl
from PIL import Image

mpl.use("Agg")

HERE = Path(__file__).resolve().parent
PAGE = HERE / "threat-model.md"
START, END = "<!-- table: written by docs/attacks_table.py -->", "<!-- end of table -->"


def main() -> None:
    from hybridp_lab.attacks import ATTACKS, draw, listed, run_attacks

    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    found = run_attacks(trials)
    drawn = io.BytesIO()
    draw(found).savefig(drawn, dpi=80)
    Image.open(drawn).convert("RGB").quantize(64).save(HERE / "images" / "attacks.png", optimize=True)
    lines = [f"Over {trials} collections:"]
    for kind in ATTACKS:
        heads, rows = listed(found, kind)
        lines += ["", f"| {' | '.join(heads)} |", "|---|---|" + "---:|" * (len(heads) - 2)]
        lines += [f"| {' | '.join(row)} |" for row in rows]
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(START)
    PAGE.write_text(f"{before}{START}\n" + "\n".join(lines) + f"\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
