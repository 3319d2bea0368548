"""Calls to a bookie's HTTP admin, ours or Java's, and values out of its JSON, whatever is in there."""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from urllib.parse import urlsplit

from bkctl.config.secret_file import read_secret
from bkctl.errors import ConnectionFailedError, RefusedError, UsageError
from bkctl.metadata.http_address import is_loopback

TIMEOUT_S = 10.0
#: Pages that only our bookies have.
SNAPSHOT, GC_LOGS = "/api/v1/bkctl/snapshot", "/api/v1/bkctl/gc/logs"
#: The environment's variable with the token that a bookie wants before it changes anything.
TOKEN_VARIABLE = "BKCTL_HTTP_TOKEN"  # noqa: S105 - the variable's name, not a token
#: The environment's variable with the name of a file that holds it, where the first is not set.
TOKEN_FILE_VARIABLE = "BKCTL_HTTP_TOKEN_FILE"  # noqa: S105 - the variable's name, not a token
#: Hosts, separated by commas, that get the token besides those that a command line names.
TOKEN_HOSTS_VARIABLE = "BKCTL_HTTP_TOKEN_HOSTS"  # noqa: S105 - the variable's name, not a token
_ANSWER_BYTES_MAX = 64 << 20


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Leaves a redirection to the caller as an error status: no bookie sends one."""

    def redirect_request(self, *_: object) -> None:
        """Return None: the redirection is not followed."""


#: No proxy of the environment: it would see the token, and could not reach a bookie's network anyway. No
#: redirection to another host either.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects())


class NoSuchPathError(RefusedError):
    """HTTP status 404."""


def object_of(value: object) -> dict[str, object]:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def objects_of(value: object) -> list[dict[str, object]]:
    """Return the objects in the value if it is a list, else none."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def number(value: object) -> int:
    """Return the value if it is an integer, else 0."""
    return value if isinstance(value, int) else 0


def text_of(value: object) -> str | None:
    """Return the value if it is a text that is not empty."""
    return value if isinstance(value, str) and value else None


def truth(value: object) -> bool:
    """Return whether a value is true; Java also writes the word."""
    return value is True or (isinstance(value, str) and value.lower() == "true")


def base(url: str) -> str:
    """Make the address that paths are appended to. Raises UsageError for what is no HTTP address."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that are not closed, a port that is no number
        good = False
    if not good:
        raise UsageError(f"--url {url}: expected http://host:port")
    return url.rstrip("/")


def require_named_host(url: str) -> None:
    """Refuse to send the token to an address that nobody named: one that stands in a cluster's metadata.

    A user who may write a registration could get the token otherwise. The loopback is this machine. Raises
    RefusedError when there is a token and the host of ``url`` is not in ``BKCTL_HTTP_TOKEN_HOSTS``.
    """
    host = urlsplit(url).hostname or ""
    named = {name.strip().strip("[]").lower() for name in os.environ.get(TOKEN_HOSTS_VARIABLE, "").split(",")}
    if not _token() or is_loopback(host) or host in named:
        return
    raise RefusedError(
        f"{url}: the address is from the bookie's registration, and the token in {TOKEN_VARIABLE} is sent "
        f"only to hosts that you name: give --url {url}, or {TOKEN_HOSTS_VARIABLE}={host}"
    )


def _token() -> str:
    """Return the token of the environment, out of its variable or out of the file that one names."""
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    path = os.environ.get(TOKEN_FILE_VARIABLE, "")
    if token or not path:
        return token
    return read_secret(path, f"{path} ({TOKEN_FILE_VARIABLE})", 1 << 16).decode("utf-8", "replace").strip()


def call(
    method: str,
    url: str,
    path: str,
    body: dict[str, bool] | None = None,
    *,
    answer_bytes_max: int = _ANSWER_BYTES_MAX,
    timeout_s: float = TIMEOUT_S,
) -> object:
    """Send a request and return the JSON of the answer, or its text.

    A request that may change something carries the token of the environment, if there is one. Raises
    ConnectionFailedError, RefusedError for an error status, UsageError for a token that cannot be sent.
    """
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data=data, method=method)  # noqa: S310 - checked by base
    token = _token() if method != "GET" else ""
    if token and method != "GET":
        if not (token.isascii() and token.isprintable()):
            raise UsageError(f"{TOKEN_VARIABLE}: expected one line of ASCII characters")
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with _OPENER.open(request, timeout=timeout_s) as answer:
            content = answer.read(answer_bytes_max)
    except urllib.error.HTTPError as error:
        with error:
            text = error.read(1000).decode("utf-8", "replace").strip()
        kind = NoSuchPathError if error.code == 404 else RefusedError
        raise kind(f"{method} {url}{path}: HTTP status {error.code}: {text}") from error
    except (OSError, http.client.HTTPException) as error:
        why = error.reason if isinstance(error, urllib.error.URLError) else error
        why = why.strerror or why if isinstance(why, OSError) else why
        raise ConnectionFailedError(f"{url}: no answer from a bookie's HTTP admin: {why}") from error
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return content.decode("utf-8", "replace")
