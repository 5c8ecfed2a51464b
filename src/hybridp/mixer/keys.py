"""The mixer's key file: one Ed25519 key, readable by its owner only."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable
from pathlib import Path

from hybridp.errors import InvalidInput
from hybridp.public.envelope import appearing
from hybridp.public.mixing import Signer, from_text, text

__all__ = ["load_or_make"]


def load_or_make(path: Path, empty: Callable[[], bool]) -> Signer:
    """The file's key; a new file where there is none and the store is `empty`: studies that joined name the old key."""
    if not path.exists():
        if not path.parent.is_dir():
            raise InvalidInput(f"`key-file` must lie in an existing folder. Got {path}.")
        if not empty():
            rule = "must be there, since studies that this mixer joined name its key"
            restore = "mount its disk, put its backup back, or give another --database for a new mixer"
            raise InvalidInput(f"`key-file` {rule}: {restore}. Got no {path}.")
        # Where another process was quicker, its file counts.
        with contextlib.suppress(FileExistsError), appearing(path, new=True, mode=0o600) as draft:
            draft.write_text(text(secrets.token_bytes(32)))
    if path.stat().st_mode & 0o077:
        raise InvalidInput(f"`key-file` must be readable by its owner only (chmod 600). Got {path}.")
    return Signer(from_text(path.read_text().strip(), 32, "key-file"))
