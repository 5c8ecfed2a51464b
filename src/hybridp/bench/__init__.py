"""The analyst's bench: planning and simulation. Its inputs are public or declared non-private."""
