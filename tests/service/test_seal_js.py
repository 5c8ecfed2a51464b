"""The page's sealing against the library's: what JavaScript seals, Python opens, and nobody else does."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

import hybridp.service
from hybridp.errors import InvalidInput
from hybridp.public.mixing import OVERHEAD, from_text, new_key, public, text, unseal

NODE = shutil.which("node")
SCRIPT = Path(hybridp.service.__file__).parent / "static" / "seal.js"

pytestmark = pytest.mark.skipif(NODE is None, reason="not installed: Node.js (apt-get install nodejs)")


def test_what_the_page_seals_the_collector_opens(tmp_path: Path) -> None:
    key, bodies = new_key(), ["", "x", '{"report": 1}', "é" * 300]
    program = f"""
        import {{ seal, text, fromText, canSeal }} from {json.dumps(SCRIPT.as_uri())};
        if (!(await canSeal())) throw new Error("no X25519 here");
        const to = fromText({json.dumps(text(public(key)))});
        const found = [];
        for (const body of {json.dumps(bodies)})
          found.push(text(await seal(new TextEncoder().encode(body), to, "study-ü")));
        console.log(JSON.stringify(found));
    """
    (tmp_path / "seal.mjs").write_text(program)
    assert NODE is not None
    done = subprocess.run([NODE, "--no-warnings", tmp_path / "seal.mjs"], capture_output=True, text=True, check=True)
    for body, given in zip(bodies, json.loads(done.stdout), strict=True):
        sealed = from_text(given, len(body.encode()) + OVERHEAD, "sealed")
        assert unseal(sealed, key, "study-ü").decode() == body
        for wrong_key, study in ((new_key(), "study-ü"), (key, "another")):
            with pytest.raises(InvalidInput):
                unseal(sealed, wrong_key, study)
