"""ONE PERSON'S VALUE -> a report. Runs on that person's machine."""
