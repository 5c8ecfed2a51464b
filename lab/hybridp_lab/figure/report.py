"""One HTML file about many figures: what each claims, what was found, and its picture inside.

The first screen has every claim as one letter, by paper and entry; below, each entry folds out into its claims with
what is printed beside what was measured. The page needs nothing else: no script, no other file, no network. It reads
on a phone, in print, without colours and with a screen reader: states are words or letters with a legend, tables have
headers, pictures have texts. NOT PRIVATE: true errors.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from hybridp import __version__
from hybridp_lab.figure.catalogue import Outcome
from hybridp_lab.figure.declared import ORDER, Check

__all__ = ["report_html", "write_report"]

_SCOPES = {"quick": "quick grid", "full": "published grid"}
_CLASSES = {
    "reproduced": "good",
    "reproduced after the erratum": "mended",
    "true by construction": "absent",
    "refuted": "bad",
    "undecided": "open",
    "not judgeable": "absent",
    "depends on the stand-in": "open",
    "error": "error",
    "not computed": "absent",
}
_LETTERS = {
    "reproduced": "R",
    "reproduced after the erratum": "E",
    "true by construction": "C",
    "refuted": "X",
    "undecided": "?",
    "not judgeable": "-",
}
_CLAIMS = ("Claim", "Where", "Printed", "Measured", "Status", "What decided", "Erratum or reason")
_STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --paper: #fff; --line: #d5d9de; --soft: #f4f6f8; --link: #0b57a4;
  --good: #136c2e; --mended: #7a5200; --bad: #a4161a; --absent: #4b5563; --error: #7a0271; --open: #0b57a4; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --paper: #14171a; --line: #3a4047; --soft: #1e2328;
  --link: #86b7f0; --good: #6fd08c; --mended: #e5b567; --bad: #ff8b87; --absent: #b3bac4; --error: #e79be1;
  --open: #86b7f0; } }
* { box-sizing: border-box; }
body { font: 1rem/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
  max-width: 72rem; padding: 1rem; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; border-top: 1px solid var(--line);
  padding-top: 1rem; }
a { color: var(--link); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { border: 1px solid var(--line); padding: .35rem .5rem; text-align: left; vertical-align: top; }
thead th { background: var(--soft); }
td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.status { font-weight: 700; white-space: nowrap; }
.good { color: var(--good); } .mended { color: var(--mended); } .bad { color: var(--bad); }
.open { color: var(--open); } .absent { color: var(--absent); } .error { color: var(--error); }
.glance { list-style: none; padding: 0; display: grid; gap: .15rem .8rem;
  grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); font-size: .9rem; }
.glance li { display: flex; gap: .4rem; align-items: baseline; }
.marks { font-family: ui-monospace, monospace; font-weight: 700; letter-spacing: .05em; overflow-wrap: anywhere; }
summary { cursor: pointer; font-weight: 600; }
.legend { font-size: .9rem; }
img { max-width: 100%; height: auto; background: #fff; border: 1px solid var(--line); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; font-size: .9rem; }
dt { font-weight: 600; } dd { margin: 0; min-width: 0; }
.warning { border-left: .3rem solid var(--bad); background: var(--soft); padding: .5rem 1rem; }
@media (max-width: 40rem) {
  dl { grid-template-columns: 1fr; } dd { margin-bottom: .4rem; } .status { white-space: normal; }
  thead { position: absolute; left: -999rem; }
  table, tbody, tr, th, td, caption { display: block; }
  tr { border: 1px solid var(--line); margin-bottom: .8rem; } th, td { border: 0; }
  td.number { text-align: left; } td:empty { display: none; }
  td::before { content: attr(data-label) ": "; font-weight: 600; } }
@media print { body { max-width: none; font-size: 9pt; } section { break-inside: avoid-page; }
  .wide { overflow: visible; } }
"""


def write_report(outcomes: Sequence[Outcome], path: str | os.PathLike[str], *, pictures: Mapping[str, bytes]) -> None:
    """Write the page; `pictures` are SVGs by the name of the figure, and a figure may have none."""
    Path(path).write_text(report_html(outcomes, pictures=pictures, now=datetime.now(UTC)), encoding="utf-8")


