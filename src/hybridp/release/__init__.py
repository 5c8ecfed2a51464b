"""WHAT IS PUBLISHED: estimate, interval, privacy receipt, to_frame, plot(ax)."""
