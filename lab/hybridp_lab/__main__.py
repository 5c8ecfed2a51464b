"""`python -m hybridp_lab`: the same as `hybridp papers`, where only the sources are at hand."""

from __future__ import annotations

from hybridp_lab.cli import papers

if __name__ == "__main__":
    papers(prog_name="python -m hybridp_lab")