def _papers(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """The outcomes by paper: what stands before the comma of their source."""
    result: dict[str, list[Outcome]] = {}
    for o in outcomes:
        result.setdefault(o.figure.source.partition(",")[0], []).append(o)
    return result


def report_html(outcomes: Sequence[Outcome], *, pictures: Mapping[str, bytes], now: datetime) -> str:
    """The page as text."""
    claims = [check for o in outcomes for check in o.verdict.claims]
    counted = ", ".join(
        f"{many} {_status(state)}" for state in reversed(ORDER) if (many := sum(c.status == state for c in claims))
    )
    broken = [o for o in outcomes if o.error or o.missing]
    lost = f" {len(broken)} entries have no verdict ({', '.join(o.status for o in broken[:1])})." if broken else ""
    legend = ", ".join(f'<span class="status {_CLASSES[s]}">{_LETTERS[s]}</span> {s}' for s in reversed(ORDER))
    glance = "\n".join(_glance(paper, own) for paper, own in _papers(outcomes).items())
    sections = "\n".join(
        f'<h2 id="paper-{i}">{escape(paper)}</h2>\n' + "\n".join(_section(o, pictures.get(o.figure.name)) for o in own)
        for i, (paper, own) in enumerate(_papers(outcomes).items())
    )
    scopes = [f"{sum(o.scope == s for o in outcomes)} in the {w}" for s, w in _SCOPES.items()]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Claims of the papers, judged with hybridp {escape(__version__)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>Claims of the papers</h1>
<p>{len(claims)} claims of {len(outcomes)} entries: {counted or "none"}.{lost}</p>
<p class="legend">One letter a claim: {legend}.</p>
{glance}
<p class="warning"><strong>Not private.</strong> Errors against true answers are shown, of public or made-up data.</p>
<p>Written {now:%Y-%m-%d %H:%M} UTC; {"; ".join(scopes)}; {_duration(sum(o.seconds for o in outcomes))} of CPU time for
all points, those that several entries share counted in each.</p>
{sections}
</main>
</body>
</html>
"""


def _status(state: str) -> str:
    return f'<span class="status {_CLASSES[state]}">{escape(state)}</span>'


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def _glance(paper: str, own: Sequence[Outcome]) -> str:
    lines = []
    for o in own:
        marks = "".join(
            f'<span class="{_CLASSES[c.status]}" title="{escape(c.status)}">{_LETTERS[c.status]}</span>'
            for c in o.verdict.claims
        )
        told = marks or _status(o.status)
        words = ", ".join(f"{many} {status}" for status, many in o.verdict.counts.items()) or o.status
        lines.append(
            f'<li><a href="#{escape(o.figure.name)}">{escape(o.figure.name)}</a> '
            f'<span class="marks" role="img" aria-label="{escape(words)}">{told}</span></li>'
        )
    return f'<h3>{escape(paper)}</h3>\n<ul class="glance">\n' + "\n".join(lines) + "\n</ul>"


def _section(o: Outcome, image: bytes | None) -> str:
    name = escape(o.figure.name)
    counts = ", ".join(f"{many} {_status(status)}" for status, many in o.verdict.counts.items())
    parts = [
        f'<section id="{name}" aria-labelledby="{name}-title">',
        f'<h3 id="{name}-title">{escape(o.figure.source)} <small>({name})</small></h3>',
        f"<p>{escape(o.figure.claim)}</p>",
        f"<p>{counts or _status(o.status)}{_told_beside(o)}</p>",
    ]
    if image is not None:
        text = f"Picture of {o.figure.source}. Claim: {o.figure.claim} Status: {o.status}."
        data = b64encode(image).decode("ascii")
        parts.append(f'<p><img alt="{escape(text)}" src="data:image/svg+xml;base64,{data}"></p>')
    folded = [_facts(o)]
    if o.verdict.checks:
        rows = "\n".join(map(_row, o.verdict.checks))
        folded.insert(
            0,
            f'<div class="wide" role="region" aria-label="Claims of {name}" tabindex="0"><table role="table">'
            f"<caption>Claims, in our words</caption>{_head(_CLAIMS)}\n"
            f"<tbody>{rows}</tbody></table></div>",
        )
    parts += ["<details><summary>Claims, numbers and grid</summary>", *folded, "</details>", "</section>"]
    return "\n".join(parts)


def _told_beside(o: Outcome) -> str:
    """After an error, what went wrong; and what our own mechanisms do not confirm."""
    if o.error:
        return f": {escape(o.error)}"
    if o.missing:
        return f": {o.missing} of {o.points} points are missing"
    wrong = "; ".join(escape(check.claim) for check in o.verdict.unconfirmed)
    return f". Not confirmed: {wrong}" if wrong else ""


def _row(check: Check) -> str:
    measured = " ".join(
        filter(
            None,
            [
                check.measured,
                f"[{check.rule}]" if check.rule else "",
                f"{check.trials:,} trials" if check.trials else "",
                check.cost,
            ],
        )
    )
    status = _status(check.status) + (f"; on the stand-in: {_status(check.stand_in)}" if check.stand_in else "")
    cells = (
        escape(check.place),
        escape(check.printed),
        escape(measured),
        status,
        escape(check.found),
        escape("; ".join(filter(None, [check.erratum, check.reason]))),
    )
    return (
        f'<tr role="row"><th role="rowheader" scope="row">{escape(check.claim)}</th>'
        + "".join(_cell(name, text) for name, text in zip(_CLAIMS[1:], cells, strict=True))
        + "</tr>"
    )


def _head(names: Sequence[str]) -> str:
    return (
        "<thead><tr>" + "".join(f'<th role="columnheader" scope="col">{name}</th>' for name in names) + "</tr></thead>"
    )


def _cell(name: str, text: str) -> str:
    """A cell that knows its column, for narrow screens, where rows become blocks."""
    return f'<td role="cell" data-label="{name}">{text}</td>'


def _facts(o: Outcome) -> str:
    grids = "<br>".join(escape(str(grid.more(o.times))) for grid in o.figure.grid[o.scope])
    facts = [
        ("Data", "<br>".join(map(escape, o.inputs)) or "none"),
        *([("Not public", escape(o.figure.not_public))] if o.figure.not_public else []),
        ("Grid", f"{_SCOPES[o.scope]}, {o.points} points<br>{grids}"),
        ("CPU time", f"{_duration(o.seconds)} for all points, shared ones included"),
        ("Computed", f"{escape(o.computed or 'not computed')}, hybridp {escape(o.version)}"),
    ]
    return "<dl>" + "".join(f"<dt>{name}</dt><dd>{told}</dd>" for name, told in facts) + "</dl>"
