"""BookKeeper's data in Spark: the data source ``bookkeeper``, and sessions that have all it needs."""

from bkctl.spark.local_session import register, session

__all__ = ["register", "session"]
