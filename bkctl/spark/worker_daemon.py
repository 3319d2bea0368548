"""Spark's daemon of Python workers, which acknowledge at once what they are sent.

Spark starts it by name (setting ``spark.python.daemon.module``) in place of ``pyspark.daemon``. Java sends a
task in two pieces and holds the second back until the first is acknowledged (Nagle's algorithm), which Linux
puts off by 40 ms: otherwise every task takes at least that long. (Sockets of the file system, which Spark can
use instead, do not wait, but every worker that is taken away, after a minute without work, then leaves a
traceback on standard error.)
"""

from __future__ import annotations

import socket

from pyspark import daemon

_work = daemon.worker


def prompt_worker(sock: socket.socket, authenticated: bool) -> int:
    """Do what ``pyspark.daemon.worker`` does, which waits for one task on a connection and does it."""
    if sock.family in (socket.AF_INET, socket.AF_INET6) and hasattr(socket, "TCP_QUICKACK"):
        # Linux goes back to delaying after a while: it is asked again for each task.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    return _work(sock, authenticated)


if __name__ == "__main__":
    daemon.worker = prompt_worker
    daemon.manager()
