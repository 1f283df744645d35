import subprocess
import sys

import pytest

SCRIPT = """
import ctypes, resource
from gnnretrieval.platform.memory import give_back_freed_memory, keep_freed_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

keep_freed_memory()
blocks = [bytearray(2**20) for _ in range(200)]
full = resident()
del blocks
kept = resident()
give_back_freed_memory()
print(full, kept, resident())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator is Linux's")
def test_freed_memory_is_kept_until_it_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    full, kept, left = map(int, done.stdout.split())
    assert kept > full - 50 * 2**20
    assert left < full - 150 * 2**20
