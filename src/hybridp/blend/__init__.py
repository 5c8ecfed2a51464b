"""REPORTS + SUMMARIES -> an estimate. Post-processing: no raw rows, no noise, no budget."""
