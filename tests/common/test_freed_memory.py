"""Memory of models that are gone."""

from pathlib import Path

import pytest

from placer.common.freed_memory import KEPT_BYTES, _glibc, give_back_freed

MIB = 1 << 20


def resident() -> int:
    """Bytes of this process that are in memory and of no file, by proc(5)."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return 1024 * int(status.partition("RssAnon:")[2].split()[0])


@pytest.mark.skipif(_glibc() is None, reason="another C library than glibc")
def test_weights_below_a_live_block_go_back_to_the_system():
    large = bytes(16 * MIB)
    del large  # From here on glibc has blocks that are smaller in its heap.
    blocks = [bytearray(b"x" * MIB) for _ in range(101)]
    del blocks[:100]
    before = resident()
    give_back_freed(KEPT_BYTES)
    assert resident() > before - 10 * MIB
    give_back_freed(KEPT_BYTES + 1)
    assert resident() < before - 80 * MIB
    assert blocks == [b"x" * MIB]
