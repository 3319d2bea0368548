"""Who may change things over HTTP, and who sees passwords."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import product
from pathlib import Path
from typing import ClassVar

import pytest
from aiohttp.test_utils import make_mocked_request

from bkctl.admin.gc import over_http
from bkctl.admin.http_json import TOKEN_HOSTS_VARIABLE, TOKEN_VARIABLE, base, call, require_named_host
from bkctl.errors import ConnectionFailedError, RefusedError, UsageError
from bkctl.metadata.http_address import is_loopback
from bkctl.server.http.failed_attempts import (
    ADDRESSES_MAX,
    DELAY_MAX_S,
    FREE_ATTEMPTS,
    MEMORY_S,
    FailedAttempts,
)
from bkctl.server.http.guard import Guard, read_token
from bkctl.server.life.embedded import EmbeddedBookie
from tests.support.admin_requests import ask
from tests.support.java_http import request
from tests.support.manual_clock import ManualClock

TOKEN = "0123456789abcdef"
CHANGES = [
    ("PUT", "/api/v1/bookie/state/readonly"),
    ("PUT", "/api/v1/bookie/gc"),
    ("PUT", "/api/v1/bookie/gc/suspend_compaction"),
    ("PUT", "/api/v1/bookie/gc/resume_compaction"),
    ("PUT", "/api/v1/bkctl/gc/confirm_deletions"),
    ("DELETE", "/api/v1/bkctl/ledger/limbo?ledger_id=1"),
    ("PUT", "/api/v1/config/server_config"),
    ("DELETE", "/api/v1/ledger/delete"),
    ("PUT", "/api/v1/autorecovery/status"),
    ("PUT", "/api/v1/autorecovery/trigger_audit"),
    ("PUT", "/api/v1/autorecovery/lost_bookie_recovery_delay"),
    ("GET", "/api/v1/ledger/read"),
    ("HEAD", "/api/v1/ledger/read"),
    ("PUT", "/api/v1/bookie/sanity"),
]
READS = [
    ("GET", "/metrics"),
    ("GET", "/api/v1/bookie/state"),
    ("GET", "/api/v1/bkctl/snapshot"),
    ("GET", "/api/v1/ledger/list"),
    ("GET", "/api/v1/ledger/metadata"),
    ("POST", "/heartbeat"),
]
WRONG = [
    "",
    TOKEN,
    f"Bearer {TOKEN}x",
    f"Bearer {TOKEN[:-1]}",
    "Bearer ",
    f"Basic {TOKEN}",
    f"bearer {TOKEN}",
]


LOOPBACK = ("127.0.0.1", "127.8.8.8", "::1", "localhost")


def secret(path: Path) -> Path:
    path.write_text(TOKEN)
    path.chmod(0o600)
    return path


def status(guard: Guard, method: str, path: str, authorization: str | None = None, **more: str) -> int:
    headers = {name.replace("_", "-"): value for name, value in more.items()}
    if authorization is not None:
        headers["Authorization"] = authorization
    answer = guard.refusal(make_mocked_request(method, path, headers=headers))
    return 200 if answer is None else answer.status


@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_changes_need_the_token(method: str, path: str) -> None:
    for host in ("127.0.0.1", "0.0.0.0", "10.1.2.3"):
        guard = Guard(TOKEN, host)
        assert status(guard, method, path) == 401
        assert [status(guard, method, path, wrong) for wrong in WRONG] == [401] * len(WRONG)
        assert status(guard, method, path, f"Bearer {TOKEN}") == 200
        assert status(guard, method, path, f"Bearer  {TOKEN} ") == 200


@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_without_a_token_only_this_machine_may_change_things(method: str, path: str) -> None:
    for host in LOOPBACK:
        assert status(Guard(None, host), method, path) == 200
    for host in ("0.0.0.0", "::", "192.168.1.1", "bookie.example", ""):
        assert status(Guard(None, host), method, path) == 401
        assert status(Guard(None, host), method, path, "Bearer ") == 401
        assert status(Guard(None, host), method, path, "Bearer None") == 401


@pytest.mark.parametrize(("method", "path"), READS)
def test_reading_needs_none(method: str, path: str) -> None:
    assert status(Guard(TOKEN, "0.0.0.0"), method, path) == 200
    assert status(Guard(None, "0.0.0.0"), method, path) == 200


@pytest.mark.parametrize(("method", "path"), [*CHANGES, *READS[:-1]])
def test_a_name_that_resolves_to_the_loopback_is_not_this_machine(method: str, path: str) -> None:
    """DNS rebinding: the page's own name is made to resolve to 127.0.0.1."""
    strangers = (
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "10.1.1.1:8080",
        "[::2]",
        "[x",
    )
    for listening in LOOPBACK:
        for token, name in product((None, TOKEN), strangers):
            assert status(Guard(token, listening), method, path, Host=name) == 403
        for name in ("localhost", "LOCALHOST:8080", "127.0.0.1:8080", "[::1]:8080", "127.3.3.3"):
            assert status(Guard(None, listening), method, path, Host=name) == 200
    # With the token the name is of no matter, and a bookie that others reach has names of its own.
    assert status(Guard(TOKEN, "127.0.0.1"), method, path, f"Bearer {TOKEN}", Host="bookie.example") == 200
    assert status(Guard(TOKEN, "0.0.0.0"), *READS[0], Host="bookie.example") == 200


