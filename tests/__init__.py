"""Tests of placer."""

import os

# pytest runs a process per core: threads of NumPy's BLAS, which it reads this for when it is
# imported, would wait for each other there, and wait busily.
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")
