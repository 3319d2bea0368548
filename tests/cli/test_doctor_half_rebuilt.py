"""What the doctor says of a rebuild of a lost disk that was cut off."""

from __future__ import annotations

from bkctl.directories.half_rebuilt import MARKER_NAME, encode_marker
from tests.cli.test_doctor_command import Run, examined
from tests.cli.test_doctor_command import bookie as bookie
from tests.support.doctored_bookie import DoctoredBookie


def test_a_rebuild_of_a_disk_that_was_cut_off_is_no_case_for_the_cookie_alone(
    run_cli: Run, bookie: DoctoredBookie
) -> None:
    (bookie.ledgers / "VERSION").unlink()
    (bookie.ledgers / MARKER_NAME).write_bytes(encode_marker([]))
    for words, following in (
        (("--conf", bookie.conf), f"bkctl bookie rebuild --conf {bookie.conf}"),
        ((bookie.root,), None),
    ):
        _, rows, _ = examined(run_cli, *words, "--only", "cookies")
        (row,) = (row for row in rows if row["kind"] == "missing_cookie")
        assert "rebuild was interrupted" in row["found"]
        assert row["next"] == following
        assert "cookie create" not in str(row)
