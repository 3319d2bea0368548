"""The doctor on the directories of a first start that was cut off while it wrote a cookie."""

from __future__ import annotations

from pathlib import Path

from bkctl.admin.doctor.checks.configuration import read_configuration
from bkctl.admin.doctor.checks.cookies import check_cookies
from bkctl.admin.doctor.doctor import this_system
from bkctl.admin.doctor.examination import ClusterFacts, Examination
from bkctl.admin.doctor.subject import configured_subject
from bkctl.directories.bookie_directories import examine
from bkctl.directories.cookie_rules import cookie_of, decide
from bkctl.vfs import PosixFileSystem

BOOKIE = "bookie:3181"
FILES = PosixFileSystem()


def test_half_a_cookie_is_told_as_little_as_it_keeps_a_bookie_from_starting(tmp_path: Path) -> None:
    folder = tmp_path / "l" / "current"
    folder.mkdir(parents=True)
    (folder / "VERSION.0123abcd.tmp").write_bytes(b"5\nbook")
    conf = tmp_path / "bk_server.conf"
    keys = (
        f"journalDirectories={tmp_path}/j",
        f"ledgerDirectories={tmp_path}/l",
        "metadataServiceUri=zk://host/l",
    )
    conf.write_text("\n".join(keys))
    config = read_configuration(str(conf), {}, {}, None, ()).config
    assert config is not None
    wanted = cookie_of(BOOKIE, config.directories, None)
    decision = decide(wanted, examine(FILES, config.directories), (), allow_expansion=False)
    assert decision.is_new_bookie
    cluster = ClusterFacts("zk://host/ledgers", BOOKIE)
    subject = configured_subject(FILES, config.directories)
    exam = Examination(FILES, this_system(), subject, config, cluster=cluster)
    assert list(check_cookies(exam)) == []
