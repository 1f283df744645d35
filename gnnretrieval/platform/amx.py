"""Keeps oneDNN from AMX on virtual machines that announce it but hide the shape of its tiles.

Some hypervisors pass on the processor's ``amx_tile`` flag and return nothing for CPUID leaf 0x1D, the shape of the
tiles. oneDNN then configures tiles without rows, and the first bfloat16 product ends the process with SIGILL.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
from pathlib import Path

_WITHOUT_AMX = "AVX512_CORE_BF16"
_TILE_INFORMATION = 0x1D
# mov eax, 0x1D; xor ecx, ecx; push rbx; cpuid; pop rbx; ret: returns the highest tile palette.
_CODE = bytes([0xB8, _TILE_INFORMATION, 0, 0, 0, 0x31, 0xC9, 0x53, 0x0F, 0xA2, 0x5B, 0xC3])


def avoid_hidden_amx() -> None:
    """Tell oneDNN not to use AMX where it would crash. Call it before the first bfloat16 product of the process.

    If the user has set ``ONEDNN_MAX_CPU_ISA``, it is not changed.
    """
    if "ONEDNN_MAX_CPU_ISA" not in os.environ and amx_is_hidden():
        os.environ["ONEDNN_MAX_CPU_ISA"] = _WITHOUT_AMX


def amx_is_hidden() -> bool:
    """Whether this processor announces AMX tiles but not their size; False where that cannot be found out."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    try:
        if " amx_tile" not in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
            return False
        return _highest_palette() == 0
    except (OSError, ValueError):  # executable pages are not allowed here, so nothing is known
        return False


def _highest_palette() -> int:
    with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as page:
        page.write(_CODE)
        address = ctypes.c_char.from_buffer(page)
        palette: int = ctypes.CFUNCTYPE(ctypes.c_uint32)(ctypes.addressof(address))()
        del address  # the page cannot be closed while it is referenced
        return palette
