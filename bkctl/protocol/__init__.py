"""The wire protocol of a bookie, both versions, both sides; bytes in, values out, no sockets.

========== =============================================================================
module     holds
========== =============================================================================
framing    length-prefixed frames, ``ProtocolError`` and the reasons to close
codes      numbers of result codes and operations
messages   requests and answers as values
v2, v3     values <-> bytes of either version
refusal    what is refused before any ledger is looked at
runs       plain adds and reads as parallel lists, and their answers in one piece
scan_v2/3  the tight loops that cut runs out of a buffer
answers    the same for a client's answers
batch      ``RequestParser``: a whole receive buffer at once
events     what a server's connection hands out besides requests and runs
wire       encode by the message's own version
connection ``ServerConnection`` and ``ClientConnection``
entry_list the list of a ledger's entries
========== =============================================================================
"""
