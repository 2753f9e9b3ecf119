"""The server of the page: who may ask for what, and how the command fails."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from igos.errors import IgosError
from serving import held, running
from small import Run

server = pytest.importorskip("igos.app.server", reason="gradio is not installed")
guard = pytest.importorskip("igos.app.guard")
page = pytest.importorskip("igos.app.page")


@pytest.fixture
def address(place: Path) -> Iterator[str]:
    with running(str(place / "net.py:classifier")) as (url, _):
        yield url


def ask(url: str, data: bytes | None = None, **headers: str) -> tuple[int, dict[str, str], str]:
    request = urllib.request.Request(url, data, headers)
    try:
        with urllib.request.urlopen(request) as reply:
            return reply.status, dict(reply.headers), reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read().decode()


def test_the_page_may_ask_nobody_else(address: str) -> None:
    code, headers, text = ask(address)
    assert code == 200
    assert "igos: why did the network say that?" in text
    policy = dict(
        rule.strip().split(" ", 1) for rule in headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'self'"
    assert not any("http" in rule or "*" in rule for rule in policy.values())
    assert not re.search(r"url\(.?http|@import", ask(f"{address}/theme.css")[2])


def test_nothing_is_served_but_the_page(address: str, place: Path) -> None:
    for path in ("/etc/passwd", place / "net.py", Path(tempfile.gettempdir()) / "x"):
        assert ask(f"{address}/gradio_api/file={path}")[0] in (403, 404)
    for path in ("docs", "redoc", "openapi.json", "monitoring", "monitoring/summary"):
        assert ask(f"{address}/{path}")[0] in (403, 404), path
    for path in ("gradio_api/deep_link?session_hash=me", "config?deep_link=x", "?deep_link=x"):
        assert ask(f"{address}/{path}")[0] == 404, path
    assert ask(f"{address}/config")[0] == 200


def test_another_host_name_is_not_answered(address: str) -> None:
    assert ask(address, host="evil.example")[0] == 421
    assert ask(address, host="127.0.0.2.evil.example")[0] == 421
    for host in ("localhost:1", "127.0.0.2:1", "[::1]"):
        assert ask(address, host=host)[0] == 200


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, 200),
        ({"Origin": "{address}"}, 200),
        ({"Origin": "https://proxy.example", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_another_site_may_send_nothing(address: str, headers: dict[str, str], code: int) -> None:
    sent = {name: text.format(address=address) for name, text in headers.items()}
    assert send(address, b"a", **sent)[0] == code
    assert ask(address, None, **sent)[0] == 200  # a link to the page is no harm


def test_a_request_has_a_limit(address: str) -> None:
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=20)
    with closing(connection):
        connection.putrequest("POST", "/gradio_api/queue/join")
        connection.putheader("Content-Length", str(52 * 2**20))
        connection.endheaders()
        assert connection.getresponse().status == 413


def in_pieces(address: str, path: str, pieces: Iterable[bytes], **headers: str) -> int:
    """Without a word on how much will come."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=20)
    with closing(connection):
        with suppress(BrokenPipeError, ConnectionResetError):  # it answers before all is there
            connection.request("POST", path, pieces, headers, encode_chunked=True)
        return connection.getresponse().status


def test_a_limit_holds_for_what_comes_in_pieces(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}
    message = [b'{"data": ["', *[b"a" * 2**16] * 20, b'", 5], "session_hash": "me"}']
    assert in_pieces(address, "/gradio_api/run/drag", message, **kind) == 413
    monkeypatch.setattr(server, "MAX_UPLOAD", 2**20)
    head = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n'
    each = head + b"a" * 900_000 + b"\r\n"
    kind["Content-Type"] = "multipart/form-data; boundary=x"
    with running("net.py:classifier") as (url, _):
        for count, code in ((1, 200), (3, 413)):
            form = [each] * count + [b"--x--\r\n"]
            assert in_pieces(url, "/gradio_api/upload", form, **kind) == code


META = {"_type": "gradio.FileData"}


@pytest.mark.parametrize("meta", [{"meta": META}, {}])
@pytest.mark.parametrize("path", ["run/drag", "run/upload", "queue/join", "call/upload"])
def test_only_files_that_were_sent_are_read(
    address: str, place: Path, path: str, meta: dict[str, object]
) -> None:
    secret = place / "secret.txt"
    secret.write_text("of this machine")
    uploads = Path(os.environ["GRADIO_TEMP_DIR"])
    for file in (str(secret), "http://192.0.2.1/a.png", f"{uploads}/../secret.txt", "\0"):
        asked = {"data": [{"path": file, **meta}, 5], "session_hash": "me", "fn_index": 0}
        for kind in ("application/json", "application/x-www-form-urlencoded", "text/plain"):
            body = json.dumps(asked).encode()
            code, _, text = ask(f"{address}/gradio_api/{path}", body, **{"Content-Type": kind})
            assert (code, text) == (403, "not a file that was sent here")
    assert not list(uploads.rglob("secret.txt"))


def test_gradio_too_asks_whether_a_file_was_sent(
    address: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "_files_in", lambda _: [])
    secret = place / "secret.txt"
    secret.write_text("of this machine")
    asked = {"data": [{"path": str(secret), "meta": META}, 5], "session_hash": "me"}
    kind = {"Content-Type": "application/json"}
    code, _, _ = ask(f"{address}/gradio_api/run/drag", json.dumps(asked).encode(), **kind)
    assert code == 500
    assert not list(Path(os.environ["GRADIO_TEMP_DIR"]).rglob("secret.txt"))


