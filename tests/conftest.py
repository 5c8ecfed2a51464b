"""What every test shares."""

from __future__ import annotations

import os

# The tests run in as many processes as there are cores; threads of their own would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
