"""The lease of a process that was killed ends with it; that of one that lives does not."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from bkctl.metadata.api import RegistrationConflictError, RegistrationMode
from bkctl.metadata.settings import MetadataSettings
from bkctl.metadata.uri import open_metadata_store

REGISTERS = """
import sys
from bkctl.metadata.api import RegistrationMode
from bkctl.metadata.settings import MetadataSettings
from bkctl.metadata.uri import open_metadata_store
store = open_metadata_store(sys.argv[1], MetadataSettings(session_timeout_ms=60_000))
store.layout.initialise_cluster()
store.registration.register("b", RegistrationMode.WRITABLE, b"")
print("registered", flush=True)
sys.stdin.read()
"""


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    uri = f"embedded://{tmp_path}/metadata.db"
    with subprocess.Popen(
        [sys.executable, "-c", REGISTERS, uri], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "registered\n"
        with open_metadata_store(uri, MetadataSettings(session_timeout_ms=300)) as store:
            with pytest.raises(RegistrationConflictError):
                store.registration.register("b", RegistrationMode.WRITABLE, b"")
            assert store.registration.bookies().writable == ("b",)
        process.kill()
        process.wait(20)
    with open_metadata_store(uri, MetadataSettings(session_timeout_ms=60_000)) as store:
        began_s = time.monotonic()
        store.registration.register("b", RegistrationMode.READ_ONLY, b"")
        assert time.monotonic() - began_s < 20
        assert store.registration.bookies().read_only == ("b",)
        assert store.registration.bookies().writable == ()
