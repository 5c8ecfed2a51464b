"""Mechanisms of others, written from their published descriptions, to compare with."""
