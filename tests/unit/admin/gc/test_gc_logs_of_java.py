"""How compaction stands on a Java bookie: whatever it answers is shown."""

from __future__ import annotations

import pytest

from bkctl.admin import http_json
from bkctl.admin.gc import logs_over_http


@pytest.mark.parametrize("last_ms", [10**40, -(10**40), 10**17])
def test_a_time_beyond_the_calendar_is_shown_as_it_came(
    monkeypatch: pytest.MonkeyPatch, last_ms: int
) -> None:
    answers = {
        "/api/v1/bookie/gc_details": [{"majorCompactionCounter": 3, "lastMajorCompactionTime": last_ms}],
    }

    def call(method: str, url: str, path: str) -> object:
        assert method == "GET"
        if path.startswith("/api/v1/bkctl/"):
            raise http_json.NoSuchPathError(path)
        return answers.get(path, {})

    monkeypatch.setattr(http_json, "call", call)
    (said,) = logs_over_http.ask_java("http://127.0.0.1:8080")
    assert f"3 since the start, clock at {last_ms} ms" in said
