"""hwloc's text for sets of CPUs and nodes."""


def format_bitmap(mask: int) -> str:
    """Return hwloc's text for a mask: the inverse of `cpuset.parse_bitmap`."""
    words = []
    while mask:
        words.append(f"0x{mask & 0xFFFFFFFF:08x}")
        mask >>= 32
    return ",".join(reversed(words)) or "0x0"
