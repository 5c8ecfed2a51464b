"""The mixer's key file: one Ed25519 key, readable by its owner only."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from hybridp.errors import InvalidInput
from hybridp.public.mixing import Signer, from_text, text

__all__ = ["load_or_make"]


def load_or_make(path: Path) -> Signer:
    """The file's key; a new file where there is none."""
    if not path.exists():
        if not path.parent.is_dir():
            raise InvalidInput(f"`key-file` must lie in an existing folder. Got {path}.")
        with contextlib.suppress(FileExistsError):  # another process was quicker: its file counts
            draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                with os.fdopen(handle, "w") as file:
                    file.write(text(secrets.token_bytes(32)))
                    file.flush()
                    os.fsync(file.fileno())
                os.link(draft, path)
            finally:
                draft.unlink(missing_ok=True)
    if path.stat().st_mode & 0o077:
        raise InvalidInput(f"`key-file` must be readable by its owner only (chmod 600). Got {path}.")
    return Signer(from_text(path.read_text().strip(), 32, "key-file"))
