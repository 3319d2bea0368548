"""The digest book of a command: from ledger metadata, a password, a forced type."""

from __future__ import annotations

from bkctl.codec.digest import Digester
from bkctl.scan.digest_book import DigestBook
from bkctl.types import DigestType
from bkctl.vfs import FileSystem


def digest_book(
    filesystem: FileSystem,
    *,
    mode: str = "auto",
    metadata_file: str | None = None,
    password: bytes | None = None,
) -> DigestBook:
    """A book for ``--digest MODE`` (``auto``, ``off`` or a type), ``--ledger-metadata`` and a password.

    A ledger's password in the metadata wins over ``password``. Raises what reading the dump raises.
    """
    known = {} if metadata_file is None else _known(filesystem, metadata_file, password)
    forced = None
    if mode not in ("auto", "off"):
        forced = _digester(DigestType(mode), password)
    return DigestBook(known, forced=forced, password=password, enabled=mode != "off")


def _known(filesystem: FileSystem, metadata_file: str, password: bytes | None) -> dict[int, Digester]:
    from bkctl.scan.metadata_dump import load_metadata_dump  # protobuf and all; only when there is a dump

    known = {}
    for ledger, metadata in load_metadata_dump(filesystem, metadata_file).ledgers.items():
        if metadata.digest_type is not None:
            secret = metadata.password if metadata.password is not None else password
            known[ledger] = _digester(metadata.digest_type, secret)
    return known


def _digester(digest_type: DigestType, password: bytes | None) -> Digester:
    """Without a password a MAC digester has no key and can check nothing, but its length is known."""
    if digest_type is DigestType.MAC and password is None:
        return Digester(digest_type)
    return Digester.of(digest_type, password or b"")
