"""A secret that others can read is refused, with the mode and what to do."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.config import secret_file
from bkctl.config.secret_file import read_secret, require_secret
from bkctl.errors import UsageError
from bkctl.net.tls import ClientTlsSettings, client_context
from bkctl.server.life.embedded import EmbeddedBookie
from tests.support.tls_files import BOOKIE_TLS, CERTIFICATE, KEY, PEMS

Run = Callable[..., Any]


def owned_by(user: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fstat, stat = os.fstat, os.stat

    def changed(facts: os.stat_result) -> os.stat_result:
        fields = list(facts)
        fields[4] = user
        return os.stat_result(fields)

    monkeypatch.setattr(secret_file.os, "fstat", lambda descriptor: changed(fstat(descriptor)))
    monkeypatch.setattr(secret_file.os, "stat", lambda path: changed(stat(path)))


@pytest.mark.parametrize(
    ("user", "good", "bad"),
    [
        (1001, (0o600, 0o400), (0o640, 0o440, 0o604, 0o644, 0o660, 0o602)),
        (0, (0o600, 0o400, 0o640, 0o440), (0o644, 0o660, 0o604)),
    ],
)
def test_modes_of_secrets(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    user: int,
    good: tuple[int, ...],
    bad: tuple[int, ...],
) -> None:
    """Of root's the group may read it: so systemd, Kubernetes and ``ssl-cert`` hand secrets over."""
    path = tmp_path / "secret"
    path.write_bytes(b"secret")
    owned_by(user, monkeypatch)
    for mode in good:
        path.chmod(mode)
        assert read_secret(str(path), "key", 10) == b"secret"
        require_secret(str(path), "key")
    for mode in bad:
        path.chmod(mode)
        for look in (lambda: read_secret(str(path), "key", 10), lambda: require_secret(str(path), "key")):
            with pytest.raises(UsageError, match=rf"^key: mode {mode:04o} .*chmod 600"):
                look()


def test_a_secret_has_a_bound_and_may_come_by_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"x" * 11)
    path.chmod(0o600)
    with pytest.raises(UsageError, match="more than 10 bytes"):
        read_secret(str(path), "key", 10)
    with pytest.raises(UsageError, match="No such file"):
        require_secret(str(tmp_path / "none"), "key")
    os.mkfifo(tmp_path / "pipe", 0o644)
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(b"secret",))
    writer.start()
    assert read_secret(str(tmp_path / "pipe"), "key", 10) == b"secret"
    writer.join()


def wide(path: str, folder: Path) -> str:
    copy = folder / Path(path).name
    copy.write_bytes(Path(path).read_bytes())
    copy.chmod(0o644)
    return str(copy)


def test_a_private_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    key = wide(KEY, tmp_path)
    with pytest.raises(UsageError, match=r"tlsKeyStore=.*mode 0644"):
        client_context(ClientTlsSettings(trust_path=CERTIFICATE, certificate_path=CERTIFICATE, key_path=key))
    with pytest.raises(UsageError, match=r"tlsKeyStore=.*mode 0644"):
        EmbeddedBookie(tmp_path / "bookie", overrides={**BOOKIE_TLS, "tlsKeyStore": key}).start()


def test_a_keys_password_that_others_can_read_is_refused(tmp_path: Path) -> None:
    settings = ClientTlsSettings(
        trust_path=CERTIFICATE,
        certificate_path=CERTIFICATE,
        key_path=str(PEMS / "locked.pem"),
        key_password_path=wide(str(PEMS / "password"), tmp_path),
    )
    with pytest.raises(UsageError, match=r"tlsKeyStorePasswordPath=.*mode 0644"):
        client_context(settings)


def test_a_ledgers_password_that_others_can_read_is_refused(run_cli: Run, tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("secret\n")
    path.chmod(0o644)
    demo = Path(__file__).parents[2] / "data/demo/bookie1"
    words = ("entrylog", "verify", demo, "--password-file", path)
    refused = run_cli(*words)
    assert refused.exit_code == 2
    assert "(--password-file)" in refused.stderr
    assert "mode 0644" in refused.stderr
    path.chmod(0o600)
    assert run_cli(*words).exit_code in (0, 3)
