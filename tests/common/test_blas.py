"""One thread for linear algebra within a block, as many as before behind it."""

import numpy as np
from threadpoolctl import threadpool_info

from placer.common.blas import one_blas_thread


def threads() -> set[int]:
    return {found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"}


def test_linear_algebra_has_one_thread_within_the_block():
    np.linalg.inv(np.eye(2))
    before = threads()
    with one_blas_thread():
        assert threads() == {1}
    assert threads() == before
