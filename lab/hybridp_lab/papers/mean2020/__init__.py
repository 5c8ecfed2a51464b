"""Hybrid means and K-means (Avent, Dubey and Korolova 2020; the workshop paper of 2018)."""
