"""Hot loops: a buffer in, columns out. Reached only through codec.

The Python twin is the only one so far. A compiled twin would take its place here and be named by ``IMPL``.
"""

from bkctl._kernels._python import (
    failing_crc32,
    failing_crc32c,
    failing_mac,
    walk_entries,
)

IMPL = "python"

__all__ = ["IMPL", "failing_crc32", "failing_crc32c", "failing_mac", "walk_entries"]
