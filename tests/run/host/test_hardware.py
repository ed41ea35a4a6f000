"""The firmware's table and promises: made tables with the answers worked out by hand."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from rater.run.host.hardware import hardware_facts
from rater.run.host.smbios import peak_mb_s, read_firmware_table


def structure(
    kind: int, length: int, fields: dict[int, tuple[int, int]], texts: Sequence[str]
) -> bytes:
    """Return a structure: `fields` are width and value by offset, `texts` its strings."""
    body = bytearray(length)
    body[0], body[1] = kind, length
    for offset, (width, value) in fields.items():
        body[offset : offset + width] = value.to_bytes(width, "little")
    strings = b"".join(text.encode() + b"\0" for text in texts) or b"\0"
    return bytes(body) + strings + b"\0"


BIOS = structure(
    0, 0x18, {0x04: (1, 1), 0x05: (1, 2), 0x08: (1, 3)}, ["AMI", "R23_F41", "01/02/2025"]
)
END = structure(127, 4, {}, [])


def module(
    bank: str,
    locator: str = "DIMM 0",
    *,
    gigabytes: int = 64,
    rated: int = 5600,
    configured: int = 4800,
    part_index: int = 4,
) -> bytes:
    """Return a memory device of SMBIOS 3.2; 0 gigabytes: an empty slot."""
    megabytes = gigabytes * 1024
    fields = {
        0x0C: (2, 0x7FFF if megabytes >= 0x7FFF else megabytes),
        0x10: (1, 1),
        0x11: (1, 2),
        0x12: (1, 0x22),
        0x15: (2, rated if gigabytes else 0),
        0x17: (1, 3),
        0x1A: (1, part_index),
        0x1B: (1, 2),
        0x1C: (4, megabytes),
        0x20: (2, configured if gigabytes else 0),
    }
    return structure(17, 0x54, fields, [locator, bank, "Samsung", "M321R8GA0BB0"])


def banks(count: int = 8) -> list[str]:
    return [f"P0 CHANNEL {letter}" for letter in "ABCDEFGH"[:count]]


def with_table(root: Path, *structures: bytes) -> dict[str, str]:
    folder = root / "sys/firmware/dmi/tables"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "DMI").write_bytes(b"".join(structures))
    return dict(hardware_facts(root))


def test_all_channels_of_a_full_machine_are_told_with_both_speeds(tmp_path: Path) -> None:
    facts = with_table(tmp_path, BIOS, *map(module, banks()), END)
    assert facts["firmware.vendor"] == "AMI"
    assert facts["dimm.P0 CHANNEL H/DIMM 0"] == (
        "64 GB DDR5, rated 5600 MT/s, runs at 4800 MT/s, 2 ranks"
    )
    assert facts["dimms.found"] == "8 x 64 GB DDR5 at 4800 MT/s"
    assert facts["dimms.channels"] == "8 of 8 populated"
    assert facts["dimms.parts"] == "8 x Samsung M321R8GA0BB0"
    assert facts["dimms.peak_mb_s"] == "307200"  # 8 channels x 4800 MT/s x 8 bytes
    assert "unread.memory modules" not in facts


def test_an_empty_channel_is_named_and_gives_no_bandwidth(tmp_path: Path) -> None:
    modules = [module(bank, gigabytes=0 if bank.endswith("H") else 64) for bank in banks()]
    facts = with_table(tmp_path, *modules)
    assert facts["dimm.P0 CHANNEL H/DIMM 0"] == "empty"
    assert facts["dimms.channels"] == "7 of 8 populated"
    assert facts["dimms.peak_mb_s"] == "268800"  # 7 x 4800 x 8


def test_a_channel_runs_at_the_speed_of_its_slowest_module() -> None:
    slots = read_firmware_table(
        module("P0 CHANNEL A", "DIMM 0", configured=4800)
        + module("P0 CHANNEL A", "DIMM 1", configured=4400)
        + module("P0 CHANNEL B", "DIMM 0", configured=4800)
    ).slots
    assert peak_mb_s(slots) == (4400 + 4800) * 8


@pytest.mark.parametrize(
    ("bank", "channel"),
    [
        ("P0 CHANNEL H", "P0-H"),
        ("P1-B", "P1-B"),
        ("P0_Node0_Channel3_Dimm0", "P0-NODE0-3"),
        ("NODE 1 CHANNEL 2 DIMM 0", "NODE-1-2"),
        ("BANK 3", None),  # a bank is no channel, and channels are not counted from slots
        ("Not Specified", None),
    ],
)
def test_a_channel_is_what_the_bank_locator_calls_so(bank: str, channel: str | None) -> None:
    (slot,) = read_firmware_table(module(bank)).slots
    assert slot.channel == channel


def test_banks_without_channels_have_no_peak_and_the_reason(tmp_path: Path) -> None:
    facts = with_table(tmp_path, module("BANK 0", "A1"), module("BANK 1", "A2"))
    assert "dimms.peak_mb_s" not in facts
    assert facts["dimm.BANK 1/A2"].startswith("64 GB DDR5")
    assert "bank locators name no channels" in facts["unread.memory modules"]


def test_a_wrong_number_of_a_string_costs_that_string_only(tmp_path: Path) -> None:
    facts = with_table(tmp_path, module("P0 CHANNEL A", part_index=9))
    assert facts["dimm.P0 CHANNEL A/DIMM 0"].startswith("64 GB DDR5")
    assert facts["dimms.parts"] == "1 x Samsung"
    assert facts["unread.memory modules"] == (
        "the firmware's table: 1 of its structures name a string that is not there"
    )


def test_slots_of_one_name_are_all_kept(tmp_path: Path) -> None:
    facts = with_table(tmp_path, module("P0 CHANNEL A"), module("P0 CHANNEL A", gigabytes=0))
    assert facts["dimm.P0 CHANNEL A/DIMM 0 (2)"] == "empty"


WHOLE = BIOS + b"".join(map(module, banks())) + END


@pytest.mark.parametrize("cut", range(0, len(WHOLE), 7))
def test_a_table_that_is_cut_anywhere_tells_the_slots_before(tmp_path: Path, cut: int) -> None:
    whole_slots = read_firmware_table(WHOLE).slots
    table = read_firmware_table(WHOLE[:cut])
    assert table.slots == whole_slots[: len(table.slots)]


@pytest.mark.parametrize(
    "table", [b"", b"\x11", b"\x11\x54" + bytes(9), b"\x11\2xx" * 9, bytes(99), b"\xff" * 999]
)
def test_what_is_no_table_names_no_slot(table: bytes) -> None:
    assert read_firmware_table(table).slots == ()


def test_ten_megabytes_are_read_in_part_and_at_once() -> None:
    began_s = time.process_time()
    table = read_firmware_table(module("P0 CHANNEL A") * 100_000)
    assert time.process_time() - began_s < 5
    assert len(table.slots) < 10_000
    assert any("only its first 1 MB" in fault for fault in table.faults)


def test_edac_tells_users_what_the_table_tells_root(tmp_path: Path) -> None:
    for number in range(2):
        folder = tmp_path / f"sys/devices/system/edac/mc/mc0/dimm{number}"
        folder.mkdir(parents=True)
        for name, value in {
            "size": "32768",
            "dimm_mem_type": "Registered-DDR4",
            "dimm_location": f"channel {number} slot 0 ",
            "dimm_label": f"DIMM_{'AB'[number]}1",
        }.items():
            (folder / name).write_text(f"{value}\n")
    facts = dict(hardware_facts(tmp_path))
    assert facts["dimms.found"] == "2 x 32 GB Registered-DDR4"
    assert facts["dimm.mc0 channel 1 slot 0/DIMM_B1"] == "32 GB Registered-DDR4"
    assert facts["unread.memory modules"].endswith("sizes are those of EDAC")


def test_hmat_promises_are_told_by_node(tmp_path: Path) -> None:
    folder = tmp_path / "sys/devices/system/node/node1/access0/initiators"
    (folder / "node1").mkdir(parents=True)
    values = {"read_bandwidth": 204800, "write_bandwidth": 0, "read_latency": 90}
    for name, value in values.items():
        (folder / name).write_text(f"{value}\n")
    facts = dict(hardware_facts(tmp_path))
    assert facts["hmat.node1.read_bandwidth_mb_s"] == "204800"
    assert facts["hmat.node1.read_latency_ns"] == "90"
    assert facts["hmat.node1.initiators"] == "1"
    assert "hmat.node1.write_bandwidth_mb_s" not in facts  # 0: firmware does not say
    assert "unread.promised bandwidth" not in facts


def test_nodes_of_a_package_are_counted_as_the_kernel_has_them(tmp_path: Path) -> None:
    for node, cpus, package in ((0, "0-1", 0), (1, "2-3", 0), (2, "4", 1), (3, "5", 1)):
        folder = tmp_path / f"sys/devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{cpus}\n")
        cpu = tmp_path / f"sys/devices/system/cpu/cpu{cpus[0]}/topology"
        cpu.mkdir(parents=True)
        (cpu / "physical_package_id").write_text(f"{package}\n")
    assert dict(hardware_facts(tmp_path))["cpu.nodes_per_package"] == "2"
