"""The journal: batches go in, and are answered once they are on disk."""

from bkctl.engine.journal.batch import JournalBatch, JournalSink
from bkctl.engine.journal.journal import Journal
from bkctl.engine.journal.meters import JournalMeters

__all__ = ["Journal", "JournalBatch", "JournalMeters", "JournalSink"]
