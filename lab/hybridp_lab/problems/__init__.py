"""Mechanisms with knobs, ready for the Pareto front; `hybridp.pareto.load_problem(name)` builds one.

>>> from hybridp.pareto import load_problem
>>> load_problem("svt").space.names
('C', 'b')
"""
