"""Protocol v3: protobuf messages, through the official runtime.

====================== === ====================================================
part of ``Request``    no. what
====================== === ====================================================
header                 1   ``BKPacketHeader``: version 3, operation, txnId, priority
readRequest            100 ledgerId, entryId, masterKey?, previousLAC?, timeOut?, flag?
addRequest             101 ledgerId, entryId, masterKey, body, writeFlags?, flag?
authRequest            102 authPluginName, payload
writeLacRequest        103 ledgerId, lac, masterKey, body
readLacRequest         104 ledgerId
getBookieInfoRequest   105 requested? (1 total, 2 free)
startTLSRequest        106
forceLedgerRequest     107 ledgerId
getListOfEntries...    108 ledgerId
====================== === ====================================================

``Response`` has header (1), status (2) and the answers under the same numbers; an answer repeats the status
(1) in front of ledgerId (2) and what is its own. The ``.proto`` file has all fields. int64 is a plain varint,
so -1 takes ten bytes. Only ``header.operation`` counts: a request without its part is one with zeros.

A frame is not v3 when it does not parse or a required field is missing. An unknown number of a required enum
(version, operation, status) counts as missing, one of an optional enum (flag) is ignored.

Encoders make whole frames, length word included; decoders take a frame's payload.

Source: ``BookkeeperProtocol.proto``, ``org.apache.bookkeeper.proto.BookieRequestProcessor`` and the
``*ProcessorV3`` classes.
"""

from __future__ import annotations

from bkctl.protocol.v3_requests import decode_request, encode_request
from bkctl.protocol.v3_responses import decode_response, encode_response

__all__ = ["decode_request", "decode_response", "encode_request", "encode_response"]
