from __future__ import annotations

import re
from pathlib import Path

import pytest

from bkctl.client.configuration import SASL_PASSWORD, SASL_USER, client_settings
from bkctl.client.placement_configuration import policy_choice
from bkctl.config import loader
from bkctl.config.keys import Area, Declare, Kind, State
from bkctl.config.properties import Properties
from bkctl.config.server_keys import SERVER_KEYS
from bkctl.config.values import GivenValues, gather
from bkctl.errors import UsageError
from bkctl.metadata.uri import open_metadata_store
from bkctl.replication.configuration import auditor_settings, worker_settings
from tests.support.tls_files import TLS_FACTORY

SASL = {"clientAuthProviderFactoryClass": "org.apache.bookkeeper.sasl.SASLClientProviderFactory"}

INT = Declare(Area.JOURNAL).honoured("size", Kind.INT, 1, "Doc.", unit="MiB", lower=1, upper=2048)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (Kind.INT, "010", 10),
        (Kind.INT, "0x10", 16),
        (Kind.INT, "0b11", 3),
        (Kind.INT, "+5", 5),
        (Kind.INT, "-1", -1),
        (Kind.LONG, "12345678901", 12345678901),
        (Kind.BOOL, "Yes", True),
        (Kind.BOOL, "on", True),
        (Kind.BOOL, "t", True),
        (Kind.BOOL, "1", True),
        (Kind.BOOL, "tRuE", True),
        (Kind.BOOL, "0", False),
        (Kind.BOOL, "n", False),
        (Kind.FLOAT, "1e3", 1000.0),
        (Kind.FLOAT, "1.5", 1.5),
        (Kind.FLOAT, "1f", 1.0),
        (Kind.STRING, "", None),
        (Kind.INT, "", None),
        (Kind.BOOL, "", None),
        (Kind.FLOAT, "", None),
    ],
)
def test_values_are_read_as_java_does(kind: Kind, text: str, expected: object) -> None:
    key = Declare(Area.JOURNAL).honoured("k", kind, None, "Doc.")
    value = key.parse((text,), "f:1")
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Kind.INT, "1_000"),
        (Kind.INT, "12345678901"),
        (Kind.INT, "1.5"),
        (Kind.INT, "1L"),
        (Kind.INT, "9" * 5000),
        (Kind.BOOL, "ture"),
        (Kind.BOOL, "2"),
        (Kind.FLOAT, "NaN"),
        (Kind.FLOAT, "1e999"),
        (Kind.FLOAT, "x"),
    ],
)
def test_bad_values_are_refused(kind: Kind, text: str) -> None:
    key = Declare(Area.JOURNAL).honoured("k", kind, None, "Doc.")
    with pytest.raises(UsageError, match=r"^f:7: k: expected "):
        key.parse((text,), "f:7")


def test_a_message_says_place_key_bounds_unit_and_what_was_found() -> None:
    with pytest.raises(UsageError) as caught:
        INT.parse(("4096",), "bk_server.conf:12")
    assert str(caught.value) == "bk_server.conf:12: size: expected an int from 1 to 2048 (MiB), found '4096'"


def test_a_secret_is_never_shown() -> None:
    key = SERVER_KEYS["httpServerKeyStorePassword"]
    assert key.secret
    assert SERVER_KEYS["passwd"].secret


def test_every_declaration_is_complete() -> None:
    for key in SERVER_KEYS.values():
        if key.state in (State.HONOURED, State.PLANNED, State.REFUSED):
            assert key.doc.endswith("."), key.name
        if key.state is not State.HONOURED:
            assert key.reason, key.name
        if key.use_instead:
            assert key.use_instead in SERVER_KEYS, key.name
        if key.default is not None and not key.choices:
            assert key.parse(tuple(key.text_of(key.default).split(",")), "default") == key.default, key.name


def test_every_honoured_key_becomes_a_setting_and_no_other_does() -> None:
    """A key that is declared as honoured and read by nothing would be a lie."""
    defaults = {name: (text,) for name, text in {"metadataServiceUri": "zk://h:1/l"}.items()}
    values = GivenValues(gather(Properties(), defaults, {}, {}), {})
    loader.build(values, None, loopback_only=False, notices=[])
    other = GivenValues(gather(Properties(), {"zkServers": ("h:1",)}, {}, {}), {})
    loader.build(other, None, loopback_only=False, notices=[])
    auditor_settings(values)
    worker_settings(values)
    # The client of autorecovery and of the commands, with TLS and SASL.
    client = GivenValues(gather(Properties(), {}, {}, {"tlsProviderFactoryClass": TLS_FACTORY, **SASL}), {})
    client_settings(client, {SASL_USER: "u", SASL_PASSWORD: "p"})
    stores = {"clientTrustStore": "t.pem", "clientTrustStoreType": "PEM"}
    stores |= {"clientKeyStore": "k.pem", "clientKeyStoreType": "PEM", "tlsCertificatePath": "c.pem"}
    secured = gather(Properties(), {}, {}, {"tlsProviderFactoryClass": TLS_FACTORY, **stores})
    files = GivenValues(secured, {})
    client_settings(files, {})
    stores = {"tlsTrustStore": "t.pem", "tlsTrustStoreType": "PEM", "tlsKeyStore": "k.pem"}
    stores |= {"tlsKeyStoreType": "PEM", "tlsCertificatePath": "c.pem"}
    secured = gather(Properties(), {}, {}, {"tlsProviderFactoryClass": TLS_FACTORY, **stores})
    bookies_files = GivenValues(secured, {})
    tls = client_settings(bookies_files, {}).net.tls
    assert tls is not None
    assert (tls.trust_path, tls.key_path, tls.certificate_path) == ("t.pem", "k.pem", "c.pem")
    values.asked |= client.asked | files.asked | bookies_files.asked
    for policy in ("Rackaware", "RegionAware", "Zoneaware"):
        one = {"ensemblePlacementPolicy": (f"org.apache.bookkeeper.client.{policy}EnsemblePlacementPolicy",)}
        placement = GivenValues(gather(Properties(), one, {}, {}), {})
        with open_metadata_store("memory://placement-keys") as store:
            policy_choice(placement, store)
        values.asked |= placement.asked
    asked = values.asked | other.asked
    zero_port = {"allowEphemeralPorts"}  # asked for with bookiePort=0 only
    checked = {"fileInfoFormatVersionToWrite"}  # a rule between two keys
    honoured = {key.name for key in SERVER_KEYS.values() if key.state is State.HONOURED}
    assert honoured - asked - zero_port - checked == set()
    assert asked - honoured == set()


def test_every_key_of_the_release_is_known(release_conf: Path) -> None:
    text = release_conf.read_text()
    named = set(re.findall(r"^[# ]*([A-Za-z][A-Za-z0-9_.]+) ?=", text, re.MULTILINE))
    assert len(named) > 200
    assert named - SERVER_KEYS.keys() == set()
