"""Who may ask the page for something, and nothing that leads outside."""

import hmac
from collections.abc import Callable
from pathlib import Path

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from igos.errors import IgosError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
HEADERS = {
    # Gradio's own scripts are inline and make functions from text; nothing may come from outside.
    "content-security-policy": "default-src 'self'; script-src 'self' 'unsafe-inline' "
    "'unsafe-eval'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' "
    "data:; connect-src 'self'; worker-src 'self' blob:; object-src 'none'; base-uri 'self'; "
    "form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


class Guard:
    """Headers that keep the page to itself; on loopback, only requests meant for loopback.

    The latter is against sites whose name is made to lead to this machine (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, local: bool) -> None:
        self.app, self.local = app, local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if self.local and _host_name(Headers(scope=scope).get("host", "")) not in LOOPBACK:
            await PlainTextResponse("not this host", 421)(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self.app(scope, receive, with_headers)


def _host_name(host: str) -> str:
    """
    >>> _host_name("127.0.0.1:7860"), _host_name("[::1]:7860"), _host_name("localhost")
    ('127.0.0.1', '::1', 'localhost')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


def read_auth(text: str) -> Callable[[str, str], bool]:
    """USER:PASSWORD-FILE -> whether a name and a password are these."""
    user, colon, path = text.partition(":")
    if not (user and colon and path):
        raise IgosError(f"auth {text!r}: give USER:PASSWORD-FILE")
    try:
        password = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise IgosError(f"auth {text!r}: the password file is not readable ({error})") from error
    if not password:
        raise IgosError(f"auth {text!r}: the password file is empty; write the password in it")

    def allowed(name: str, word: str) -> bool:
        known = hmac.compare_digest(name.encode(), user.encode())
        right = hmac.compare_digest(word.encode(), password.encode())
        return known and right

    return allowed
