import os
import subprocess
import sys

import pytest

from gnnretrieval.platform import amx

CODE = """
import torch
from gnnretrieval.encoders.loading import weights_dtype

x = torch.ones(64, 64, dtype=weights_dtype("bfloat16", torch.device("cpu")))
print((x @ x)[0, 0].item())
"""


def test_a_bfloat16_product_ends_no_process():
    environment = {name: value for name, value in os.environ.items() if name != "ONEDNN_MAX_CPU_ISA"}
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout.strip()) == (0, "64.0")


def test_importing_the_package_asks_the_processor_nothing():
    code = "import sys, gnnretrieval; assert 'gnnretrieval.platform.amx' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_onednn_is_kept_from_amx_only_where_its_tiles_are_hidden(monkeypatch):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr(amx, "amx_is_hidden", lambda: False)
    amx.avoid_hidden_amx()
    assert "ONEDNN_MAX_CPU_ISA" not in os.environ
    monkeypatch.setattr(amx, "amx_is_hidden", lambda: True)
    amx.avoid_hidden_amx()
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX512_CORE_BF16"


def test_a_users_own_limit_stays(monkeypatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    monkeypatch.setattr(amx, "amx_is_hidden", lambda: True)
    amx.avoid_hidden_amx()
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX2"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the processor's own word on Linux only")
def test_no_processor_without_amx_hides_it(monkeypatch):
    monkeypatch.setattr(amx.Path, "read_text", lambda *args, **kwargs: "flags : sse avx512f")
    assert not amx.amx_is_hidden()
