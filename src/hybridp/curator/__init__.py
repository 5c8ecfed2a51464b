"""TRUSTED ROWS -> a summary, charged to the ledger. The only room that reads raw rows."""
