"""What processors can do."""

import pytest

from placer.common.processor import PROCESSORS, kind_of, with_flags

AVX512 = "avx2 avx512f avx512dq avx512bw avx512vl"


@pytest.mark.parametrize(
    ("flags", "kind"),
    [
        ("avx2 fma", "avx2"),  # AMD Zen 2 and 3, Intel up to Skylake's client processors.
        ("avx2 avx_vnni", "avx2-vnni"),
        ("avx2 avx_vnni avx_vnni_int8", "avx2-vnni-int8"),
        (AVX512, "avx512"),
        (f"{AVX512} avx512_vnni", "avx512-vnni"),
        (f"{AVX512} avx512_vnni avx_vnni amx_int8", "amx"),
    ],
)
def test_kinds_of_processors_by_the_flags_that_linux_names(flags: str, kind: str):
    assert kind_of(with_flags(frozenset(flags.split()))) == kind
    assert with_flags(frozenset(flags.split())) == PROCESSORS[kind]
