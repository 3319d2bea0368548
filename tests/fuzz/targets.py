"""All fuzz targets by name."""

from __future__ import annotations

from tests.fuzz import codec_targets, file_targets, kernel_targets, protocol_targets, text_targets
from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {
    target.name: target
    for module in (codec_targets, file_targets, protocol_targets, text_targets, kernel_targets)
    for target in module.TARGETS
}
