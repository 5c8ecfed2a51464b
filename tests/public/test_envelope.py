"""Files that say what they are: any change is noticed, and a file is there whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridp.errors import InvalidInput
from hybridp.public.envelope import appearing, digest, load, opened, save, sealed, write

NUMBER = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
LEAF = st.none() | st.booleans() | NUMBER | st.text(max_size=8)
CONTENT = st.dictionaries(st.sampled_from("abcdef"), st.recursive(LEAF, lambda x: st.lists(x, max_size=3)), min_size=1)


@settings(deadline=None, max_examples=20)
@given(CONTENT, st.booleans())
def test_what_is_sealed_comes_back_through_a_file(content: dict[str, Any], simulated: bool) -> None:
    document = json.loads(json.dumps(sealed("a list", content, simulated=simulated)))
    told = opened(document, "a list")
    assert {name: told[name] for name in content} == content
    assert told["simulated"] is simulated


@settings(deadline=None, max_examples=60)
@given(CONTENT, st.data())
def test_any_changed_field_is_noticed(content: dict[str, Any], data: st.DataObject) -> None:
    document = sealed("a list", content, simulated=False)
    name = data.draw(st.sampled_from(sorted(document)))
    other = data.draw(LEAF.filter(lambda x: json.dumps(x) != json.dumps(document[name])))
    for changed in (document | {name: other}, document | {"more": 1}, {k: document[k] for k in document if k != name}):
        with pytest.raises(InvalidInput):
            opened(changed, "a list")
    with pytest.raises(InvalidInput, match="another list"):
        opened(document, "another list")


def test_the_digest_is_what_its_definition_says() -> None:
    document = sealed("a list", {"b": 1, "a": [2.5]}, simulated=True)
    stated = '{"a": [2.5], "b": 1, "hybridp": "a list", "simulated": true, "version": 1}'
    assert document["digest"] == f"sha256:{hashlib.sha256(stated.encode()).hexdigest()[:32]}" == digest(document)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"hybridp": "a list"}', "\ud800", "[" * 100_000])
def test_another_file_is_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_bytes(text.encode(errors="surrogatepass"))
    for name in ("file", "none"):
        with pytest.raises(InvalidInput, match="`") as refused:
            load(tmp_path / name, "a list")
        assert refused.value.__cause__ is None


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "list.json"
    save(file, sealed("a list", {"things": [1]}, simulated=False))
    before = file.read_bytes()
    with pytest.raises(TypeError), appearing(file) as draft:
        draft.write_text("half") + "an error"  # type: ignore[operator]
    with pytest.raises(ValueError, match="JSON"):
        save(file, {"things": float("nan")})
    assert (file.read_bytes(), os.listdir(tmp_path)) == (before, ["list.json"])
    with pytest.raises(FileExistsError):
        write(file, b"new", new=True)
    assert (file.read_bytes(), os.listdir(tmp_path)) == (before, ["list.json"])
    write(file, b"new")
    assert (file.read_bytes(), os.listdir(tmp_path)) == (b"new", ["list.json"])


def test_a_private_file_is_private_before_it_holds_anything(tmp_path: Path) -> None:
    with appearing(tmp_path / "key", new=True, mode=0o600) as draft:
        assert (stat.S_IMODE(draft.stat().st_mode), draft.stat().st_size) == (0o600, 0)
        draft.write_text("secret")
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
