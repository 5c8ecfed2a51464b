"""What a server is told when it starts (nothing of it changes while it runs), and its keys: hashes of the analysts'
ones, and the ones that seal trusted people's values outside the database.

Every study has a data key of its own, stored sealed (AES-256-GCM) under the key file's current key, which is deleted
with its raw values: what is left of them in free pages or a log cannot be read. A rotation seals only these keys anew.

>>> ring = KeyRing.fresh()
>>> sealed = ring.new_data_key()
>>> ring.rotated().unseal(sealed) == ring.unseal(sealed)  # an older key still opens what it sealed
True
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hybridp.errors import HybridpError, must
from hybridp.public.envelope import appearing
from hybridp.public.mixing import Signer
from hybridp.service.schema import holds_studies

__all__ = ["RESTORE", "KeyProblem", "KeyRing", "Limits", "RowCipher", "Settings", "hashed", "load", "load_or_make"]
__all__ += ["new_secret", "save", "stated_address"]

_NONCE = 12
RESTORE = "mount its disk, put its backup back, or give another --database for new studies"
"""What to do where the key file is missing, or another one than before."""


def new_secret() -> str:
    return secrets.token_urlsafe(32)


def hashed(secret: str) -> bytes:
    """What is stored of a random secret. Its 256 bits cannot be guessed, so one round of SHA-256 is enough."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


class KeyProblem(HybridpError):
    """The key file cannot be used, or does not open what is stored."""


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The key file: numbered sealing keys, the newest in use."""

    keys: dict[int, bytes] = field(repr=False)

    @classmethod
    def fresh(cls) -> KeyRing:
        return cls({}).rotated()

    @property
    def current(self) -> int:
        return max(self.keys, default=0)

    def rotated(self) -> KeyRing:
        return KeyRing({**self.keys, self.current + 1: secrets.token_bytes(32)})

    def without_old(self) -> KeyRing:
        return KeyRing({self.current: self.keys[self.current]})

    @property
    def checks(self) -> dict[int, str]:
        """What a store keeps to know each key again; nothing of a key can be computed from it."""
        return {n: hashlib.blake2b(key=k, digest_size=16, person=b"key of store").hexdigest()
                for n, k in self.keys.items()}  # fmt: skip

    def new_data_key(self) -> bytes:
        """Of a study, sealed."""
        return self.seal(secrets.token_bytes(32))

    def seal(self, data_key: bytes) -> bytes:
        number, nonce = self.current.to_bytes(4, "big"), secrets.token_bytes(_NONCE)
        return number + nonce + AESGCM(self.keys[self.current]).encrypt(nonce, data_key, number)

    def unseal(self, sealed: bytes) -> bytes:
        number, nonce, rest = sealed[:4], sealed[4 : 4 + _NONCE], sealed[4 + _NONCE :]
        key = self.keys.get(int.from_bytes(number, "big"))
        if key is None:
            raise KeyProblem("The key file does not hold the key that this study was sealed with.")
        try:
            return AESGCM(key).decrypt(nonce, rest, number)
        except InvalidTag:
            raise KeyProblem("The key file holds another key than the one that this study was sealed with.") from None

    def opens(self, sealed: bytes) -> bool:
        try:
            return bool(self.unseal(sealed))
        except KeyProblem:
            return False


class RowCipher:
    """Names and seals the rows of one study, all by its data key: without it nothing can be compared or read.

    A row is named by a keyed hash of the report's id, so that whoever has the database, but not the key, cannot send a
    report again, nor tell whose it is. Study and row are authenticated with the value: rows cannot be swapped. A random
    96-bit nonce for each row keeps one data key safe for 2^32 rows (NIST SP 800-38D, 8.3). `mixed` is the private key
    that opens reports which come through a mixer (X25519), `signer` signs the tickets that let people send one.
    """

    __slots__ = ("_aead", "_nonce", "_row", "_study", "mixed", "signer")

    def __init__(self, data_key: bytes, study: int) -> None:
        def derived(purpose: bytes) -> bytes:
            return hashlib.blake2b(data_key, digest_size=32, person=purpose).digest()

        self._aead = AESGCM(data_key)
        self._row = derived(b"row of report")
        self._nonce, self.mixed = derived(b"ticket's nonce"), derived(b"mixed reports")
        self.signer = Signer(derived(b"sign tickets"))
        self._study = study.to_bytes(8, "big")

    def nonce(self, secret: str) -> bytes:
        """The nonce of a person's ticket: the same for the same invitation, and known to nobody without the key."""
        return hashlib.blake2b(secret.encode("utf-8", "surrogatepass"), key=self._nonce, digest_size=16).digest()

    def row(self, report_id: bytes) -> bytes:
        """Under which name a report is stored: the same when it comes again."""
        return hashlib.blake2b(report_id, key=self._row, digest_size=16).digest()

    def seal(self, value: bytes, row: bytes) -> bytes:
        nonce = os.urandom(_NONCE)
        return nonce + self._aead.encrypt(nonce, value, self._study + row)

    def unseal(self, sealed: bytes, row: bytes) -> bytes:
        try:
            return self._aead.decrypt(sealed[:_NONCE], sealed[_NONCE:], self._study + row)
        except InvalidTag:
            raise KeyProblem("A stored value cannot be opened: it was altered, or the key is another one.") from None


