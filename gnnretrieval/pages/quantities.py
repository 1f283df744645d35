"""Bytes and times in fitting units."""

from __future__ import annotations


def in_bytes(count: float) -> str:
    """Bytes in a fitting unit, for example ``3.1 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1000 or unit == "GiB":
            break
        count /= 1024
    return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"


def in_time(seconds: float) -> str:
    """Seconds in a fitting unit, for example ``35 min``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"
