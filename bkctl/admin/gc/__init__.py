"""Garbage in the entry logs of a stopped bookie: explained, planned, removed.

An entry counts as live when its ledger does and the location index names exactly this record of it; a
compaction has to copy that much. A bookie, ours and Java's, counts every record of a live ledger, the copies
that a replay or a compaction has left behind included; where the two numbers differ both are reported.
"""
