"""Who may change things over HTTP, and who sees passwords."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp.test_utils import make_mocked_request

from bkctl.admin.online import bookie_gc
from bkctl.admin.online.http_address import is_loopback
from bkctl.admin.online.http_json import TOKEN_VARIABLE, base, call
from bkctl.errors import RefusedError, UsageError
from bkctl.server.embedded import EmbeddedBookie
from bkctl.server.http.guard import Guard, read_token
from tests.support.admin_requests import ask
from tests.support.java_http import request

TOKEN = "0123456789abcdef"
CHANGES = [
    ("PUT", "/api/v1/bookie/state/readonly"),
    ("PUT", "/api/v1/bookie/gc"),
    ("PUT", "/api/v1/bookie/gc/suspend_compaction"),
    ("PUT", "/api/v1/bookie/gc/resume_compaction"),
    ("PUT", "/api/v1/bkctl/gc/confirm_deletions"),
    ("PUT", "/api/v1/config/server_config"),
    ("DELETE", "/api/v1/ledger/delete"),
    ("PUT", "/api/v1/autorecovery/status"),
    ("PUT", "/api/v1/autorecovery/trigger_audit"),
    ("PUT", "/api/v1/autorecovery/lost_bookie_recovery_delay"),
    ("GET", "/api/v1/ledger/read"),
    ("HEAD", "/api/v1/ledger/read"),
    ("GET", "/api/v1/bookie/sanity"),
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


def status(guard: Guard, method: str, path: str, authorization: str | None = None) -> int:
    headers = {} if authorization is None else {"Authorization": authorization}
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
    for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"):
        assert status(Guard(None, host), method, path) == 200
    for host in ("0.0.0.0", "::", "192.168.1.1", "bookie.example", ""):
        assert status(Guard(None, host), method, path) == 401
        assert status(Guard(None, host), method, path, "Bearer ") == 401
        assert status(Guard(None, host), method, path, "Bearer None") == 401


@pytest.mark.parametrize(("method", "path"), READS)
def test_reading_needs_none(method: str, path: str) -> None:
    assert status(Guard(TOKEN, "0.0.0.0"), method, path) == 200
    assert status(Guard(None, "0.0.0.0"), method, path) == 200


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
    assert read_token(str(path)) == TOKEN
    for content in (b"", b"short\n", b"\xff" * 20, b"two lines of\ntext here", b"x" * 5000):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=str(path)):
            read_token(str(path))
    with pytest.raises(UsageError, match="No such file"):
        read_token(str(tmp_path / "none"))


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
    path = tmp_path / "token"
    path.write_text(TOKEN)
    with EmbeddedBookie(tmp_path / "b", overrides={"bkctlHttpAdminTokenFile": str(path)}) as bookie:
        url = f"http://127.0.0.1:{bookie.http_port}"
        monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
        with pytest.raises(RefusedError, match=r"401.*token"):
            bookie_gc.suspend(url, major=True, minor=False)
        assert bookie_gc.suspended(url) == (False, False)
        monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
        bookie_gc.suspend(url, major=True, minor=False)
        assert True in bookie_gc.suspended(url)


@pytest.mark.parametrize("url", ["bookie:80", "http://", "http://[::1", "http://b:x", "http://b:70000"])
def test_what_is_no_address_is_said_before_anybody_is_asked(url: str) -> None:
    with pytest.raises(UsageError, match="expected http://host:port"):
        base(url)


def test_a_token_that_no_header_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "two\nlines")
    with pytest.raises(UsageError, match=TOKEN_VARIABLE):
        call("PUT", "http://127.0.0.1:1", "/")


def test_a_bookie_with_a_token_is_changed_by_who_has_it(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN)
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
