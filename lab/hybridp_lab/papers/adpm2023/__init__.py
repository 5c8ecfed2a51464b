"""Personal epsilons: Heterogeneous DP mean estimation (ADPM, 2023)."""
