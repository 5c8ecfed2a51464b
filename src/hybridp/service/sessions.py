"""An analyst's session: a signed cookie, and the token that a form must carry to be believed.

The cookie says who, until when, and a random number; a keyed hash (HMAC-SHA256) of that makes it unforgeable. The form
token is a keyed hash of the whole cookie, so that another site, which can make a browser send the cookie but cannot
read it, cannot make the token. A change of the secret ends every session; logging out ends one, by a hash of its cookie
(`mark`) that the server keeps until the session would have ended by itself.

>>> secret = bytes(32)
>>> cookie = open_session(secret, 7, now=1000)
>>> read_session(secret, cookie, now=1001), read_session(secret, cookie, now=10**9)
(7, None)
>>> read_session(bytes(31) + b"x", cookie, now=1001) is None
True
>>> form_token_ok(secret, cookie, form_token(secret, cookie)), form_token_ok(secret, cookie, "0" * 64)
(True, False)
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

__all__ = ["COOKIE", "LASTS", "ends", "form_token", "form_token_ok", "mark", "open_session", "read_session"]

COOKIE = "hybridp_session"
LASTS = 12 * 3600
"""Seconds until a session ends."""


def _mac(secret: bytes, purpose: str, text: str) -> str:
    return hmac.new(secret, f"{purpose}:{text}".encode(), hashlib.sha256).hexdigest()


def open_session(secret: bytes, analyst: int, *, now: float) -> str:
    """The cookie of a new session."""
    text = f"{analyst}.{int(now) + LASTS}.{secrets.token_urlsafe(16)}"
    return f"{text}.{_mac(secret, 'session', text)}"


def read_session(secret: bytes, cookie: str, *, now: float) -> int | None:
    """Whose session it is; None for a forged or an old one."""
    text, _, mac = cookie.rpartition(".")
    parts = text.split(".")
    if len(parts) != 3 or not cookie.isascii() or not hmac.compare_digest(mac, _mac(secret, "session", text)):
        return None
    return int(parts[0]) if now < int(parts[1]) else None


def mark(cookie: str) -> str:
    """What is kept of a session that was ended: nobody can make the cookie from it."""
    return hashlib.sha256(f"ended:{cookie}".encode()).hexdigest()


def ends(cookie: str) -> int:
    """When a session that `read_session` accepts will end by itself."""
    return int(cookie.split(".")[1])


def form_token(secret: bytes, cookie: str) -> str:
    return _mac(secret, "form", cookie)


def form_token_ok(secret: bytes, cookie: str, token: str) -> bool:
    return hmac.compare_digest(token.encode(), form_token(secret, cookie).encode())
