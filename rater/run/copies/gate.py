"""The gate that every copy waits at: its name, its script, its exit codes."""

from __future__ import annotations

GATE_NAME = b"rater-gate"  # how the gate's shell calls itself (see run/copies/launch.py)
