"""A new bookie's directories and cookies, and how they are emptied again."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from bkctl.admin.http_json import base
from bkctl.codec.bookie_service_info import BookieServiceInfo, Endpoint, encode_bookie_service_info
from bkctl.codec.cookie import decode_cookie
from bkctl.config.bookie import BookieConfig
from bkctl.config.loader import load
from bkctl.errors import ConnectionFailedError, RefusedError
from bkctl.metadata.api import RegistrationMode
from bkctl.metadata.uri import open_metadata_store
from bkctl.server.life.embedded import EmbeddedBookie
from bkctl.server.life.new_bookie import (
    format_directories,
    initialise,
    open_bookie_metadata,
    port_of_before,
    registered_http_url,
    to_be_formatted,
)
from bkctl.server.life.own_directories import DirectoryLocks


def config(place: Path, **keys: str) -> BookieConfig:
    return load(
        None, {"bookiePort": "4181", "httpServerPort": "0", **keys}, {}, working_directory=str(place)
    )[0]


def cookies(place: Path) -> list[str]:
    with open_metadata_store(f"embedded://{place}/bkctl-data/metadata.db") as metadata:
        return metadata.cookies.cookie_bookies()


def test_a_new_bookie_has_the_same_cookie_everywhere(tmp_path: Path) -> None:
    made = initialise(config(tmp_path))
    assert made.bookie == "127.0.0.1:4181"
    assert cookies(tmp_path) == ["127.0.0.1:4181"]
    found = [decode_cookie(Path(place, "current/VERSION").read_bytes()) for place in made.directories]
    assert len(found) == 2
    assert found[0] == found[1]
    assert found[0].instance_id == made.instance_id
    with pytest.raises(RefusedError, match="initialised already"):
        initialise(config(tmp_path))


def test_a_new_bookie_needs_a_port_for_its_id(tmp_path: Path) -> None:
    anything = {"bookiePort": "0", "allowEphemeralPorts": "true"}
    with pytest.raises(RefusedError, match="bookiePort=0"):
        initialise(config(tmp_path, **anything))
    assert initialise(config(tmp_path, bookieId="b", **anything)).bookie == "b"


def test_the_port_of_before(tmp_path: Path) -> None:
    assert port_of_before(config(tmp_path)) == 0
    initialise(config(tmp_path))
    assert port_of_before(config(tmp_path)) == 4181
    assert port_of_before(config(tmp_path, bookieId="b")) == 0


def test_formatting_empties_and_keeps_the_cookie_of_the_cluster(tmp_path: Path) -> None:
    assert to_be_formatted(config(tmp_path)) == []
    initialise(config(tmp_path))
    (tmp_path / "bkctl-data/ledgers/current/locations").mkdir()
    (tmp_path / "bkctl-data/ledgers/current/locations/1.sst").write_bytes(bytes(1000))
    (tmp_path / "outside").write_text("stays")
    (tmp_path / "bkctl-data/journal/current/link").symlink_to(tmp_path / "outside")
    plan = {Path(found.directory).name: found for found in to_be_formatted(config(tmp_path))}
    assert (plan["ledgers"].entries, plan["journal"].entries) == (2, 2)
    assert plan["ledgers"].bytes > 1000
    format_directories(config(tmp_path), delete_cookie=False)
    assert [found.entries for found in to_be_formatted(config(tmp_path))] == [0, 0]
    assert (tmp_path / "outside").read_text() == "stays"
    # A bookie that lost its data must not pass for one that has it.
    assert cookies(tmp_path) == ["127.0.0.1:4181"]
    with pytest.raises(RefusedError, match="a disk is not mounted, or was replaced or emptied"):
        initialise(config(tmp_path))
    format_directories(config(tmp_path), delete_cookie=True)
    assert cookies(tmp_path) == []
    initialise(config(tmp_path))


def test_the_cookie_goes_also_when_the_directories_are_gone(tmp_path: Path) -> None:
    initialise(config(tmp_path))
    for kind in ("journal", "ledgers"):
        (tmp_path / "bkctl-data" / kind).rename(tmp_path / kind)
    assert format_directories(config(tmp_path), delete_cookie=True) == []
    assert cookies(tmp_path) == []


def test_the_cookie_of_a_bookie_with_a_chosen_port_is_found(tmp_path: Path) -> None:
    with EmbeddedBookie(tmp_path) as bookie:
        settings = bookie.config
    format_directories(settings, delete_cookie=True)
    with open_metadata_store(settings.metadata.uri) as metadata:
        assert metadata.cookies.cookie_bookies() == []


def test_nothing_is_removed_while_a_process_uses_it(tmp_path: Path) -> None:
    with EmbeddedBookie(tmp_path) as bookie, pytest.raises(RefusedError, match="in use by"):
        format_directories(bookie.config, delete_cookie=True)
    initialise(config(tmp_path))
    with DirectoryLocks([str(tmp_path / "bkctl-data/journal")]), pytest.raises(RefusedError, match="in use"):
        format_directories(config(tmp_path), delete_cookie=False)
    assert all(found.entries for found in to_be_formatted(config(tmp_path)))


def test_the_cookie_of_a_registered_bookie_stays(tmp_path: Path) -> None:
    initialise(config(tmp_path))
    with open_metadata_store(f"embedded://{tmp_path}/bkctl-data/metadata.db") as elsewhere:
        elsewhere.registration.register("127.0.0.1:4181", RegistrationMode.WRITABLE, b"")
        with pytest.raises(RefusedError, match="is registered: it runs"):
            format_directories(config(tmp_path), delete_cookie=True)
    assert cookies(tmp_path) == ["127.0.0.1:4181"]
    assert all(found.entries for found in to_be_formatted(config(tmp_path)))


def test_whose_cookie_is_asked_when_the_directories_are_anothers(tmp_path: Path) -> None:
    initialise(config(tmp_path))
    with pytest.raises(RefusedError, match=r"those of bookie 127\.0\.0\.1:4181"):
        format_directories(config(tmp_path, bookiePort="4182"), delete_cookie=True)
    assert cookies(tmp_path) == ["127.0.0.1:4181"]
    assert all(found.entries for found in to_be_formatted(config(tmp_path)))


def test_bookies_that_start_at_the_same_moment_share_one_new_store(tmp_path: Path) -> None:
    """All of them find no cluster; whoever comes second finds the first one's."""
    settings = config(tmp_path)
    together = threading.Barrier(4)
    ids: list[str | None] = []

    def begin() -> None:
        together.wait(20)
        with open_bookie_metadata(settings) as metadata:
            ids.append(metadata.layout.instance_id())

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(ids) == 4
    assert len(set(ids)) == 1


def test_the_admin_of_the_bookie_that_runs_with_a_configuration(tmp_path: Path) -> None:
    with EmbeddedBookie(tmp_path) as bookie:
        assert registered_http_url(bookie.config) == f"http://127.0.0.1:{bookie.http_port}"
    with pytest.raises(ConnectionFailedError, match="no bookie is registered"):
        registered_http_url(bookie.config)
    with (
        EmbeddedBookie(tmp_path / "2", overrides={"httpServerEnabled": "false"}) as silent,
        pytest.raises(ConnectionFailedError, match="without an HTTP admin"),
    ):
        registered_http_url(silent.config)


def test_the_admin_at_an_address_of_ip_version_6(tmp_path: Path) -> None:
    settings = config(tmp_path)
    initialise(settings)
    info = BookieServiceInfo((Endpoint("httpserver", 8080, "::1", "http"),))
    with open_metadata_store(f"embedded://{tmp_path}/bkctl-data/metadata.db") as store:
        store.registration.register(
            "127.0.0.1:4181", RegistrationMode.WRITABLE, encode_bookie_service_info(info)
        )
        assert base(registered_http_url(settings)) == "http://[::1]:8080"
