"""TRUSTED ROWS -> a summary, charged to the ledger. The only room that reads raw rows."""

from hybridp.curator.sources import open_rows

__all__ = ["open_rows"]
