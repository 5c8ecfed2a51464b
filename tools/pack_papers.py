"""Pack results of `hybridp papers run` as the laboratory's committed ones.

    python tools/pack_papers.py out/papers [another/folder ...]

Points that are committed already stay unless a folder has them too; later folders win. Each file of results becomes one
`.jsonl.gz` in lab/hybridp_lab/results, its lines in order of their keys, so that the same points give the same bytes.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

RESULTS = Path(__file__).resolve().parent.parent / "lab" / "hybridp_lab" / "results"


def lines_of(path: Path) -> dict[str, str]:
    """The whole lines of a file of results by their keys."""
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    result = {}
    for line in raw.decode("utf-8", errors="replace").splitlines():
        try:
            known = json.loads(line)
            result[str(known["key"])] = json.dumps(known, sort_keys=True, separators=(",", ":"))
        except (ValueError, KeyError, TypeError):
            continue
    return result


def pack(folders: list[Path], results: Path = RESULTS) -> dict[str, int]:
    """How many points each packed file has now."""
    results.mkdir(exist_ok=True)
    packed = {}
    for name in sorted({path.name for folder in folders for path in folder.glob("*.jsonl")}):
        target = results / f"{name}.gz"
        known = lines_of(target) if target.exists() else {}
        for folder in folders:
            if (folder / name).exists():
                known |= lines_of(folder / name)
        text = "".join(f"{known[key]}\n" for key in sorted(known))
        target.write_bytes(gzip.compress(text.encode("utf-8"), 9, mtime=0))
        packed[name] = len(known)
    return packed


def main(arguments: list[str]) -> int:
    folders = [Path(argument) for argument in arguments]
    if not folders or not all(folder.is_dir() for folder in folders):
        print("pack_papers.py: `folder` must be folders that `hybridp papers run` wrote.", file=sys.stderr)
        return 2
    for name, many in pack(folders).items():
        print(f"{name}.gz: {many} points")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
