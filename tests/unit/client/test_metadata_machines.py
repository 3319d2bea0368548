"""Metadata updates, creation and deletion of ledgers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bkctl.client.errors import AccessDeniedError, LedgerExistsError, NoSuchLedgerError, NotEnoughBookiesError
from bkctl.client.machine import (
    ChooseBookies,
    CreateMetadata,
    DeleteMetadata,
    LedgerIdIs,
    MetadataFailed,
    MetadataGone,
    MetadataIs,
    NewLedgerId,
    ReadMetadata,
    WriteMetadata,
)
from bkctl.client.ops.create import CreatedLedger, CreateMachine, NewLedger
from bkctl.client.ops.delete import DeleteMachine
from bkctl.client.ops.ledger_access import LedgerAccess
from bkctl.client.ops.metadata_update import (
    UNKNOWN_MAX,
    MetadataUpdateMachine,
    NeedBookies,
    UpdateOutcome,
    closed,
    in_recovery,
    with_segment,
)
from bkctl.codec.ledger_metadata import (
    LedgerMetadata,
    Segment,
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from bkctl.errors import BkctlError, ConnectionFailedError, NotFoundError, UsageError
from bkctl.metadata.api import AlreadyExistsError, NoClusterError, VersionConflictError
from bkctl.types import DigestType, LedgerState
from tests.support.machine_rig import LEDGER, PASSWORD, Rig, metadata


def close_at_5(stored: LedgerMetadata) -> LedgerMetadata | None:
    return None if stored.state is LedgerState.CLOSED else closed(stored, 5, 50)


def updating() -> Rig:
    return Rig(MetadataUpdateMachine(LEDGER, metadata(), 2, close_at_5)).start()


def test_an_update_writes_with_the_version_that_was_read() -> None:
    rig = updating()
    assert rig.only(WriteMetadata).version == 2
    stored = rig.stored(3)
    assert rig.value == UpdateOutcome(stored, 3, True)


def test_a_conflict_is_decided_again_on_what_is_stored() -> None:
    rig = updating()
    rig.not_stored(VersionConflictError("changed"))
    rig.read_brings(in_recovery(metadata()), 7)
    write = rig.only(WriteMetadata)
    assert (write.version, write.metadata.last_entry) == (7, 5)
    rig.not_stored(VersionConflictError("changed"))
    rig.read_brings(closed(metadata(), 4, 40), 8)
    assert rig.value == UpdateOutcome(closed(metadata(), 4, 40), 8, False)


def test_an_unknown_outcome_is_looked_after_so_many_times() -> None:
    rig = updating()
    for _ in range(UNKNOWN_MAX):
        rig.not_stored(ConnectionFailedError("no answer"))
        rig.fire()
        rig.read_brings(metadata(), 2)
    rig.not_stored(ConnectionFailedError("no answer"))
    assert isinstance(rig.error, ConnectionFailedError)


def test_a_late_write_that_lands_is_recognised() -> None:
    rig = updating()
    written = rig.only(WriteMetadata).metadata
    rig.not_stored(ConnectionFailedError("no answer"))
    rig.fire()
    rig.read_brings(metadata(), 2)
    # The first one lands now, so the second conflicts.
    rig.not_stored(VersionConflictError("changed"))
    rig.read_brings(written, 3)
    assert rig.value == UpdateOutcome(written, 3, True)


@pytest.mark.parametrize(
    ("error", "kind"),
    [(NotFoundError("gone"), NoSuchLedgerError), (NoClusterError("no root"), NoClusterError)],
)
def test_other_errors_end_it(error: BkctlError, kind: type) -> None:
    rig = updating()
    rig.not_stored(error)
    assert type(rig.error) is kind


def test_an_update_that_needs_bookies_asks_again_after_a_conflict() -> None:
    def plan(stored: LedgerMetadata) -> NeedBookies:
        last = stored.segments[-1].bookies
        return NeedBookies(
            1, frozenset(last), last, (0,), lambda found: with_segment(stored, 3, (*found, *last[1:]))
        )

    rig = Rig(MetadataUpdateMachine(LEDGER, metadata(), 2, plan)).start()
    rig.choose("d")
    rig.not_stored(VersionConflictError("changed"))
    rig.read_brings(metadata(segments=(Segment(0, ("x", "y", "z")),)), 3)
    assert rig.choose("e").exclude == {"x", "y", "z"}
    assert rig.stored(4).segments == (Segment(0, ("x", "y", "z")), Segment(3, ("e", "y", "z")))


def test_a_rewrite_keeps_the_format_and_drops_the_creation_token() -> None:
    stored = replace(
        metadata(), ack_quorum_stored=False, last_entry_stored=False, unknown_fields=b"\x98\x06\x01"
    )
    rewritten = in_recovery(stored)
    assert (rewritten.c_token, rewritten.ack_quorum_stored, rewritten.last_entry_stored) == (0, True, True)
    assert rewritten.unknown_fields == stored.unknown_fields
    assert decode_ledger_metadata(encode_ledger_metadata(rewritten)) == rewritten


def test_a_rewrite_of_format_1_stays_within_it() -> None:
    old = decode_ledger_metadata(b"BookieMetadataFormatVersion\t1\n2\n3\n0\n0\ta:1\tb:1\tc:1\n")
    again = closed(in_recovery(old), 3, 40)
    assert encode_ledger_metadata(again).endswith(b"3\tCLOSED")


def test_a_segment_never_begins_below_the_last_one() -> None:
    with pytest.raises(BkctlError):
        with_segment(
            metadata(segments=(Segment(0, ("a", "b", "c")), Segment(5, ("a", "b", "d")))), 4, ("x", "y", "z")
        )


# --- access -------------------------------------------------------------------------------------------------


def test_access_takes_the_stored_password_or_one_that_is_the_same() -> None:
    stored = metadata()
    assert LedgerAccess.of(LEDGER, stored).key == LedgerAccess.of(LEDGER, stored, PASSWORD).key
    with pytest.raises(AccessDeniedError) as refused:
        LedgerAccess.of(LEDGER, stored, b"other")
    assert refused.value.exit_code == 4
    assert "other" not in str(refused.value)
    unstored = replace(stored, password=None, digest_type=None)
    access = LedgerAccess.of(LEDGER, unstored, b"mine")
    assert access.digester.type is DigestType.CRC32


# --- create -------------------------------------------------------------------------------------------------


def creating(new: NewLedger | None = None, ledger: int | None = None) -> Rig:
    rig = Rig(CreateMachine(new or NewLedger(password=b"pw", c_token=9), ledger)).start()
    assert rig.choose("a", "b", "c").count == 3
    return rig


def failed(rig: Rig, error: BkctlError) -> None:
    rig.tell(MetadataFailed(rig.only(CreateMetadata).token, error))


def read(rig: Rig, found: LedgerMetadata) -> None:
    rig.tell(MetadataIs(rig.only(ReadMetadata).token, found, 4))


def test_a_ledger_is_created_with_an_id_of_the_store() -> None:
    rig = creating()
    rig.tell(LedgerIdIs(rig.only(NewLedgerId).token, 77))
    create = rig.only(CreateMetadata)
    assert create.ledger == 77
    made = create.metadata
    assert (made.digest_type, made.password, made.state) == (DigestType.CRC32, b"pw", LedgerState.OPEN)
    assert made.segments == (Segment(0, ("a", "b", "c")),)
    assert (made.length, made.last_entry, made.c_token, made.metadata_version) == (0, -1, 9, 3)
    rig.tell(MetadataIs(create.token, made, 0))
    assert rig.value == CreatedLedger(77, made, 0)


def test_an_id_that_is_taken_is_drawn_again_or_refused() -> None:
    rig = creating()
    rig.tell(LedgerIdIs(rig.only(NewLedgerId).token, 77))
    failed(rig, AlreadyExistsError("taken"))
    read(rig, metadata())
    assert rig.only(NewLedgerId)
    rig = creating(ledger=5)
    failed(rig, AlreadyExistsError("taken"))
    read(rig, metadata())
    assert isinstance(rig.error, LedgerExistsError)
    assert rig.error.ledger == 5


@pytest.mark.parametrize("error", [ConnectionFailedError("no answer"), AlreadyExistsError("taken")])
def test_a_creation_knows_its_own_metadata_again(error: BkctlError) -> None:
    rig = creating(ledger=5)
    made = rig.only(CreateMetadata).metadata
    failed(rig, error)
    if isinstance(error, ConnectionFailedError):
        rig.fire()
    read(rig, made)
    assert rig.value == CreatedLedger(5, made, 4)


def test_a_creation_that_did_not_happen_is_tried_again() -> None:
    rig = creating(ledger=5)
    failed(rig, ConnectionFailedError("no answer"))
    rig.fire()
    rig.tell(MetadataFailed(rig.only(ReadMetadata).token, NotFoundError("no ledger")))
    assert rig.only(CreateMetadata).ledger == 5


def test_too_few_bookies() -> None:
    rig = Rig(CreateMachine(NewLedger())).start()
    rig.choose("a", "b")
    assert isinstance(rig.error, NotEnoughBookiesError)
    assert rig.error.exit_code == 5


def test_quorums_that_do_not_go_together() -> None:
    with pytest.raises(UsageError):
        NewLedger(ensemble_size=2, write_quorum=3)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_new_metadata_can_be_stored_in_every_format(version: int) -> None:
    new = NewLedger(custom_metadata=(("k", b"v"),), password=b"x", c_token=3, metadata_version=version)
    made = new.metadata(("a:1", "b:1", "c:1"))
    assert decode_ledger_metadata(encode_ledger_metadata(made)).segments == made.segments


# --- delete -------------------------------------------------------------------------------------------------


def test_a_delete_names_its_version() -> None:
    rig = Rig(DeleteMachine(LEDGER, 4)).start()
    delete = rig.only(DeleteMetadata)
    assert (delete.ledger, delete.version) == (LEDGER, 4)
    rig.tell(MetadataGone(delete.token))
    assert rig.value is None


def test_a_delete_whose_answer_was_lost_is_tried_again() -> None:
    rig = Rig(DeleteMachine(LEDGER, 4)).start()
    rig.tell(MetadataFailed(rig.only(DeleteMetadata).token, ConnectionFailedError("no answer")))
    rig.fire()
    rig.tell(MetadataFailed(rig.only(DeleteMetadata).token, VersionConflictError("changed")))
    assert isinstance(rig.error, VersionConflictError)


def test_a_store_that_fails_ends_a_creation() -> None:
    gone = ConnectionFailedError("the store is gone")
    rig = Rig(CreateMachine(NewLedger())).start()
    rig.tell(MetadataFailed(rig.only(ChooseBookies).token, gone))
    assert rig.error is gone
    rig = creating()
    rig.tell(MetadataFailed(rig.only(NewLedgerId).token, gone))
    assert rig.error is gone
    rig = creating(ledger=5)
    failed(rig, NoClusterError("no root"))
    assert isinstance(rig.error, NoClusterError)


def test_a_creation_looks_only_so_often() -> None:
    rig = creating(ledger=5)
    failed(rig, ConnectionFailedError("no answer"))
    for _ in range(UNKNOWN_MAX - 1):
        rig.fire()
        rig.tell(MetadataFailed(rig.only(ReadMetadata).token, ConnectionFailedError("no answer")))
    rig.fire()
    rig.tell(MetadataFailed(rig.only(ReadMetadata).token, ConnectionFailedError("no answer")))
    assert isinstance(rig.error, ConnectionFailedError)


def test_an_update_that_finds_no_registration_ends() -> None:
    def plan(stored: LedgerMetadata) -> NeedBookies:
        return NeedBookies(1, frozenset(), (), (), lambda found: stored)

    rig = Rig(MetadataUpdateMachine(LEDGER, metadata(), 2, plan)).start()
    rig.tell(MetadataFailed(rig.only(ChooseBookies).token, ConnectionFailedError("the store is gone")))
    assert isinstance(rig.error, ConnectionFailedError)


def test_a_read_behind_an_unknown_outcome_may_fail_too() -> None:
    rig = updating()
    rig.not_stored(ConnectionFailedError("no answer"))
    rig.fire()
    rig.tell(MetadataFailed(rig.only(ReadMetadata).token, ConnectionFailedError("no answer")))
    rig.fire()
    rig.read_brings(metadata(), 2)
    assert rig.stored(3).last_entry == 5
