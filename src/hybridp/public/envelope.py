"""The one form of the files that travel between people: JSON that says what it is, and a digest of all that it says.

An invitation, a tally or a saved model is a JSON object whose first fields are the same everywhere: what it is
(`hybridp`), the `version` of its form, a `digest` of everything else, and whether it comes from a trial (`simulated`).
The digest notices damage and edits by hand. It is no signature: whoever reads a file still checks what it says.

>>> document = sealed("a shopping list", {"things": ["bread"]}, simulated=False)
>>> opened(document, "a shopping list")["things"]
['bread']
>>> opened(document | {"things": []}, "a shopping list")
Traceback (most recent call last):
    ...
hybridp.errors.InvalidInput: `digest` must be that of the document, unchanged. Got another.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from hybridp.errors import InvalidInput, must

__all__ = ["VERSION", "appearing", "digest", "load", "opened", "read_json", "save", "sealed", "write", "write_new"]

VERSION = 1


def digest(document: Mapping[str, Any]) -> str:
    """A name for everything that a document says: the same for the same fields in any order."""
    stated = json.dumps({name: value for name, value in document.items() if name != "digest"}, sort_keys=True)
    return f"sha256:{hashlib.sha256(stated.encode()).hexdigest()[:32]}"


def sealed(kind: str, content: Mapping[str, Any], *, simulated: bool) -> dict[str, Any]:
    """The document of this content; `simulated` says that a trial made it, which protects nobody."""
    document = {"hybridp": kind, "version": VERSION, "digest": "", "simulated": simulated, **content}
    return document | {"digest": digest(document)}


def opened(document: Any, kind: str) -> dict[str, Any]:
    """What a document says, checked to be of this kind, of this version, and as it was written."""
    ok = isinstance(document, dict) and document.get("hybridp") == kind
    must(ok, "file", f"must hold {kind}", "another document")
    must(document.get("version") == VERSION, "version", f"must be {VERSION}", document.get("version"))
    must(document.get("digest") == digest(document), "digest", "must be that of the document, unchanged", "another")
    must(isinstance(document.get("simulated"), bool), "simulated", "must be true or false", "neither")
    return {name: value for name, value in document.items() if name not in ("hybridp", "version")}


def read_json(file: str | PathLike[str], name: str, rule: str, got: str = "") -> Any:
    """The content of a JSON file; where it cannot be read: "`name` rule. Got got.", or why not."""
    try:
        return json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        why = f"none that can be read ({type(error).__name__})"
    raise InvalidInput(f"`{name}` {rule}. Got {got or why}.")


def load(file: str | PathLike[str], kind: str) -> dict[str, Any]:
    """What a file says; `InvalidInput` where it is no such document."""
    return opened(read_json(file, "file", f"must hold {kind}"), kind)


def save(file: str | PathLike[str], document: Mapping[str, Any], *, new: bool = False) -> None:
    """Write a document, which appears as a whole or not at all; `new` never replaces a file."""
    write(file, json.dumps(document, indent=1, allow_nan=False).encode(), new=new)


def write(file: str | PathLike[str], content: bytes, *, new: bool = False) -> None:
    """The same for any content."""
    with appearing(file, new=new) as draft:
        draft.write_bytes(content)


@contextmanager
def appearing(file: str | PathLike[str], *, new: bool = False, mode: int = 0o666) -> Iterator[Path]:
    """An empty draft beside `file` to write to: it takes its place, synced, when the body ends well, or goes again.

    With `new` a file that is there by then is never replaced: `FileExistsError`.
    """
    target = Path(file)
    draft = target.with_name(f".{os.urandom(6).hex()}.{target.name}")
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
    try:
        yield draft
        with draft.open("rb+") as complete:
            os.fsync(complete.fileno())
        if new:
            os.link(draft, target)
        else:
            os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


def write_new(path: str | PathLike[str], text: str) -> None:
    """A new file that appears when it is complete."""
    try:
        write(path, text.encode(), new=True)
    except FileExistsError:
        raise InvalidInput(f"`path` must name a new file. Got {path}, which exists.") from None
    except OSError as error:
        raise InvalidInput(f"`path` must be a place that can be written to. Got {path} ({error.strerror}).") from None
