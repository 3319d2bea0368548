"""The places that a plan is about: their absolute paths, and whose they are."""

from __future__ import annotations

import dataclasses
import os
from posixpath import abspath, isabs
from typing import TYPE_CHECKING

from bkctl.commands.frame.bookie_options import ConfigurationOptions, bookie_config
from bkctl.commands.frame.metadata_options import DumpOrConfigurationOptions, is_dump
from bkctl.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bkctl.admin.repairs.repair_plan import Plan
    from bkctl.config.values import Notice


def absolute(configuration: DumpOrConfigurationOptions) -> DumpOrConfigurationOptions:
    """Return the options with absolute paths: a plan may be run from anywhere."""
    conf, metadata = configuration.conf, configuration.metadata_uri
    if metadata is not None and is_dump(metadata) and os.path.lexists(metadata):
        metadata = abspath(metadata)
    conf = None if conf is None else abspath(conf)
    return dataclasses.replace(configuration, conf=conf, metadata_uri=metadata)


def bound(plan: Plan, configuration: ConfigurationOptions, paths: Sequence[str]) -> Plan:
    """Return the plan with the directories that were examined, and whose they are."""
    from bkctl.admin.doctor.subject import found_subjects
    from bkctl.admin.repairs.plan_binding import bound_directories
    from bkctl.scan.directory import current
    from bkctl.vfs import PosixFileSystem

    filesystem, homes = PosixFileSystem(), _configured(configuration)
    found = found_subjects(filesystem, paths) if paths else []
    places = [*map(current, homes), *(place.path for subject in found for place in subject.places)]
    return dataclasses.replace(
        plan,
        directories=bound_directories(filesystem, places),
        working_directory=None if all(map(isabs, homes)) else os.getcwd(),
    )


def _configured(configuration: ConfigurationOptions) -> list[str]:
    """Return the configured directories; none where the file cannot be read, which the doctor reports."""
    from bkctl.directories.bookie_directories import every_directory

    if configuration.conf is None:
        return []
    uri = configuration.metadata_uri
    uri = None if uri is None or is_dump(uri) else uri
    try:
        config = bookie_config(dataclasses.replace(configuration, metadata_uri=uri), tell=_silent)
    except (UsageError, NotFoundError):
        return []
    return every_directory(config.directories)


def _silent(notice: Notice) -> None:
    """Ignore a notice: the doctor has given it."""
