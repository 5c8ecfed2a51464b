"""WHAT EVERYONE MAY KNOW: budgets, mechanisms, bounds, messages and closed forms. Reads no data."""
