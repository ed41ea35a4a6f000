"""The firmware's table and promises: made tables with the answers worked out by hand."""

from __future__ import annotations

import time
from collections import Counter
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
    fields: dict[int, tuple[int, int]] | None = None,
) -> bytes:
    """Return a memory device of SMBIOS 3.3; 0 gigabytes: an empty slot."""
    megabytes = gigabytes * 1024
    usual = {
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
    texts = [locator, bank, "Samsung", "M321R8GA0BB0"]
    return structure(17, 0x5C, usual | (fields or {}), texts)


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
    assert facts["dimms.parts"] == "7 x Samsung M321R8GA0BB0"
    assert facts["dimms.peak_mb_s"] == "268800"  # 7 x 4800 x 8


def test_a_slot_that_is_empty_beside_a_module_changes_nothing(tmp_path: Path) -> None:
    """Firmware may leave a speed in an empty slot."""
    empty = module("P0 CHANNEL A", "DIMM 1", gigabytes=0, fields={0x20: (2, 1600)})
    facts = with_table(tmp_path, module("P0 CHANNEL A"), empty)
    assert facts["dimms.channels"] == "1 of 1 populated"
    assert facts["dimms.peak_mb_s"] == "38400"


def test_a_structure_of_version_2_1_ends_before_its_speed() -> None:
    fields = {0x0C: (2, 512), 0x10: (1, 1), 0x11: (1, 2), 0x12: (1, 0x12)}
    old = read_firmware_table(structure(17, 0x15, fields, ["DIMM 0", "P0-A"]))
    assert [(it.name, it.description) for it in old.slots] == [("P0-A/DIMM 0", "0.5 GB DDR")]
    assert read_firmware_table(structure(17, 0x14, fields, ["DIMM 0"])).faults == (
        "1 of its structures are shorter than their type is",
    )


def test_of_more_slots_than_are_named_all_are_counted(tmp_path: Path) -> None:
    facts = with_table(tmp_path, *(module(f"BANK {number}") for number in range(513)))
    assert facts["dimms.found"] == "513 x 64 GB DDR5 at 4800 MT/s"
    assert sum(name.startswith("dimm.") for name in facts) == 512
    assert facts["unread.slots"] == "only the first 512 of 513 are named"


def test_a_table_that_only_root_may_read_names_the_way_to_know_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    reason = dict(hardware_facts(tmp_path))["unread.memory modules"]
    assert reason == "/sys/firmware/dmi/tables/DMI is for root: sudo tells slots and rated speeds"


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
        ("_Node1_Channel0_Dimm0", "NODE1-0"),
        ("P0CHANNELA", "P0-A"),
        ("CHANNEL 11", "11"),
        ("BRANCH 0 SLOT 1", None),  # of FB-DIMMs: a branch has two channels
        ("P1-DIMMA1", None),
        ("BANK 3", None),  # a bank is no channel, and channels are not counted from slots
        ("Not Specified", None),
    ],
)
def test_a_channel_is_what_the_bank_locator_calls_so(bank: str, channel: str | None) -> None:
    (slot,) = read_firmware_table(module(bank)).slots
    assert slot.channel == channel


@pytest.mark.parametrize(
    ("bank", "locator", "channel"),
    [
        ("BANK 0", "ChannelA-DIMM1", "A"),
        ("BANK 2", "Controller1-ChannelB-DIMM0", "CONTROLLER1-B"),
        ("CHANNEL A", "CPU1_DIMM_A1", "CPU1-A"),
        ("P0 CHANNEL A", "CPU1_DIMM_A1", "P0-A"),
        ("", "PROC 1 DIMM 3", None),
        ("NODE 1", "CPU1_DIMM_A1", None),
        ("NODE 1", "DIMM_A1", None),
    ],
)
def test_a_device_locator_names_channel_or_socket_where_the_bank_does_not(
    bank: str, locator: str, channel: str | None
) -> None:
    (slot,) = read_firmware_table(module(bank, locator)).slots
    assert slot.channel == channel


def test_two_sockets_whose_slots_have_the_same_names_have_no_channels(tmp_path: Path) -> None:
    """Both sockets call their channel A; of 2 x 4800 x 8 the half would be told."""
    socket_of = {socket: {0x04: (2, 0x100 + socket)} for socket in (0, 1)}
    modules = [module("CHANNEL A", f"DIMM {socket}", fields=socket_of[socket]) for socket in (0, 1)]
    facts = with_table(tmp_path, *modules)
    assert "dimms.peak_mb_s" not in facts
    assert "dimms.channels" not in facts
    reason = "its locators name different slots alike, so that channels are not known"
    assert facts["unread.memory modules"] == f"the firmware's table: {reason}"
    twins = with_table(tmp_path, module("P0 CHANNEL A"), module("P0 CHANNEL A"))
    assert twins["unread.memory modules"] == f"the firmware's table: {reason}"


