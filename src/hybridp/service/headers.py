"""Security headers on every answer: the browser may load, run, send and frame only what is named here."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["POLICY", "SecurityHeaders", "policy_with"]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)

_ALWAYS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # An invitation's code is in the address of the page: no other server may read it there.
    "referrer-policy": "no-referrer",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=(), browsing-topics=()",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def policy_with(url: str) -> str:
    """The policy of a page whose script also sends to the server of this address, and to no other.

    >>> policy_with("https://mixer.example/path").split("; ")[4]
    "connect-src 'self' https://mixer.example"
    """
    parts = urlsplit(url)
    return POLICY.replace("connect-src 'self'", f"connect-src 'self' {parts.scheme}://{parts.netloc}")


class SecurityHeaders:
    """ASGI middleware; `https` adds the promise that this host is only ever reached by TLS."""

    def __init__(self, app: ASGIApp, https: bool = False) -> None:
        self.app = app
        self.more = {"strict-transport-security": "max-age=31536000"} if https else {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in {**_ALWAYS, **self.more}.items():
                    headers.setdefault(name, value)  # a page may say which other server its script must reach
                if headers.get("content-type", "").startswith("text/html"):
                    headers["cache-control"] = "no-store"
            await send(message)

        await self.app(scope, receive, with_headers)
