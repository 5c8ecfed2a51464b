"""The toy problems must be importable by name, here and in the processes that these tests start."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
