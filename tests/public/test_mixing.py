"""Sealed reports, tickets and batches: opened by nobody else, for nothing else, and by no other signature."""

from __future__ import annotations

import secrets

import pytest

pytest.importorskip("cryptography")

from hybridp.errors import InvalidInput
from hybridp.public.mixing import (
    OVERHEAD,
    Batch,
    Signer,
    check_ticket,
    from_text,
    pack_batch,
    public,
    read_batch,
    seal,
    text,
    ticket,
    unseal,
)

KEY, OTHER = secrets.token_bytes(32), secrets.token_bytes(32)


def test_one_length_whatever_the_report_and_never_twice_the_same() -> None:
    sealed = [seal(body, public(KEY), "s") for body in (b"yes", b"no ", b"no ")]
    assert {len(one) for one in sealed} == {3 + OVERHEAD}
    assert len(set(sealed)) == 3
    assert [unseal(one, KEY, "s") for one in sealed] == [b"yes", b"no ", b"no "]


def test_only_its_own_key_study_and_bytes_open_it() -> None:
    sealed = seal(b"report", public(KEY), "s")
    for changed in range(0, len(sealed), 5):
        broken = bytes([*sealed[:changed], sealed[changed] ^ 1, *sealed[changed + 1 :]])
        with pytest.raises(InvalidInput, match="sealed for this study"):
            unseal(broken, KEY, "s")
    for key, study in ((OTHER, "s"), (KEY, "t")):
        with pytest.raises(InvalidInput, match="sealed for this study"):
            unseal(sealed, key, study)
    with pytest.raises(InvalidInput):
        unseal(b"", KEY, "s")


def test_tickets_are_of_one_study_and_one_signer() -> None:
    signer, nonce = Signer(KEY), secrets.token_bytes(16)
    given = ticket(signer, "s", nonce)
    assert check_ticket(given, signer.public, "s") == nonce
    assert ticket(signer, "s", nonce) == given
    raw = from_text(given, 80, "ticket")
    forged = [text(bytes([raw[0] ^ 1]) + raw[1:]), text(raw[:-1] + bytes([raw[-1] ^ 1])), given[:-1], given + "A", ""]
    forged.append(ticket(Signer(OTHER), "s", nonce))
    for wrong in forged:
        with pytest.raises(InvalidInput, match="ticket"):
            check_ticket(wrong, signer.public, "s")
    with pytest.raises(InvalidInput, match="signed by this study's collector"):
        check_ticket(given, signer.public, "t")


def test_batches_are_of_one_study_and_one_mixer() -> None:
    mixer = Signer(KEY)
    batch = Batch(secrets.token_bytes(16), (b"a" * 60, b"b" * 60, b"c" * 60))
    packed = pack_batch(batch, "s", mixer)
    assert read_batch(packed, "s", mixer.public) == batch
    shorter, longer = packed[:-60], packed + b"d" * 60
    swapped = packed[:-120] + packed[-60:] + packed[-120:-60]
    for wrong in (shorter, longer, swapped, b"", packed[:64], pack_batch(batch, "s", Signer(OTHER))):
        with pytest.raises(InvalidInput, match="signed by this study's mixer"):
            read_batch(wrong, "s", mixer.public)
    with pytest.raises(InvalidInput, match="signed by this study's mixer"):
        read_batch(packed, "t", mixer.public)
    with pytest.raises(InvalidInput, match="one length"):
        pack_batch(Batch(batch.id, (b"a", b"bb")), "s", mixer)


def test_bytes_have_one_spelling() -> None:
    assert from_text(text(bytes(16)), 16, "x") == bytes(16)
    for wrong in ("A" * 21 + "B", "A" * 22 + "==", "A" * 21, "*" * 22, "é" * 22):
        with pytest.raises(InvalidInput, match="16 bytes in base64url"):
            from_text(wrong, 16, "x")
