"""Do the snippets of the README pass a strict type check, as a user's own code would?"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "readme.py")
        file.write_text("\n".join(blocks), encoding="utf-8")
        return subprocess.run([sys.executable, "-m", "mypy", "--strict", str(file)], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
