"""What crosses between a device, the mixer and the collector, so that nobody sees both who sent and what was sent.

- A device **seals** its report for the collector: HPKE (RFC 9180, base mode) with X25519, HKDF-SHA256 and AES-128-GCM.
  All sealed reports of a study have one length. The mixer holds no key that opens them.
- A **ticket** says that its bearer may send one report through the mixer: 16 random bytes, signed by the collector
  (Ed25519). The collector knows to whom it gave a ticket and never sees it again; the mixer sees the ticket and strikes
  it off, and never hands it on. Only together could they tell who sent what.
- A **batch** is what the mixer sends on: sealed reports in random order and nothing else, signed by the mixer.

>>> key = b"k" * 32  # X25519: the collector has one for each study
>>> opened = unseal(seal(b"report", public(key), "s1"), key, "s1")
>>> opened
b'report'
>>> from hybridp.errors import InvalidInput
>>> try: unseal(seal(b"report", public(key), "s1"), key, "another study")
... except InvalidInput as error: print(error)
`sealed` must be a report that was sealed for this study. Got something else.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from hybridp.errors import InvalidInput, must

__all__ = ["HEAD", "MOST_BATCH", "OVERHEAD", "Batch", "Head", "Signer", "check_ticket", "from_text"]
__all__ += ["pack_batch", "public", "read_batch", "read_head", "seal", "text", "ticket", "unseal"]

OVERHEAD = 48
"""Bytes by which a sealed report is longer than what is in it: a fresh public key and an authentication tag."""

_SEAL = b"hybridp mixed report 1\0"
_TICKET = b"hybridp ticket 1\0"
_BATCH = b"hybridp batch 1\0"
_HEAD = struct.Struct(">16sII?32s")
HEAD = 64 + _HEAD.size
"""Bytes in front of a batch's reports: a signature, and what it signs."""
MOST_BATCH = 64 << 20
"""Bytes of the reports of one batch."""


def text(raw: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def from_text(given: str, size: int, name: str) -> bytes:
    """The bytes of `text`, only from their one right spelling."""
    try:
        raw = base64.b64decode(given + "=" * (-len(given) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    must(len(raw) == size and text(raw) == given, name, f"must be {size} bytes in base64url", "something else")
    return raw


# --- sealed reports ---------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _suite() -> Any:
    try:
        from cryptography.hazmat.primitives import hpke
    except ImportError:
        raise InvalidInput("`hybridp[service]` must be installed to seal a report. Got no cryptography.") from None
    return hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_128_GCM)


@lru_cache(maxsize=64)
def _private(key: bytes) -> Any:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(key)


def public(key: bytes) -> bytes:
    """The public half of a key, which goes to every device."""
    return bytes(_private(key).public_key().public_bytes_raw())


def seal(body: bytes, to: bytes, study: str) -> bytes:
    """Only the holder of the private half of `to` can open it, and only as a report to this study."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    return bytes(_suite().encrypt(body, X25519PublicKey.from_public_bytes(to), info=_SEAL + study.encode()))


def unseal(sealed: bytes, key: bytes, study: str) -> bytes:
    """What is in a sealed report; refused where it was sealed for somebody else, or changed on its way."""
    from cryptography.exceptions import InvalidTag

    try:
        return bytes(_suite().decrypt(sealed, _private(key), info=_SEAL + study.encode()))
    except (InvalidTag, ValueError):
        raise InvalidInput("`sealed` must be a report that was sealed for this study. Got something else.") from None


# --- signatures -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Signer:
    """An Ed25519 key: the collector's for tickets, the mixer's for batches."""

    key: bytes

    @cached_property
    def _private(self) -> Any:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self.key)

    @property
    def public(self) -> bytes:
        return bytes(self._private.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        return bytes(self._private.sign(message))


def _verified(key: bytes, signature: bytes, message: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def ticket(signer: Signer, study: str, nonce: bytes) -> str:
    """The right to send one report to a study through its mixer; the same nonce gives the same ticket.

    >>> signer = Signer(b"k" * 32)
    >>> given = ticket(signer, "s1", b"0123456789abcdef")
    >>> check_ticket(given, signer.public, "s1") == b"0123456789abcdef"
    True
    """
    must(len(nonce) == 16, "nonce", "must be 16 bytes", len(nonce))
    return text(nonce + signer.sign(_TICKET + study.encode() + b"\0" + nonce))


def check_ticket(given: str, key: bytes, study: str) -> bytes:
    """The nonce of a ticket that was signed for this study; refused where it was not."""
    raw = from_text(given, 80, "ticket")
    nonce, signature = raw[:16], raw[16:]
    if not _verified(key, signature, _TICKET + study.encode() + b"\0" + nonce):
        raise InvalidInput("`ticket` must be signed by this study's collector. Got something else.")
    return nonce


@dataclass(frozen=True, slots=True)
class Batch:
    """Sealed reports in random order, under a random name; after the `last` one a mixer holds no more of the study."""

    id: bytes
    sealed: tuple[bytes, ...]
    last: bool = False


class Head(NamedTuple):
    """What a batch says of itself, signed by the mixer: whoever has read it knows how many bytes may follow."""

    id: bytes
    size: int
    people: int
    last: bool
    digest: bytes


def pack_batch(batch: Batch, study: str, signer: Signer) -> bytes:
    """A batch as the mixer sends it: signature and head, then the reports, all of one length."""
    must(bool(batch.sealed) or batch.last, "batch", "must hold at least one report, unless it is the last", 0)
    size = len(batch.sealed[0]) if batch.sealed else 0
    must(all(len(one) == size for one in batch.sealed), "batch", "must hold reports of one length", "several")
    rest = b"".join(batch.sealed)
    head = _HEAD.pack(batch.id, size, len(batch.sealed), batch.last, hashlib.sha256(rest).digest())
    return signer.sign(_BATCH + study.encode() + b"\0" + head) + head + rest


def read_head(packed: bytes, study: str, key: bytes) -> Head:
    """The head of a batch, from its first `HEAD` bytes; refused where this study's mixer did not sign it."""
    signature, head = packed[:64], packed[64:HEAD]
    if len(head) < _HEAD.size or not _verified(key, signature, _BATCH + study.encode() + b"\0" + head):
        raise InvalidInput("`batch` must be signed by this study's mixer. Got something else.")
    return Head(*_HEAD.unpack(head))


def read_batch(packed: bytes, study: str, key: bytes) -> Batch:
    """What the mixer with this public key sent; refused where somebody else did, or it was changed on its way.

    >>> mixer = Signer(b"m" * 32)
    >>> sent = pack_batch(Batch(b"0" * 16, (b"one", b"two")), "s1", mixer)
    >>> read_batch(sent, "s1", mixer.public).sealed
    (b'one', b'two')
    """
    head, rest = read_head(packed, study, key), packed[HEAD:]
    if len(rest) != head.size * head.people or hashlib.sha256(rest).digest() != head.digest:
        raise InvalidInput("`batch` must be signed by this study's mixer. Got something else.")
    return Batch(head.id, tuple(rest[i : i + head.size] for i in range(0, len(rest), head.size or 1)), head.last)
