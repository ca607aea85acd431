"""Addresses of Dask schedulers."""

from __future__ import annotations

from urllib.parse import urlsplit

SCHEME = "dask://"


def is_address(text: str) -> bool:
    """Whether ``text`` is ``dask://HOST:PORT``."""
    try:
        parts = urlsplit(text)
        return bool(f"{parts.scheme}://" == SCHEME and parts.hostname and parts.port)
    except ValueError:  # A port that is no number.
        return False