# --- the file ---------------------------------------------------------------------------------------------------------


def load_or_make(path: Path, empty: Callable[[], bool] = lambda: True) -> KeyRing:
    """The key file's ring; a new file, readable by its owner only, where there is none and the store is `empty`."""
    if not path.exists():
        if not path.parent.is_dir():
            raise KeyProblem(f"`key-file` must lie in an existing folder. Got {path}.")
        if not empty():
            raise KeyProblem(f"`key-file` must be there, since the database holds studies: {RESTORE}. Got no {path}.")
        with contextlib.suppress(FileExistsError):  # another process was quicker: its file counts
            save(path, KeyRing.fresh(), new=True)
    return load(path)


def load(path: Path) -> KeyRing:
    try:
        if path.stat().st_mode & 0o077:
            raise KeyProblem(f"`key-file` must be readable by its owner only (chmod 600). Got {path}.")
        ring = msgspec.json.decode(path.read_bytes(), type=KeyRing)
        if not ring.keys or any(len(key) != 32 for key in ring.keys.values()):
            raise ValueError
    except (OSError, ValueError, msgspec.DecodeError):
        raise KeyProblem(f"`key-file` must be a key file of hybridp. Got {path}.") from None
    return ring


def save(path: Path, ring: KeyRing, *, new: bool = False) -> None:
    """Write the file whole or not at all, synced; `new` refuses to replace one."""
    with appearing(path, new=new, mode=0o600) as draft:
        draft.write_bytes(msgspec.json.encode(ring))


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one request, and one address, may ask for: `rate` reports a second, up to `burst` at once, and half as
    many pages (0: no limit); of wrong keys and invitations `guess_burst` at once and `guess_rate` a second, then none
    of its keys is looked at for a while. `waiting` reports may wait for the disk; a participant's clock may be
    `clock_skew` seconds off; of bodies on their way about `held_bytes` are held, at most twice as many."""

    body_bytes: int = 1 << 20
    body_seconds: float = 20.0
    held_bytes: int = 32 << 20
    reports_per_request: int = 1000
    rate: float = 100.0
    burst: int = 2000
    guess_rate: float = 0.5
    guess_burst: int = 60
    waiting: int = 50_000
    clock_skew: int = 300

    def __post_init__(self) -> None:
        must(self.body_bytes >= 1024, "body_bytes", "must be at least 1024", self.body_bytes)
        must(self.reports_per_request >= 1, "reports_per_request", "must be at least 1", self.reports_per_request)
        must(0 <= self.rate < math.inf, "rate", "must be zero or positive", self.rate)
        enough = self.rate == 0 or self.burst >= self.reports_per_request
        must(enough, "burst", f"must be at least {self.reports_per_request}, one full request", self.burst)


def stated_address() -> str | None:
    return os.environ.get("HYBRIDP_BASE_URL") or None


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the data is, where the key is (never in the database), and the limits."""

    database: str
    keys: KeyRing = field(repr=False)
    key_file: Path
    key_is_new: bool = False
    base_url: str = "http://127.0.0.1:8000"
    limits: Limits = field(default_factory=Limits)
    secure_cookies: bool = False
    metrics_token: str = field(default="", repr=False)
    metrics_open: bool = False

    @classmethod
    def from_environment(
        cls,
        database: str | None = None,
        key_file: str | Path | None = None,
        base_url: str | None = None,
        limits: Limits | None = None,
    ) -> Settings:
        """From arguments, else HYBRIDP_DATABASE, HYBRIDP_KEY_FILE and HYBRIDP_BASE_URL, else files in this folder."""
        where = database or os.environ.get("HYBRIDP_DATABASE") or "sqlite:///hybridp.db"
        path = Path(key_file or os.environ.get("HYBRIDP_KEY_FILE") or "hybridp.key")
        url = base_url or stated_address() or "http://127.0.0.1:8000"
        return cls(
            database=where,
            key_is_new=not path.exists(),
            keys=load_or_make(path, lambda: not holds_studies(where)),
            key_file=path,
            base_url=url.rstrip("/"),
            limits=limits or Limits(),
            secure_cookies=url.startswith("https:"),
            metrics_token=os.environ.get("HYBRIDP_METRICS_TOKEN", ""),
            metrics_open=os.environ.get("HYBRIDP_METRICS", "") == "open",
        )
