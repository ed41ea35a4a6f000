"""Facts of machines in which runs differ."""

from __future__ import annotations

from rater.analysis.compare.conditions import setting_label
from rater.analysis.compare.hardware import HardwareDifference, hardware_differences


def test_a_memory_slot_is_called_by_its_own_name() -> None:
    assert setting_label("dimm.P0 CHANNEL H/DIMM 0") == "memory slot P0 CHANNEL H/DIMM 0"
    assert setting_label("thp.enabled") == "setting thp.enabled"


def test_runs_are_told_apart_by_the_facts_that_both_know() -> None:
    differences = hardware_differences(
        {
            7: {"dimm.P0-H": "empty", "firmware.version": "1", "thp.enabled": "never"},
            8: {"dimm.P0-H": "64 GB DDR5", "firmware.version": "1", "thp.enabled": "always"},
            9: {"firmware.version": "1"},  # made by a user, who cannot read the slots
        }
    )
    assert differences == (
        HardwareDifference("memory slot P0-H", (("empty", (7,)), ("64 GB DDR5", (8,)))),
    )
