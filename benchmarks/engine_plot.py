"""CPU seconds by rows, a panel for each engine and a colour for each aggregation; SQL by hand is dashed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["draw"]

TITLES = {"duckdb": "DuckDB", "postgresql": "PostgreSQL", "spark": "Spark, local"}
STYLES: dict[str, tuple[Any, str]] = {"ours": ("-", "o"), "by hand": ("--", "x")}


def draw(figures: list[dict[str, Any]], path: Path) -> None:
    """Draw the figures into a PNG file."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    engines = [engine for engine in TITLES if any(f["engine"] == engine for f in figures)]
    names = list(dict.fromkeys(f["aggregation"] for f in figures))
    canvas, axes = plt.subplots(
        1,
        len(engines),
        figsize=(9, 4),
        sharey=True,
        squeeze=False,
        width_ratios=[1.4 if e == "duckdb" else 1 for e in engines],
    )
    for ax, engine in zip(axes[0], engines, strict=True):
        for place, name in enumerate(names):
            for way, (line, marker) in STYLES.items():
                mine = [f for f in figures if (f["engine"], f["aggregation"], f["way"]) == (engine, name, way)]
                mine.sort(key=lambda f: int(f["rows"]))
                x, y = [f["rows"] for f in mine], [max(f["cpu"], 0.01) for f in mine]
                ax.loglog(x, y, line, marker=marker, markersize=5, color=f"C{place}", linewidth=1.3)
        ax.set_title(TITLES[engine], fontsize=10)
        ax.set_xlabel("rows")
        ax.grid(alpha=0.3)
    axes[0][0].set_ylabel("CPU seconds")
    keys = [Line2D([], [], color=f"C{place}", label=name) for place, name in enumerate(names)]
    keys += [Line2D([], [], color="grey", linestyle=s, marker=m, label=w) for w, (s, m) in STYLES.items()]
    canvas.legend(handles=keys, loc="lower center", ncols=3, fontsize=8, frameon=False)
    canvas.tight_layout(rect=(0, 0.11, 1, 1))
    canvas.savefig(path, dpi=100)
    plt.close(canvas)
