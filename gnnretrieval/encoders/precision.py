"""The precision that a device computes in natively."""

from __future__ import annotations

import torch

from gnnretrieval.platform.amx import amx_is_hidden, avoid_hidden_amx
from gnnretrieval.platform.devices import as_device


def computes_in_bfloat16(device: str | torch.device) -> bool:
    """Whether ``device`` computes bfloat16 products natively; emulated ones are slower than float32."""
    kind = as_device(device, here=False).type
    if kind == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if kind == "cpu":
        avoid_hidden_amx()
        # A processor whose AMX is hidden is faster in float32.
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()) and not amx_is_hidden()
    return False
