"""Where Spark finds the data source ``bookkeeper`` by name: it looks into modules called ``pyspark_*``."""

from bkctl.spark.source import BookKeeperSource as DefaultSource

__all__ = ["DefaultSource"]