@pytest.mark.parametrize(
    ("kind", "width_bits", "peak", "reason"),
    [
        (0x22, 64, "38400", None),
        (0x22, 0, "38400", None),
        (0x07, 0xFFFF, "38400", None),  # RAM, as QEMU has it
        (0x03, 64, "38400", None),  # DRAM
        (0x03, 16, None, "channels of LPDDR and HBM"),
        (0x23, 16, None, "channels of LPDDR and HBM"),  # LPDDR5
        (0x20, 64, None, "channels of LPDDR and HBM"),
        (0x1F, 64, None, "persistent memory alone"),
    ],
)
def test_a_peak_is_that_of_channels_of_8_bytes(
    tmp_path: Path, kind: int, width_bits: int, peak: str | None, reason: str | None
) -> None:
    fields = {0x12: (1, kind), 0x0A: (2, width_bits)}
    facts = with_table(tmp_path, module("P0 CHANNEL A", fields=fields))
    assert facts.get("dimms.peak_mb_s") == peak
    assert facts.get("unread.peak of channels", "").startswith(reason or "")


def test_persistent_memory_beside_a_module_adds_nothing_to_its_channel(tmp_path: Path) -> None:
    persistent = module("P0 CHANNEL A", "DIMM 1", configured=2666, fields={0x12: (1, 0x1F)})
    facts = with_table(tmp_path, module("P0 CHANNEL A"), persistent)
    assert facts["dimms.peak_mb_s"] == "21328"  # both run at 2666, 8 bytes
    assert facts["dimm.P0 CHANNEL A/DIMM 1"].startswith("64 GB persistent memory, rated 5600")


def test_modules_behind_cxl_are_named_and_are_no_channel_of_a_socket(tmp_path: Path) -> None:
    on_board = structure(16, 0x17, {0x02: (2, 7), 0x04: (1, 3), 0x05: (1, 3)}, [])
    on_card = structure(16, 0x17, {0x02: (2, 9), 0x04: (1, 0xA4), 0x05: (1, 3)}, [])
    behind = module("CXL 0", gigabytes=128, fields={0x04: (2, 9)})
    ours = module("P0 CHANNEL A", fields={0x04: (2, 7)})
    facts = with_table(tmp_path, ours, behind, on_board, on_card)
    assert facts["dimms.found"] == (
        "1 x 128 GB DDR5 on CXL at 4800 MT/s, 1 x 64 GB DDR5 at 4800 MT/s"
    )
    assert facts["dimms.peak_mb_s"] == "38400"
    assert facts["dimms.channels"] == "1 of 1 populated"


def test_flash_that_holds_the_firmware_is_no_memory(tmp_path: Path) -> None:
    array = structure(16, 0x0F, {0x02: (2, 9), 0x04: (1, 3), 0x05: (1, 5)}, [])
    of_array = module("SYSTEM ROM", fields={0x04: (2, 9)})
    flash = module("SYSTEM ROM", fields={0x12: (1, 9)})
    facts = with_table(tmp_path, array, of_array, flash, module("P0 CHANNEL A"))
    assert facts["dimms.found"] == "1 x 64 GB DDR5 at 4800 MT/s"
    assert facts["dimms.channels"] == "1 of 1 populated"


def test_a_slot_whose_size_is_not_known_is_neither_empty_nor_populated(tmp_path: Path) -> None:
    unknown = module("P0 CHANNEL B", fields={0x0C: (2, 0xFFFF)})
    facts = with_table(tmp_path, module("P0 CHANNEL A"), unknown)
    assert facts["dimm.P0 CHANNEL B/DIMM 0"] == "size not known"
    assert facts["dimms.found"] == "1 x 64 GB DDR5 at 4800 MT/s, 1 of unknown size"
    assert "dimms.channels" not in facts
    assert "dimms.peak_mb_s" not in facts
    assert facts["unread.peak of channels"] == "whether some slots have a module is not known"


