"""The papers' figures, tables and data sets, declared as data."""
