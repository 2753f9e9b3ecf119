"""Who may ask the page for something, and nothing that leads outside."""

import hmac
import ipaddress
import json
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from igos.errors import IgosError

FORM = 2**20  # bytes: what a request may have around the file that it brings, or without one
FORMS = ("/gradio_api/upload", "/login")  # all else that is sent to the page is JSON
READING = ("GET", "HEAD")
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
    """Headers that keep the page to itself, and a word for each request that is not answered."""

    def __init__(self, app: ASGIApp, local: bool, most: int, uploads: Path) -> None:
        self.app, self.local, self.most, self.uploads = app, local, most, uploads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        refused = self._refused(scope)
        if refused is None and _is_message(scope):
            message = await _whole(_limited(receive, FORM))
            if message is None:
                refused = PlainTextResponse("too large", 413)
            elif not all(map(self._is_upload, _files_in(message["body"]))):
                refused = PlainTextResponse("not a file that was sent here", 403)
            else:
                receive = _after(message, receive)
        if refused is not None:
            await refused(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self.app(scope, _limited(receive, self.most + FORM), with_headers)

    def _is_upload(self, path: str) -> bool:
        try:
            return Path(path).resolve().is_relative_to(self.uploads.resolve())
        except (OSError, ValueError):
            return False

    def _refused(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        # sites whose name is made to lead to this machine (DNS rebinding)
        if self.local and not is_loopback(_host_name(headers.get("host", ""))):
            return PlainTextResponse("not this host", 421)
        if scope["method"] not in READING and _from_elsewhere(headers):
            return PlainTextResponse("not from another site", 403)
        if int(headers.get("content-length", 0)) > self.most + FORM:
            return PlainTextResponse("too large", 413)
        if _is_deep_link(scope):
            return PlainTextResponse("not found", 404)
        return None


def _is_message(scope: Scope) -> bool:
    return scope["method"] not in READING and scope["path"].rstrip("/") not in FORMS


def _limited(receive: Receive, most: int) -> Receive:
    """No more than that, also where nobody said beforehand how much would come."""
    taken = 0

    async def limited() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > most:
            raise HTTPException(413, "too large")
        return message

    return limited


async def _whole(receive: Receive) -> Message | None:
    """A request's body in one message, or `None` if it is too large."""
    body, more = b"", True
    while more:
        try:
            message = await receive()
        except HTTPException:
            return None
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return {"type": "http.request", "body": body, "more_body": False}


def _after(first: Message, receive: Receive) -> Receive:
    waiting = [first]

    async def after() -> Message:
        return waiting.pop() if waiting else await receive()

    return after


def _files_in(body: bytes) -> list[str]:
    """The paths that a message names: Gradio would read whatever file it is told to.

    >>> _files_in(b'{"data": [{"path": "/etc/passwd"}, 5, {"path": 3}]}')
    ['/etc/passwd', '']
    """
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return []  # nor can Gradio make anything of it
    found, waiting = [], deque([message])
    while waiting:
        one: Any = waiting.popleft()
        if isinstance(one, dict):
            if "path" in one:
                found.append(one["path"] if isinstance(one["path"], str) else "")
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return found


def is_loopback(host: str) -> bool:
    """
    >>> [is_loopback(host) for host in ("localhost", "127.0.0.2", "::1", "0.0.0.0", "")]
    [True, True, True, False, False]
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _from_elsewhere(headers: Headers) -> bool:
    """Whether another site's page asks; behind a proxy only the browser knows, and it says so."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if site is not None:
        return site != "same-origin"
    return origin is not None and urlsplit(origin).netloc != headers.get("host", "").lower()


def _is_deep_link(scope: Scope) -> bool:
    """Gradio's way to write a visitor's page, photo and all, to the disk and show it to others."""
    written = scope["path"].rstrip("/").endswith("/deep_link")
    return written or "deep_link" in QueryParams(scope["query_string"])


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