def test_a_module_that_does_not_say_how_fast_it_runs_is_rated_only(tmp_path: Path) -> None:
    facts = with_table(tmp_path, module("P0 CHANNEL A", configured=0))
    assert facts["dimms.found"] == "1 x 64 GB DDR5 rated 5600 MT/s"
    assert facts["dimm.P0 CHANNEL A/DIMM 0"] == "64 GB DDR5, rated 5600 MT/s, 2 ranks"
    assert facts["dimms.peak_mb_s"] == "44800"  # at most
    unknown = with_table(tmp_path, module("P0 CHANNEL A", configured=0, rated=0))
    assert unknown["dimms.found"] == "1 x 64 GB DDR5"
    assert unknown["unread.peak of channels"] == "some modules do not tell their speed"


@pytest.mark.parametrize(
    ("fields", "description"),
    [
        ({0x0C: (2, 512)}, "0.5 GB DDR5, rated 5600 MT/s, runs at 4800 MT/s, 2 ranks"),
        ({0x0C: (2, 0xC000)}, "0.015625 GB DDR5, rated 5600 MT/s, runs at 4800 MT/s, 2 ranks"),
        (
            {0x0C: (2, 0x7FFF), 0x1C: (4, 0x80020000)},
            "128 GB DDR5, rated 5600 MT/s, runs at 4800 MT/s, 2 ranks",
        ),
        (
            {0x15: (2, 0xFFFF), 0x54: (4, 70000)},
            "64 GB DDR5, rated 70000 MT/s, runs at 4800 MT/s, 2 ranks",
        ),
        (
            {0x20: (2, 0xFFFF), 0x58: (4, 0x80011171)},
            "64 GB DDR5, rated 5600 MT/s, runs at 70001 MT/s, 2 ranks",
        ),
        ({0x1B: (1, 0x81)}, "64 GB DDR5, rated 5600 MT/s, runs at 4800 MT/s, 1 rank"),
        ({0x1B: (1, 0)}, "64 GB DDR5, rated 5600 MT/s, runs at 4800 MT/s"),
        ({0x12: (1, 0x1A)}, "64 GB DDR4, rated 5600 MT/s, runs at 4800 MT/s, 2 ranks"),
        ({0x12: (1, 2)}, "64 GB memory, rated 5600 MT/s, runs at 4800 MT/s, 2 ranks"),
    ],
)
def test_each_field_of_a_module_is_read_where_the_specification_has_it(
    fields: dict[int, tuple[int, int]], description: str
) -> None:
    (slot,) = read_firmware_table(module("P0 CHANNEL A", fields=fields)).slots
    assert slot.description == description


def test_the_bios_is_that_of_the_first_structure() -> None:
    other = structure(0, 0x18, {0x04: (1, 1)}, ["Other"])
    bios = read_firmware_table(BIOS + other + END).bios
    assert bios is not None
    assert (bios.vendor, bios.version, bios.date) == ("AMI", "R23_F41", "01/02/2025")


def test_a_string_of_firmware_is_one_short_line() -> None:
    hostile = "P0\x1b[31m\u202eCHANNEL\tA" + "x" * 100_000
    (slot,) = read_firmware_table(module(hostile)).slots
    assert slot.bank is not None
    assert slot.bank.startswith("P0 [31m CHANNEL Ax")
    assert len(slot.bank) == 64
    assert slot.bank.isprintable()


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
    names = ["A", "A", "A (2)", "A (2)", "A (3)"]
    with_table(tmp_path, *(module("P0 CHANNEL A", name) for name in names))
    counted = Counter(name for name, _ in hardware_facts(tmp_path))
    assert max(counted.values()) == 1
    assert sum(name.startswith("dimm.") for name in counted) == len(names)


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
    assert len(table.slots) == (1 << 20) // len(module("P0 CHANNEL A"))
    assert "only its first 1 MB were read" in table.faults
    tiny = read_firmware_table(structure(1, 4, {}, []) * 9000)
    assert tiny.faults == ("8192 of its structures are read, and those behind are not",)
    assert read_firmware_table(structure(1, 4, {}, []) * 8192 + END).faults == ()


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
    assert facts["unread.memory modules"].endswith(
        "; sizes are those of EDAC, which does not tell empty slots"
    )

    assert "dimms.channels" not in facts  # how many slots are empty EDAC does not know


