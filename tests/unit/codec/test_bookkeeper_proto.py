from bkctl.codec.proto.bookkeeper_pb2 import BookieServiceInfoFormat, LedgerData

SERVICE_INFO = bytes.fromhex(
    "32200a0a687474707365727665721091121a093132372e302e302e3122046874747032220a06626f6f6b69651087121a09"
    "3132372e302e302e31220a626f6f6b69652d727063"
)
LEDGER_ROW = bytes.fromhex(
    "080110011a14e793cbc379107648537183605cd361d3bb789a392214000000000000000500000000000000019aea0d92"
)


def test_service_info_both_ways() -> None:
    info = BookieServiceInfoFormat.FromString(SERVICE_INFO)
    assert [(e.id, e.port, e.protocol) for e in info.endpoints] == [
        ("httpserver", 2321, "http"),
        ("bookie", 2311, "bookie-rpc"),
    ]
    assert info.SerializeToString() == SERVICE_INFO


def test_row_of_the_ledgers_database_both_ways() -> None:
    row = LedgerData.FromString(LEDGER_ROW)
    assert (row.exists, row.fenced, len(row.masterKey), len(row.explicitLac)) == (True, True, 20, 20)
    assert not row.HasField("limbo")
    assert row.SerializeToString() == LEDGER_ROW
