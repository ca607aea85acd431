"""One process at a time in an output folder."""

import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from placer.common.folder_lock import LOCK_FILE, locked
from placer.errors import InputError

HOLD = """
import sys
from pathlib import Path
from placer.common.folder_lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_another_process_is_named_and_its_death_frees_the_folder(tmp_path: Path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        who = f"is in use by process {holder.pid} on {platform.node()}; wait for it"
        with pytest.raises(InputError, match=who), locked(tmp_path):
            pass
        os.kill(holder.pid, signal.SIGKILL)
    with locked(tmp_path):
        assert (tmp_path / LOCK_FILE).exists()
    assert list(tmp_path.iterdir()) == []
