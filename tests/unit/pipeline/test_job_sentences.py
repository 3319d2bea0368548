"""The sentence with which a job's report begins."""

from __future__ import annotations

import pytest

from bkctl.pipeline.job import Job
from bkctl.pipeline.jobs.catalogue import JOBS
from bkctl.pipeline.jobs.index_rebuild import REBUILD
from bkctl.pipeline.sentences import sentence

ALL = [*JOBS.values(), REBUILD]


def said(name: str, **counts: float) -> str:
    (job,) = (job for job in ALL if job.name == name)
    names = {column.name: 0 for column in job.result("summary").columns}
    assert counts.keys() <= names.keys()
    return job.sentence(names | counts)


@pytest.mark.parametrize("job", ALL, ids=lambda job: job.name)
def test_every_job_has_one_for_any_counts(job: Job) -> None:
    for value in (0, 1, 2048):
        text = job.sentence(dict.fromkeys((column.name for column in job.result("summary").columns), value))
        assert text[0].isdigit() or text[0].isupper()
        assert text.endswith(".")
        assert not any(part in text for part in ("_", ";;", "; ."))


@pytest.mark.parametrize(
    ("job", "counts", "text"),
    [
        (
            "inventory",
            {"logs": 1, "bookies": 1, "log_bytes": 2048, "entries": 1, "ledgers": 2, "damaged_logs": 1},
            "1 entry log of 1 bookie, 2.0 KiB, with 1 entry of 2 ledgers; "
            "of 1 log the header or the ledgers map cannot be read.",
        ),
        (
            "garbage",
            {"logs": 3, "bytes": 4096, "dead_bytes": 1024, "removable_bytes": 512, "compactable_bytes": 512},
            "1.0 KiB of 4.0 KiB in 3 entry logs are of deleted ledgers; 512 B go with logs that have no live "
            "ledger; compaction gives back 512 B.",
        ),
        ("garbage", {"logs": 1, "bytes": 5, "unknown_bytes": 5}, "Nothing of 5 B in 1 entry log is garbage; "
         "whether 5 B are live is not known."),
        (
            "index-audit",
            {"locations": 1000, "dangling": 1, "missing": 2, "dirs_without_index": 1},
            "1 location without a record of the entry, 2 entries without a location; "
            "1 directory had no index to look at.",
        ),
        (
            "index-audit",
            {"locations": 1000, "lost_ledgers": 1},
            "The index has lost 1 ledger of the metadata.",
        ),
        (
            "index-audit",
            {"locations": 1000, "to_replay": 1},
            "No entry lacks its location, and all of 1,000 are right; "
            "1 entry will be indexed by the next start.",
        ),
        ("replica-compare", {"records": 5, "entries": 5}, "No entry is on more than one of these bookies."),
        (
            "replica-compare",
            {"entries_compared": 1500, "header_differs": 2},
            "All copies of 1,500 entries have the same payload; 2 entries differ in the header alone.",
        ),
        (
            "replica-compare",
            {"entries_compared": 1500, "payload_differs": 3, "ledgers_divergent": 1, "uncompared": 1},
            "3 of 1,500 entries with several copies differ, in 1 ledger; "
            "the digest of 1 record is not known.",
        ),
        (
            "replica-compare",
            {"blocks": 7, "blocks_undecided": 2},
            "No payload differs; 2 of 7 blocks need a look at each entry.",
        ),
        ("orphans", {"ledgers": 6}, "Every one of 6 ledgers on disk is in the metadata."),
        (
            "orphans",
            {"ledgers": 6, "orphan_ledgers": 2, "orphan_bytes": 2048, "undecided_ledgers": 1},
            "2 of 6 ledgers on disk, 2.0 KiB, are not in the metadata; "
            "1 ledger may be younger than the metadata.",
        ),
        (
            "journal-forensics",
            {"records": 9, "lost": 1, "unindexed": 2},
            "Of 1 entry a journal in front of the last mark has the only copy; "
            "2 entries in a log have no location.",
        ),
        (
            "journal-forensics",
            {"records": 9, "undecided": 4},
            "None of 9 records that was judged is out of reach; "
            "4 records could not be judged by the directories that were given.",
        ),
        (
            "stats",
            {"ledgers": 9, "bytes": 1024, "ledgers_not_closed": 1, "bookies": 3, "fullest_of_mean": 1.3},
            "9 ledgers, 1.0 KiB in those that are closed; 1 is not; "
            "the fullest of 3 bookies holds 1.30 times the mean.",
        ),
        (
            "index-rebuild",
            {"indexes": 2, "rows": 1000, "ledgers": 3, "alarming": 1, "lossy": 1, "unproved": 1},
            "2 indexes with 1,000 locations of 3 ledgers; in 1 something is not as it was, or not known; "
            "1 may lack entries that damage of a log took; "
            "of 1 it is not proved that the logs have every entry.",
        ),
    ],
)  # fmt: skip
def test_what_it_says(job: str, counts: dict[str, float], text: str) -> None:
    assert said(job, **counts) == text


def test_clauses_without_words_are_left_out() -> None:
    assert sentence(("one thing", "", "another")) == "One thing; another."