@pytest.mark.parametrize(("method", "path"), [*CHANGES, *READS[:-1]])
def test_pages_of_other_sites_are_refused(method: str, path: str) -> None:
    guard = Guard(None, "127.0.0.1")
    host = "127.0.0.1:8080"
    for origin in ("http://evil.example", "null", "http://127.0.0.1:9999", "http://[", "https://localhost"):
        assert status(guard, method, path, Host=host, Origin=origin) == 403
    for site in ("cross-site", "same-site", "CROSS-SITE"):
        assert status(guard, method, path, Host=host, Sec_Fetch_Site=site) == 403
    for site in ("same-origin", "none"):
        assert status(guard, method, path, Host=host, Sec_Fetch_Site=site, Origin=f"http://{host}") == 200


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP", "X-Forwarded-Host"])
@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_a_proxy_in_front_needs_the_token(method: str, path: str, header: str) -> None:
    proxied = {"Host": "127.0.0.1", header: "203.0.113.9"}
    assert status(Guard(None, "127.0.0.1"), method, path, **proxied) == 401
    assert status(Guard(TOKEN, "127.0.0.1"), method, path, **proxied) == 401
    assert status(Guard(TOKEN, "127.0.0.1"), method, path, f"Bearer {TOKEN}", **proxied) == 200
    assert status(Guard(None, "127.0.0.1"), *READS[0], **proxied) == 200


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_sanity_test_writes_and_is_not_begun_by_a_get(method: str) -> None:
    path = "/api/v1/bookie/sanity"
    assert status(Guard(None, "127.0.0.1"), method, path) == 405
    assert status(Guard(None, "0.0.0.0"), method, path) == 401
    assert status(Guard(TOKEN, "127.0.0.1"), method, path) == 401
    assert status(Guard(TOKEN, "127.0.0.1"), method, path, f"Bearer {TOKEN}") == 200


def test_no_get_changes_the_ledgers_of_a_bookie(tmp_path: Path) -> None:
    with EmbeddedBookie(tmp_path) as bookie:
        before = ask(bookie, "GET", "/api/v1/ledger/list")
        assert ask(bookie, "GET", "/api/v1/bookie/sanity")[0] == 405
        assert ask(bookie, "GET", "/api/v1/ledger/list") == before


def test_a_refusal_says_what_to_do() -> None:
    asked = make_mocked_request("PUT", "/api/v1/bookie/gc")
    for guard, word in (
        (Guard(TOKEN, "::"), "Authorization"),
        (Guard(None, "::"), "bkctlHttpAdminTokenFile"),
    ):
        answer = guard.refusal(asked)
        assert answer is not None
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert answer.text is not None
        assert word in answer.text
        assert TOKEN not in answer.text


def test_loopback_addresses() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.255.0.1", "::1", "localhost")))
    assert not any(map(is_loopback, ("", "0.0.0.0", "::", "128.0.0.1", "localhost.example")))


def test_a_token_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"  {TOKEN}\n")
    path.chmod(0o600)
    assert read_token(str(path)) == TOKEN
    for content in (b"", b"short\n", b"\xff" * 20, b"two lines of\ntext here", b"x" * 5000):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=str(path)):
            read_token(str(path))
    with pytest.raises(UsageError, match="No such file"):
        read_token(str(tmp_path / "none"))


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o606, 0o620, 0o666])
def test_a_token_that_others_can_read_is_no_secret(tmp_path: Path, mode: int) -> None:
    path = secret(tmp_path / "token")
    for good in (0o600, 0o400, 0o640, 0o440):
        path.chmod(good)
        assert read_token(str(path)) == TOKEN
    path.chmod(mode)
    with pytest.raises(UsageError, match=rf"mode {mode:04o} .* chmod 600"):
        read_token(str(path))


