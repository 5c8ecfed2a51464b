"""Sphinx settings of the documentation site. `docs/build.py` prepares the pages and calls Sphinx.

The site needs no network, neither to be built nor to be read: no font, script or style comes from elsewhere, and
mathematics becomes MathML, which browsers draw by themselves.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math import latex2mathml

import hybridp

project = "hybridp"
author = "the hybridp authors"
copyright = "the hybridp authors, Apache 2.0"
version = release = hybridp.__version__

extensions = ["myst_parser"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
source_suffix = {".md": "markdown"}
master_doc = "index"
exclude_patterns: list[str] = []

html_theme = "furo"
html_title = f"hybridp {release}"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
# Summaries of search results are fetched page by page, which browsers refuse for files.
html_show_search_summary = False
pygments_style = "friendly"
pygments_dark_style = "monokai"


def _mathml(text: str, *, block: bool) -> str:
    tree = latex2mathml.tex2mathml(text, as_block=block)
    return str(tree)


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(_mathml(node.astext(), block=False))
    raise nodes.SkipNode


def _display(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="math">{_mathml(node.astext(), block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> None:
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
