"""Synthetic data: RAP (Avent 2023, chapter 4)."""
