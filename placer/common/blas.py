"""NumPy's and SciPy's linear algebra on one thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import ThreadpoolController


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS compute on one thread within the block, in all threads of the process.

    On small matrices several threads of OpenBLAS wait busily for each other, and take the time of
    whatever else runs.
    """
    with ThreadpoolController().limit(limits=1, user_api="blas"):
        yield
