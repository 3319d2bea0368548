"""Bytes on disk <-> values, without I/O. One module per format; each opens with its byte layout."""