@pytest.mark.parametrize("make", [lambda path: path.write_text("short"), lambda path: None])
def test_a_bookie_does_not_start_with_a_bad_token_file(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "token"
    make(path)
    with pytest.raises(UsageError, match="bkctlHttpAdminTokenFile"):
        EmbeddedBookie(tmp_path / "b", overrides={"bkctlHttpAdminTokenFile": str(path)}).start()


def test_a_bookie_that_everybody_reaches_is_changed_by_nobody(tmp_path: Path) -> None:
    with EmbeddedBookie(tmp_path, overrides={"httpServerHost": "0.0.0.0"}) as bookie:
        body = b'{"readOnly": true}'
        assert ask(bookie, "PUT", "/api/v1/bookie/state/readonly", body)[0] == 401
        assert ask(bookie, "GET", "/api/v1/bookie/state/readonly") == (200, '{"readOnly": false}')
        # However the path is written, and also what other modules serve.
        assert ask(bookie, "GET", "/api/v1/ledger/read?ledger_id=1")[0] == 401
        assert ask(bookie, "GET", "/api/v1/ledger/%72ead?ledger_id=1")[0] in (401, 404)
        assert ask(bookie, "GET", "/api/v1//ledger/read?ledger_id=1")[0] in (401, 404)
        assert ask(bookie, "HEAD", "/api/v1/ledger/read?ledger_id=1")[0] == 401
        assert ask(bookie, "PUT", "/api/v1/bookie/gc")[0] == 401


def test_our_own_commands_send_the_token_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = secret(tmp_path / "token")
    with EmbeddedBookie(tmp_path / "b", overrides={"bkctlHttpAdminTokenFile": str(path)}) as bookie:
        url = f"http://127.0.0.1:{bookie.http_port}"
        monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
        with pytest.raises(RefusedError, match=r"401.*token"):
            over_http.suspend(url, major=True, minor=False)
        assert over_http.suspended(url) == (False, False)
        monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
        over_http.suspend(url, major=True, minor=False)
        assert True in over_http.suspended(url)


@pytest.mark.parametrize("url", ["bookie:80", "http://", "http://[::1", "http://b:x", "http://b:70000"])
def test_what_is_no_address_is_said_before_anybody_is_asked(url: str) -> None:
    with pytest.raises(UsageError, match="expected http://host:port"):
        base(url)


def test_a_token_that_no_header_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "two\nlines")
    with pytest.raises(UsageError, match=TOKEN_VARIABLE):
        call("PUT", "http://127.0.0.1:1", "/")


def test_a_bookie_with_a_token_is_changed_by_who_has_it(tmp_path: Path) -> None:
    path = secret(tmp_path / "token")
    overrides = {"bkctlHttpAdminTokenFile": str(path), "httpServerHost": "0.0.0.0"}
    with EmbeddedBookie(tmp_path / "bookie", overrides=overrides) as bookie:
        port = bookie.http_port
        assert port is not None
        place, body = "/api/v1/bookie/state/readonly", {"readOnly": True}
        assert request(port, "PUT", place, body).status == 401
        headers = {"Authorization": f"Bearer {TOKEN}"}
        assert request(port, "PUT", place, body, headers).json == {"readOnly": True}
        assert request(port, "GET", place).json == {"readOnly": True}
        given = request(port, "GET", "/api/v1/config/server_config").json
        assert given["bkctlHttpAdminTokenFile"] == str(path)
        assert TOKEN not in str(given)


def test_the_token_goes_only_to_hosts_that_were_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    monkeypatch.delenv(TOKEN_HOSTS_VARIABLE, raising=False)
    for url in ("http://evil.example:8080", "http://10.0.0.1:8080", "http://[2001:db8::1]:8080"):
        with pytest.raises(RefusedError, match=TOKEN_HOSTS_VARIABLE):
            require_named_host(url)
    for url in ("http://127.0.0.1:8080", "http://[::1]:8080", "http://localhost:8080"):
        require_named_host(url)
    monkeypatch.setenv(TOKEN_HOSTS_VARIABLE, "bookie-1, 10.0.0.1,[2001:DB8::1]")
    for url in (
        "http://bookie-1:8080",
        "http://BOOKIE-1:1",
        "http://10.0.0.1:8080",
        "http://[2001:db8::1]:8080",
    ):
        require_named_host(url)
    with pytest.raises(RefusedError, match="evil"):
        require_named_host("http://evil.example:8080")
    monkeypatch.delenv(TOKEN_VARIABLE)
    require_named_host("http://evil.example:8080")


