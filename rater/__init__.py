"""rater: a SPECrate-style multi-copy throughput runner for Linux."""

__version__ = "0.1.0"
