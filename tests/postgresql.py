"""A PostgreSQL server of this machine's own programs, for tests and benchmarks of workers."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# PostgreSQL refuses to run as root, so root starts it as one of these users.
USERS = ("postgres", "nobody")
START_S = 30


def unavailable() -> str | None:
    """Why no server can be started here; None if one can."""
    for program in ("initdb", "postgres"):
        if shutil.which(program) is None:
            return f"{program} of PostgreSQL is not on the PATH"
    return None


class Server:
    """A server on the loopback interface, its data in ``folder``; it can be restarted."""

    def __init__(self, folder: Path, rights: dict[str, Any]) -> None:
        self._folder = folder
        self._rights = rights
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"postgresql://placer:secret@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        """Returns once it accepts connections; raises RuntimeError if it does not."""
        log = self._folder / "log"
        options = ["-h", "127.0.0.1", "-p", str(self._port), "-k", self._folder, "-F"]
        with log.open("w") as out:
            self._process = subprocess.Popen(
                ["postgres", "-D", self._folder / "data", *options],
                stderr=out,
                cwd=self._folder,
                **self._rights,
            )
        _wait_for(self._port, self._process, log)

    def stop(self) -> None:
        """End all sessions, then the server."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(START_S)
            self._process = None


@contextmanager
def server() -> Iterator[str]:
    """Run a server; yields the URL of an empty database."""
    with restartable() as one:
        yield one.url


@contextmanager
def restartable() -> Iterator[Server]:
    """Run a server with an empty database. Raises RuntimeError if it does not start."""
    user = _unprivileged()
    folder = Path(tempfile.mkdtemp(prefix="placer-postgresql-"))
    try:
        if user is not None:
            os.chown(folder, user.pw_uid, user.pw_gid)
        rights: dict[str, Any] = (
            {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        )
        data = folder / "data"
        initdb = ["initdb", "-D", data, "-U", "placer", "-A", "trust", "-E", "UTF8", "--no-sync"]
        subprocess.run(initdb, check=True, capture_output=True, cwd=folder, **rights)
        found = Server(folder, rights)
        try:
            found.start()
            yield found
        finally:
            found.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unprivileged() -> pwd.struct_passwd | None:
    if os.getuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    return next(known[name] for name in USERS if name in known)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while "ready to accept connections" not in log.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"PostgreSQL did not start on port {port}: {log.read_text()}")
        time.sleep(0.05)
