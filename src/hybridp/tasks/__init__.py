"""TASKS: every question, once. A task sees public facts and released numbers only: no rows, no noise, no ledger."""
