"""Runs the tour notebook and keeps what its cells print and draw: `python docs/tour.py` (`--check` only compares).

No Jupyter is needed: cells run in one namespace, in order, and everything random in them is seeded, so that the
text they print can be compared. Needs the extras `plot`, `synth` and `pareto`.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

__all__ = ["main", "printed", "run"]

TOUR = Path(__file__).resolve().with_name("tour.ipynb")


def main(arguments: list[str]) -> int:
    saved = json.loads(TOUR.read_text(encoding="utf-8"))
    fresh = run(saved)
    if "--check" in arguments:
        return int(printed(saved) != printed(fresh))
    TOUR.write_text(json.dumps(fresh, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with fresh outputs."""
    plt.close("all")  # a picture that somebody else left open is none of the tour's
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = [_ran(cell, names, i) if cell["cell_type"] == "code" else cell for i, cell in enumerate(notebook["cells"])]
    return {**notebook, "cells": cells}


def printed(notebook: dict[str, Any]) -> list[tuple[str, int]]:
    """What each code cell printed, and how many pictures it drew."""
    found = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            text = "".join("".join(o["text"]) for o in cell["outputs"] if o["output_type"] == "stream")
            found.append((text, sum(o["output_type"] == "display_data" for o in cell["outputs"])))
    return found


def _ran(cell: dict[str, Any], names: dict[str, Any], number: int) -> dict[str, Any]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive")  # what plt.show() says where it cannot
        exec(compile("".join(cell["source"]), f"tour.ipynb, cell {number}", "exec", dont_inherit=True), names)
    outputs: list[dict[str, Any]] = []
    if said.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": said.getvalue().splitlines(keepends=True)})
    for figure in map(plt.figure, plt.get_fignums()):
        data = io.BytesIO()
        figure.savefig(data, dpi=80, format="png", metadata={"Software": None})
        encoded = base64.b64encode(data.getvalue()).decode()
        outputs.append({"data": {"image/png": encoded}, "metadata": {}, "output_type": "display_data"})
    plt.close("all")
    return {**cell, "execution_count": None, "outputs": outputs}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
