"""Contexts: names for clusters, what counts before what, and what is protected."""

from __future__ import annotations

import errno
import json
import os
import pty
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from bkctl.commands.frame.contexts import in_context, take_context
from bkctl.commands.top.app import app as top
from bkctl.errors import UsageError

Run = Any


@pytest.fixture
def clusters(run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Two clusters, and a configuration directory without contexts."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    for name in ("BKCTL_CONTEXT", "BKCTL_METADATA_URI", "BKCTL_CONFIRM"):
        monkeypatch.delenv(name, raising=False)
    uris = tuple(f"embedded://{tmp_path}/{name}.db" for name in ("one", "two"))
    for uri in uris:
        assert run_cli("cluster", "init", "--metadata", uri).exit_code == 0
    return uris


def uri_of(run_cli: Run, *words: str, env: dict[str, str] | None = None) -> str:
    """Return the cluster that a line is about."""
    done = run_cli(*words, "cluster", "info", "-o", "json", env=env)
    assert done.exit_code == 0, done.stderr
    return str(json.loads(done.stdout)["uri"])


def add(run_cli: Run, name: str, uri: str, *words: str) -> None:
    done = run_cli("context", "add", name, "--metadata", uri, *words)
    assert done.exit_code == 0, done.stderr


def test_a_context_is_added_used_shown_and_removed(
    run_cli: Run, clusters: tuple[str, str], tmp_path: Path
) -> None:
    assert (
        run_cli("context", "list", "-o", "table").stderr == "(no contexts; 'bkctl context add' makes one)\n"
    )
    add(run_cli, "one", clusters[0], "--password-file", "secret")
    add(run_cli, "two", clusters[1])
    listed = [json.loads(line) for line in run_cli("context", "list").stdout.splitlines()]
    assert [(row["name"], row["current"]) for row in listed] == [("one", True), ("two", False)]
    assert listed[0]["password_file"] == str(tmp_path / "secret"), "a path counts wherever one stands"
    path = tmp_path / "config/bkctl/contexts.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert uri_of(run_cli) == clusters[0]
    assert run_cli("context", "use", "two").exit_code == 0
    assert uri_of(run_cli) == clusters[1]
    assert json.loads(run_cli("context", "show").stdout)["name"] == "two"
    assert json.loads(run_cli("-c", "one", "context", "show").stdout)["name"] == "one"
    assert run_cli("context", "remove", "two").exit_code == 4
    assert run_cli("context", "remove", "two", "--yes").exit_code == 0
    assert run_cli("cluster", "info").exit_code == 2, "no context is in use, and there is no ./bkctl-data"
    assert uri_of(run_cli, "-c", "one") == clusters[0]


def test_the_first_context_says_that_it_is_in_use(run_cli: Run, clusters: tuple[str, str]) -> None:
    """From then on every command that names no cluster asks this one: nobody has to find that out."""
    first = run_cli("context", "add", "one", "--metadata", clusters[0], "--protected")
    assert first.stderr.startswith("bkctl: the context one is in use from now on, by every command that ")
    assert "'bkctl context use NAME' chooses another" in first.stderr
    assert json.loads(first.stdout)["current"] is True
    again = run_cli("context", "add", "one", "--metadata", clusters[0], "--yes")
    second = run_cli("context", "add", "two", "--metadata", clusters[1])
    assert (again.stderr, second.stderr) == ("", ""), "nothing changes of what is in use"
    gone = run_cli("context", "remove", "one", "--yes")
    assert gone.stderr == "bkctl: no context is in use now; 'bkctl context use NAME' chooses one\n"
    assert run_cli("context", "remove", "two", "--yes").stderr == ""
    quiet = run_cli("--quiet", "context", "add", "one", "--metadata", clusters[0])
    assert (quiet.exit_code, quiet.stderr) == (0, "")


def test_contexts_of_another_users_home_are_none(
    run_cli: Run, clusters: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever runs a command as another user, with the HOME of root, wants the command to run."""
    add(run_cli, "one", clusters[0])
    path = tmp_path / "config/bkctl/contexts.json"

    def denied(name: object, *rest: Any, **named: Any) -> Any:
        if name == str(path):
            raise PermissionError(errno.EACCES, "Permission denied", name)
        return opened(name, *rest, **named)

    opened = open
    monkeypatch.setattr("builtins.open", denied)
    done = run_cli("cluster", "info", "--metadata", clusters[1], "-o", "json")
    assert (done.exit_code, json.loads(done.stdout)["uri"]) == (0, clusters[1])
    assert done.stderr == f"bkctl: {path}: Permission denied: this command runs in no context\n"
    assert run_cli("-c", "none", "cluster", "info", "--metadata", clusters[1]).stderr == ""
    assert run_cli("version", env={"BKCTL_CONTEXT": "none"}).stderr == ""
    for line in ("-c one cluster info", "context list", "context add two --url http://x:1"):
        refused = run_cli(*line.split())
        assert (refused.exit_code, str(path) in refused.stderr) == (7, True), line
    assert run_cli("version", env={"BKCTL_CONTEXT": "one"}).exit_code == 7, "it is asked for by its name"


@pytest.mark.parametrize("home", ["/dev/null", "/no/such/home"])
def test_a_user_without_a_home_has_no_contexts(
    run_cli: Run, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", home)
    done = run_cli("version")
    assert (done.exit_code, done.stderr) == (0, "")


def test_a_cluster_that_does_not_answer_is_said_to_be_that_of_a_context(
    run_cli: Run, clusters: tuple[str, str], tmp_path: Path
) -> None:
    """Nobody has typed the address that does not answer."""
    add(run_cli, "gone", clusters[0], "--url", "http://127.0.0.1:1")
    says = "; this ran in the context gone ('-c none' runs in none)\n"
    done = run_cli("bookie", "status")
    assert (done.exit_code, done.stderr.endswith(says)) == (5, True), done.stderr
    typed = run_cli("bookie", "status", "--url", "http://127.0.0.1:1")
    assert (typed.exit_code, "context" in typed.stderr) == (5, False), typed.stderr
    variable = run_cli("bookie", "status", env={"BKCTL_URL": "http://127.0.0.1:1"})
    assert (variable.exit_code, "context" in variable.stderr) == (5, False), variable.stderr


def test_what_counts_before_what(run_cli: Run, clusters: tuple[str, str]) -> None:
    one, two = clusters
    add(run_cli, "one", one)
    add(run_cli, "two", two)
    variable = {"BKCTL_METADATA_URI": two}
    assert uri_of(run_cli, env=variable) == two, "a variable goes before the context in use"
    assert uri_of(run_cli, env={"BKCTL_CONTEXT": "two"}) == two
    assert uri_of(run_cli, env={"BKCTL_CONTEXT": "two", "BKCTL_METADATA_URI": one}) == one
    assert uri_of(run_cli, "--context", "one", env=variable) == one, "-c goes before variables"
    assert uri_of(run_cli, "--context=one", env={"BKCTL_CONTEXT": "two"}) == one
    done = run_cli("cluster", "info", "-c", "one", "--metadata", two, "-o", "json")
    assert json.loads(done.stdout)["uri"] == two, "an option goes before all"
    assert "BKCTL_METADATA_URI" not in os.environ, "nothing is left behind"


def test_each_cluster_has_a_theme_of_its_own(run_cli: Run, clusters: tuple[str, str]) -> None:
    add(run_cli, "one", clusters[0], "--top-theme", "nord")
    add(run_cli, "two", clusters[1])
    assert json.loads(run_cli("context", "show", "one").stdout)["top_theme"] == "nord"
    assert _theme_of_top("one") == "nord"
    assert _theme_of_top("two") is None


def _theme_of_top(context: str) -> str | None:
    """Return the theme that the option of top takes from the environment in a context."""
    options = {each.name: each for each in typer.main.get_command(top).params}
    variable = options["theme"].envvar
    assert isinstance(variable, str)
    with in_context(context, ("top",)):
        return os.environ.get(variable)


def test_a_name_that_is_none(run_cli: Run, clusters: tuple[str, str]) -> None:
    add(run_cli, "prod", clusters[0])
    done = run_cli("-c", "prdo", "cluster", "info")
    assert (done.exit_code, "did you mean prod?" in done.stderr) == (6, True)
    assert run_cli("cluster", "info", env={"BKCTL_CONTEXT": "nowhere"}).exit_code == 6
    assert run_cli("context", "list", env={"BKCTL_CONTEXT": "none"}).exit_code == 0, "or nobody could mend it"
    assert run_cli("context", "add", "a/b", "--metadata", "zk://a/b").exit_code == 2
    assert run_cli("context", "add", "empty").exit_code == 2
    assert run_cli("context", "add", "prod", "--url", "http://x:1").exit_code == 4, "it is there already"
    assert run_cli("cluster", "info", "-c").exit_code == 2


def test_a_file_that_is_none_is_named(run_cli: Run, clusters: tuple[str, str], tmp_path: Path) -> None:
    add(run_cli, "one", clusters[0])
    path = tmp_path / "config/bkctl/contexts.json"
    for content in ("{", "[]", '{"contexts": [1]}', '{"contexts": {"a": 1}}'):
        path.write_text(content)
        done = run_cli("cluster", "info")
        assert (done.exit_code, str(path) in done.stderr) == (1, True), content
    path.write_text('{"contexts": {"a": {"metadata": "x", "later": 1}}, "current": "gone"}')
    assert run_cli("context", "list").exit_code == 0


def test_a_protected_context_asks_for_its_name(run_cli: Run, clusters: tuple[str, str]) -> None:
    """--yes is not enough; reading asks nothing."""
    add(run_cli, "prod", clusters[0], "--protected")
    assert uri_of(run_cli) == clusters[0]
    for line in ("autorecovery disable", "ledger restore undo --yes", "maintenance begin --by me"):
        done = run_cli(*line.split())
        assert done.exit_code in (4, 6), line
        assert done.exit_code == 6 or "the context prod is protected" in done.stderr, line
    refused = run_cli("autorecovery", "disable")
    assert "error: would let no worker of the cluster begin" in refused.stderr
    assert (refused.exit_code, "BKCTL_CONFIRM=prod" in refused.stderr) == (4, True)
    assert run_cli("autorecovery", "disable", env={"BKCTL_CONFIRM": "other"}).exit_code == 4
    assert run_cli("autorecovery", "disable", env={"BKCTL_CONFIRM": "prod"}).exit_code == 0
    assert run_cli("autorecovery", "status").exit_code == 0


@pytest.mark.parametrize(("answer", "code"), [(b"prod\n", 0), (b"yes\n", 4)])
def test_the_name_is_typed_on_a_terminal(
    run_cli: Run, clusters: tuple[str, str], answer: bytes, code: int
) -> None:
    add(run_cli, "prod", clusters[0], "--protected")
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "bkctl", "autorecovery", "disable"]
    with subprocess.Popen(words, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs) as asked:
        os.close(theirs)
        try:
            seen = b""
            while b"(prod): " not in seen:
                seen += os.read(ours, 4096)
            os.write(ours, answer)
            assert asked.wait(60) == code
        finally:
            asked.kill()
            os.close(ours)


def test_a_bookie_is_not_started_by_the_context_in_use(run_cli: Run, clusters: tuple[str, str]) -> None:
    add(run_cli, "one", clusters[0])
    done = run_cli("bookie", "format", "--dry-run")
    assert "one.db" not in done.stdout + done.stderr


def test_secrets_come_from_files(run_cli: Run, clusters: tuple[str, str], tmp_path: Path) -> None:
    from bkctl.commands.frame.contexts import in_context
    from bkctl.commands.frame.options import PasswordOptions

    secret = tmp_path / "secret"
    secret.write_text("geheim\n")
    secret.chmod(0o600)
    add(run_cli, "one", clusters[0], "--password-file", str(secret))
    assert "geheim" not in (tmp_path / "config/bkctl/contexts.json").read_text()
    with in_context("one", ()):
        assert PasswordOptions().read() == b"geheim"
        assert PasswordOptions(password="other").read() == b"other"
    assert PasswordOptions().read() is None


def test_a_context_is_taken_wherever_it_stands() -> None:
    assert take_context(["-c", "a", "ledger", "list"]) == ("a", ["ledger", "list"])
    assert take_context(["ledger", "list", "--context=b", "-o", "csv"]) == (
        "b",
        ["ledger", "list", "-o", "csv"],
    )
    assert take_context(["ledger"]) == (None, ["ledger"])
    with pytest.raises(UsageError, match="needs the name"):
        take_context(["-c"])


@pytest.mark.parametrize("metadata", ["foo", "host:2181", "zk//host/ledgers", "dump.json"])
def test_a_context_of_no_store_and_no_dump_is_refused(
    run_cli: Run, clusters: tuple[str, str], metadata: str
) -> None:
    done = run_cli("context", "add", "x", "--metadata", metadata)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "expected zk://host:port/ledgers" in done.stderr
    assert run_cli("context", "list", "-o", "json").stdout.strip() in ("", "[]")
