"""Databases that cannot be opened."""

import pytest

from placer.errors import InputError
from placer.search.storage import open_storage


def test_with_a_dead_server_the_advice_is_about_the_server():
    pytest.importorskip("psycopg")
    with pytest.raises(InputError, match="start the server, or correct its address") as raised:
        open_storage("postgresql://me:secret@127.0.0.1:9/nothing", shared=True)
    assert "secret" not in str(raised.value)
    assert "output" not in str(raised.value)
