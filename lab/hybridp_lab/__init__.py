"""The laboratory of hybridp: the papers' figures and claims, their problems and training, and rival mechanisms.

Nothing in `hybridp` imports this package. Its command (`hybridp papers`) and its problems (for `hybridp pareto run`)
are found by entry points once it is installed.
"""

__version__ = "0.2.0"
