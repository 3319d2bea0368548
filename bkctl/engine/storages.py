"""The storage that a bookie is started with, by the value of ``ledgerStorageClass``.

``bkctl.storage_kinds`` names the package of the engine that serves a class. Its module ``opening`` has a
``CHOICE``. Only the package that is chosen is imported: a bookie keeps in memory what it has imported.
"""

from __future__ import annotations

from importlib import import_module

from bkctl.engine.settings import BookieSettings
from bkctl.engine.storage_parts import StorageChoice
from bkctl.storage_kinds import serving_package


def storage_of(settings: BookieSettings) -> StorageChoice:
    """Return the storage that the settings choose. Raises UsageError for a class that no package serves."""
    package = serving_package(settings.storage.storage_class)
    choice = import_module(f"bkctl.engine.{package}.opening").CHOICE
    assert isinstance(choice, StorageChoice), f"bkctl.engine.{package}.opening has a storage"
    return choice