class Listener(BaseHTTPRequestHandler):
    """Keeps the requests that come; redirects each to ``redirect`` if that is set."""

    seen: ClassVar[list[tuple[str, str | None]]] = []
    redirect: ClassVar[str] = ""

    def do_PUT(self) -> None:
        self.seen.append((self.path, self.headers.get("Authorization")))
        self.send_response(307 if self.redirect else 200)
        if self.redirect:
            self.send_header("Location", self.redirect)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_PUT

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def listener() -> Iterator[str]:
    Listener.seen, Listener.redirect = [], ""
    with HTTPServer(("127.0.0.1", 0), Listener) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_token_goes_through_no_proxy_and_to_no_redirection(
    listener: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    monkeypatch.setenv("http_proxy", listener)
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(ConnectionFailedError):
        call("PUT", "http://bookie.invalid:1", "/x")
    assert Listener.seen == []
    for method in ("PUT", "GET"):
        Listener.redirect = f"{listener}/elsewhere"
        with pytest.raises(RefusedError, match="307"):
            call(method, listener, "/x")
    assert Listener.seen == [("/x", f"Bearer {TOKEN}"), ("/x", None)]


def test_every_change_and_every_refusal_is_one_audit_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "bkctl.server.http.audit_line")
    with EmbeddedBookie(tmp_path / "b") as bookie:
        body = b'{"readOnly": true}'
        assert ask(bookie, "PUT", "/api/v1/bookie/state/readonly", body)[0] == 200
        assert ask(bookie, "DELETE", "/api/v1/ledger/delete?ledger_id=77")[0] == 200
        assert ask(bookie, "PUT", "/api/v1/no/such/path%0aforged")[0] == 404
        assert ask(bookie, "GET", "/api/v1/bookie/state")[0] == 200
        port = bookie.http_port
        assert port is not None
        refused = request(port, "DELETE", "/api/v1/ledger/delete?ledger_id=7", None, {"Host": "evil"})
        assert refused.status == 403
    lines = [vars(record) for record in caplog.records if record.name.endswith("audit_line")]
    assert [
        (line["method"], line["path"], line["status"], line["peer"], line["token"]) for line in lines
    ] == [
        ("PUT", "/api/v1/bookie/state/readonly", 200, "127.0.0.1", False),
        ("DELETE", "/api/v1/ledger/delete?ledger_id=77", 200, "127.0.0.1", False),
        ("PUT", "/api/v1/no/such/path%0aforged", 404, "127.0.0.1", False),
        ("DELETE", "/api/v1/ledger/delete?ledger_id=7", 403, "127.0.0.1", False),
    ]
    assert [line.get("event") for line in lines] == ["admin_change"] * 3 + [None]
    assert "\n" not in "".join(record.getMessage() for record in caplog.records)


def test_refusals_of_one_address_are_slowed_down() -> None:
    clock = ManualClock()
    failed = FailedAttempts(clock)
    delays = [failed.delay_s("a") for _ in range(40)]
    assert delays[:FREE_ATTEMPTS] == [0.0] * FREE_ATTEMPTS
    assert delays[FREE_ATTEMPTS:] == sorted(delays[FREE_ATTEMPTS:])
    assert 0 < delays[FREE_ATTEMPTS] < delays[-1] == DELAY_MAX_S
    assert failed.delay_s("b") == 0.0
    clock.advance(MEMORY_S + 1)
    assert failed.delay_s("a") == 0.0
    for _ in range(FREE_ATTEMPTS):
        failed.delay_s("a")
    failed.forget("a")
    assert failed.delay_s("a") == 0.0


def test_addresses_that_were_refused_are_bounded() -> None:
    failed = FailedAttempts(ManualClock())
    for number in range(ADDRESSES_MAX + 100):
        failed.delay_s(str(number))
    assert len(failed._refusals) == ADDRESSES_MAX