def send(address: str, content: bytes, **headers: str) -> tuple[int, dict[str, str], str]:
    """A file, as the page sends it."""
    head = '--x\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n'
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    body = head.encode() + content + b"\r\n--x--\r\n"
    return ask(f"{address}/gradio_api/upload", body, **kind, **headers)


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.usefixtures("place")
def test_an_upload_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    often, age = page.UPLOADS_KEPT
    assert often + age <= 660
    monkeypatch.setattr(page, "UPLOADS_KEPT", (0.3, 0.3))
    with running("net.py:classifier") as (url, _):
        file = Path(json.loads(send(url, b"a")[2])[0])
        assert file.exists()
        until(lambda: not file.exists())


def test_gradio_too_forgets_whoever_leaves(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[bool] = []
    monkeypatch.setattr("igos.app.wiring.give_back", lambda: given.append(True))
    client = pytest.importorskip("gradio_client").Client(address, verbose=False)
    try:
        client.predict(api_name="/sample")
        assert client.session_hash in held()
    finally:
        client.close()
    until(lambda: client.session_hash not in held())
    until(lambda: bool(given))


def test_an_upload_has_a_limit(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert server.MAX_UPLOAD == 50 * 2**20
    monkeypatch.setattr(server, "MAX_UPLOAD", 1000)
    with running("net.py:classifier") as (url, _):
        for size, code in ((900, 200), (1100, 413)):
            assert send(url, size * b"a")[0] == code
        folder = Path(os.environ["GRADIO_TEMP_DIR"])
        assert list(folder.rglob("a.png"))
    assert not folder.exists()
    assert address


def test_a_password(place: Path) -> None:
    (place / "word").write_text("secret\n")
    with running("net.py:classifier", auth=guard.read_auth(f"me:{place / 'word'}")) as (url, _):
        assert '"auth_required":true' in ask(url)[2].replace(" ", "")
        assert ask(f"{url}/config")[0] == 401
        message = json.dumps({"data": ["deletion", 5], "fn_index": 0, "session_hash": "me"})
        kind = {"Content-Type": "application/json"}
        for path in ("queue/join", "run/drag", "call/drag"):
            assert ask(f"{url}/gradio_api/{path}", message.encode(), **kind)[0] == 401, path
        assert send(url, b"a")[0] == 401
        for word, code in (("wrong", 400), ("secret", 200)):
            form = urllib.parse.urlencode({"username": "me", "password": word}).encode()
            assert ask(f"{url}/login", form)[0] == code


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("me", "give USER:PASSWORD-FILE"),
        (":word", "give USER:PASSWORD-FILE"),
        ("me:absent", "not readable"),
        ("me:empty", "is empty"),
    ],
)
def test_a_bad_password_file(place: Path, text: str, words: str) -> None:
    (place / "empty").write_text("\n")
    with pytest.raises(IgosError, match=words):
        guard.read_auth(text)


NET = ("serve", "--model", "net.py:classifier", "--device", "cpu")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that ends when it has begun."""
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: None)


@pytest.mark.usefixtures("place", "at_once")
def test_serve_says_where(run: Run) -> None:
    for host in ("127.0.0.1", "127.0.0.2"):
        code, out, err = run(*NET, "--port", "0", "--host", host)
        assert (code, err) == (0, "")
        assert out.startswith(f"http://{host}:")


@pytest.mark.usefixtures("place", "at_once")
def test_serve_warns_when_others_can_reach_it(run: Run) -> None:
    code, _, err = run(*NET, "--port", "0", "--host", "0.0.0.0")
    assert code == 0
    assert "igos: warning: 0.0.0.0: open to everybody who can reach this machine" in err


@pytest.mark.usefixtures("place")
def test_serve_says_what_is_wrong(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        code, _, err = run(*NET, "--port", port)
    assert code == 2
    assert f"127.0.0.1 port {port}: cannot be opened (Address already in use" in err
    assert run(*NET, "--port", "99999")[0] == 2
    assert run(*NET, "--host", "no.such.host.invalid")[0] == 2
    code, _, err = run(*NET, "--host", "..")
    assert code == 2
    assert "igos: host '..': not a host's name; give another --host\n" in err
    assert run(*NET, "--auth", "me")[0] == 2
    assert run("serve", "--model", "nothing", "--port", "0")[0] == 2


def test_serve_without_gradio_says_what_to_install(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("server", "page", "wiring"):
        monkeypatch.delitem(sys.modules, f"igos.app.{name}", raising=False)
    monkeypatch.delattr("igos.app.server", raising=False)
    monkeypatch.setitem(sys.modules, "gradio", None)
    code, _, err = run("serve")
    assert code == 2
    assert err == "igos: the web page needs Gradio: pip install 'igos[web]'\n"


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_serve_ends_without_a_word_and_leaves_nothing(place: Path, ending: signal.Signals) -> None:
    """As a process of its own, with a visitor who stays."""
    temporary = place / "temporary"
    temporary.mkdir()
    with subprocess.Popen(
        [sys.executable, "-m", "igos.cli", *NET, "--port", "0"],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        url = process.stdout.readline().split()[0]
        with urllib.request.urlopen(f"{url}/gradio_api/heartbeat/me") as visitor:
            assert visitor.readline() == b"data: ALIVE\n"
            assert list(temporary.glob("igos-*"))
            process.send_signal(ending)
            out, err = process.communicate()
    assert (process.returncode, out, err) == (0, "", "")
    assert not list(temporary.glob("igos-*"))
    assert not [path for path in temporary.rglob("*") if path.is_file()]  # Gradio has empty folders
