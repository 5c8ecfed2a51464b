"""One HTML file about many figures: what each claims, what was found, and its picture inside.

The page needs nothing else: no script, no other file, no network. It reads on a phone, in print, without colours and
with a screen reader: states are words, tables have headers, pictures have texts. NOT PRIVATE: true errors.
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
from hybridp_lab.figure.declared import Check

__all__ = ["report_html", "write_report"]

_SCOPES = {"quick": "quick grid", "full": "published grid"}
_CLASSES = {
    "reproduced": "good",
    "reproduced after the erratum": "mended",
    "not reproduced": "bad",
    "data not public": "absent",
    "error": "error",
    "not computed": "absent",
}
_SUMMARY = ("Figure", "What it claims", "Status", "Claims that hold", "What decided", "CPU seconds")
_CLAIMS = ("Claim", "Where", "Measured", "Found", "Holds", "Erratum", "Why not")
_STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --paper: #fff; --line: #d5d9de; --soft: #f4f6f8; --link: #0b57a4;
  --good: #136c2e; --mended: #7a5200; --bad: #a4161a; --absent: #4b5563; --error: #7a0271; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --paper: #14171a; --line: #3a4047; --soft: #1e2328;
  --link: #86b7f0; --good: #6fd08c; --mended: #e5b567; --bad: #ff8b87; --absent: #b3bac4; --error: #e79be1; } }
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
.absent { color: var(--absent); } .error { color: var(--error); }
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
    """Write the page; `pictures` are PNGs by the name of the figure, and a figure may have none."""
    Path(path).write_text(report_html(outcomes, pictures=pictures, now=datetime.now(UTC)), encoding="utf-8")


def report_html(outcomes: Sequence[Outcome], *, pictures: Mapping[str, bytes], now: datetime) -> str:
    """The page as text."""
    scopes = [f"{sum(o.scope == s for o in outcomes)} in the {w}" for s, w in _SCOPES.items()]
    states = {state: sum(o.status == state for o in outcomes) for state in _CLASSES}
    counted = ", ".join(f"{many} {_status(state)}" for state, many in states.items() if many)
    seconds = _duration(sum(o.seconds for o in outcomes))
    summary = "\n".join(map(_line, outcomes))
    sections = "\n".join(_section(o, pictures.get(o.figure.name)) for o in outcomes)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Figures of the papers, reproduced with hybridp {escape(__version__)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>Figures of the papers</h1>
<p>hybridp {escape(__version__)}, {now:%Y-%m-%d %H:%M} UTC. {len(outcomes)} figures: {counted}. {"; ".join(scopes)}.
CPU time of all their points: {seconds}.</p>
<p>The quick grid has fewer and smaller settings and fewer trials than the paper; the published grid has the paper's.
<em>Reproduced after the erratum</em>: a claim holds only in a corrected form, and the figure shows both.
<em>Data not public</em>: a named stand-in was used, and the claims are judged on it. Intervals are 95 %.</p>
<p class="warning"><strong>Not private.</strong> Errors against the true answers are shown. The data are public or made
up; nothing here is a release.</p>
<div class="wide" role="region" aria-label="Summary" tabindex="0">
<table role="table">
<caption>Summary</caption>
{_head(_SUMMARY)}
<tbody>
{summary}
</tbody>
</table>
</div>
{sections}
</main>
</body>
</html>
"""


def _status(state: str) -> str:
    return f'<span class="status {_CLASSES[state]}">{escape(state)}</span>'


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def _line(o: Outcome) -> str:
    checks = o.verdict.checks
    held = f"{sum(c.holds for c in checks)} of {len(checks)}" if checks else ""
    link = f'<a href="#{escape(o.figure.name)}">{escape(o.figure.name)}</a><br>{escape(o.figure.source)}'
    return (
        f'<tr role="row"><th role="rowheader" scope="row">{link}</th>'
        + _cell(_SUMMARY[1], escape(o.figure.claim))
        + _cell(_SUMMARY[2], _status(o.status))
        + _cell(_SUMMARY[3], held)
        + _cell(_SUMMARY[4], _decided(o))
        + f'<td role="cell" class="number" data-label="{_SUMMARY[5]}">{o.seconds:.1f}</td></tr>'
    )


def _decided(o: Outcome) -> str:
    check = o.verdict.decisive
    if check is None or o.error:
        return escape(o.error or f"{o.missing} of {len(o.figure.points(o.scope))} points are missing")
    told = f"<strong>{escape(check.measured or check.found)}</strong>"
    if check.holds:
        return f"{escape(check.claim)} {told}"
    more = f" ({escape(check.found)})" if check.measured else ""
    return f"Does not hold: {escape(check.claim)} {told}{more}"


def _section(o: Outcome, image: bytes | None) -> str:
    name = escape(o.figure.name)
    parts = [
        f'<section id="{name}" aria-labelledby="{name}-title">',
        f'<h2 id="{name}-title">{escape(o.figure.source)} <small>({name})</small></h2>',
        f"<p>{escape(o.figure.claim)}</p>",
        f"<p>{_status(o.status)}{_told_beside(o)}</p>",
    ]
    if o.verdict.checks:
        rows = "\n".join(map(_row, o.verdict.checks))
        parts.append(
            f'<div class="wide" role="region" aria-label="Claims of {name}" tabindex="0"><table role="table">'
            f"<caption>Claims, in our words</caption>{_head(_CLAIMS)}\n"
            f"<tbody>{rows}</tbody></table></div>"
        )
    if image is not None:
        text = f"Picture of {o.figure.source}. Claim: {o.figure.claim} Status: {o.status}."
        data = b64encode(image).decode("ascii")
        parts.append(f'<p><img alt="{escape(text)}" src="data:image/png;base64,{data}"></p>')
    parts += [_facts(o), "</section>"]
    return "\n".join(parts)


def _told_beside(o: Outcome) -> str:
    """After an error, what went wrong; with a stand-in, what it shows."""
    if o.error:
        return f": {escape(o.error)}"
    if o.missing:
        return f": {o.missing} of {len(o.figure.points(o.scope))} points are missing"
    return f"; on the stand-in: {_status(o.verdict.status)}" if o.figure.not_public else ""


def _row(check: Check) -> str:
    holds = '<span class="status good">yes</span>' if check.holds else '<span class="status bad">no</span>'
    texts = map(escape, (check.where, check.measured, check.found))
    cells = (*texts, holds, escape(check.erratum), escape(check.why))
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
    grids = "<br>".join(escape(str(grid)) for grid in o.figure.grid[o.scope])
    facts = [
        ("Data", "<br>".join(map(escape, o.inputs)) or "none"),
        *([("Not public", escape(o.figure.not_public))] if o.figure.not_public else []),
        ("Grid", f"{_SCOPES[o.scope]}, {len(o.figure.points(o.scope))} points<br>{grids}"),
        ("CPU time", f"{_duration(o.seconds)} for all points, shared ones included"),
        ("Computed", f"{escape(o.computed or 'not computed')}, hybridp {escape(__version__)}"),
    ]
    return "<dl>" + "".join(f"<dt>{name}</dt><dd>{told}</dd>" for name, told in facts) + "</dl>"