def test_edac_of_amd_tells_ranks_of_channels_and_no_modules(tmp_path: Path) -> None:
    for number, (rank, channel) in enumerate([(0, 0), (1, 0), (0, 1)]):
        folder = tmp_path / f"sys/devices/system/edac/mc/mc0/rank{number}"
        folder.mkdir(parents=True)
        (folder / "size").write_text("32768\n")
        (folder / "dimm_mem_type").write_text("Registered-DDR5\n")
        (folder / "dimm_location").write_text(f"csrow {rank} channel {channel} \n")
    facts = dict(hardware_facts(tmp_path))
    assert facts["dimm.channel MC0-0"] == "64 GB Registered-DDR5, 2 ranks"
    assert facts["dimm.channel MC0-1"] == "32 GB Registered-DDR5, 1 rank"
    assert "dimms.found" not in facts
    assert facts["unread.memory modules"].endswith("which does not tell modules")


def test_a_table_without_bios_leaves_its_vendor_to_the_kernel(tmp_path: Path) -> None:
    assert "unread.firmware" in dict(hardware_facts(tmp_path))
    folder = tmp_path / "sys/class/dmi/id"
    folder.mkdir(parents=True)
    (folder / "bios_vendor").write_text("AMI\n")
    assert with_table(tmp_path, module("P0 CHANNEL A"))["firmware.vendor"] == "AMI"


def promises(root: Path, access: str, node: int, initiator: int, **values: int) -> None:
    folder = root / f"sys/devices/system/node/node{node}" / access / "initiators"
    (folder / f"node{initiator}").mkdir(parents=True)
    for name, value in values.items():
        (folder / name).write_text(f"{value}\n")


def test_what_firmware_promises_to_cpus_is_told_and_not_to_an_accelerator(tmp_path: Path) -> None:
    promises(tmp_path, "access0", 1, 2, read_bandwidth=900000, read_latency=10)
    promises(tmp_path, "access1", 1, 0, read_bandwidth=204800, read_latency=90)
    promises(tmp_path, "access0", 0, 0, read_latency=80, write_latency=85, write_bandwidth=100)
    promises(tmp_path, "access1", 0, 0, read_latency=0)
    facts = dict(hardware_facts(tmp_path))
    assert {name: value for name, value in facts.items() if name.startswith("hmat.")} == {
        "hmat.node0.read_latency_ns": "80",
        "hmat.node0.write_latency_ns": "85",
        "hmat.node0.write_bandwidth_mb_s": "100",
        "hmat.node0.initiators": "0",
        "hmat.node1.read_bandwidth_mb_s": "204800",
        "hmat.node1.read_latency_ns": "90",
        "hmat.node1.initiators": "0",
    }


def test_hmat_promises_are_told_by_node(tmp_path: Path) -> None:
    folder = tmp_path / "sys/devices/system/node/node1/access0/initiators"
    for initiator in (10, 2, 1):
        (folder / f"node{initiator}").mkdir(parents=True)
    values = {"read_bandwidth": 204800, "write_bandwidth": 0, "read_latency": 90}
    for name, value in values.items():
        (folder / name).write_text(f"{value}\n")
    facts = dict(hardware_facts(tmp_path))
    assert facts["hmat.node1.read_bandwidth_mb_s"] == "204800"
    assert facts["hmat.node1.read_latency_ns"] == "90"
    assert facts["hmat.node1.initiators"] == "1,2,10"
    assert "hmat.node1.write_bandwidth_mb_s" not in facts  # 0: firmware does not say
    assert "unread.promised bandwidth" not in facts


def nodes_per_package(root: Path, nodes: dict[str, tuple[int, ...]]) -> str | None:
    """Return the fact of a machine: each node's list of CPUs, and packages of its end CPUs."""
    for node, (cpus, packages) in enumerate(nodes.items()):
        folder = root / f"sys/devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{cpus}\n")
        for cpu, package in zip(cpus[:1] + cpus[1:][-1:], packages, strict=True):
            topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
            topology.mkdir(parents=True)
            (topology / "physical_package_id").write_text(f"{package}\n")
    return dict(hardware_facts(root)).get("cpu.nodes_per_package")


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ({"0-1": (0, 0), "2-3": (0, 0), "4": (1,), "5": (1,)}, "2"),
        ({"0-1": (0, 0), "2-3": (0, 0), "4": (1,)}, "1 or 2"),
        ({"0-1": (0, 0), "2-3": (0, 0), "4": (-1,)}, "2"),  # -1: the kernel does not know
        ({"0": (-1,), "1": (-1,)}, None),
        ({"0-3": (0, 1)}, "1 for 2 packages or more"),  # numa=off, or interleaved nodes
        ({"": ()}, None),
    ],
)
def test_nodes_of_a_package_are_counted_as_the_kernel_has_them(
    tmp_path: Path, nodes: dict[str, tuple[int, ...]], text: str | None
) -> None:
    assert nodes_per_package(tmp_path, nodes) == text
