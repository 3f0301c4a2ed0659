# SPDX-License-Identifier: GPL-2.0-only
"""The environment of the Python clients, whose making was killed: it is made anew, not believed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tlstax.workloads.drivers import client_libraries

PACKAGES = client_libraries.PACKAGES[1:2]  # the small one
MAKE = f"""
from tlstax.workloads.drivers import client_libraries
client_libraries.PACKAGES = {PACKAGES!r}
client_libraries.python_environment()
"""
PATIENCE_S = 60.0


def test_an_environment_whose_making_was_killed_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(client_libraries, "PACKAGES", PACKAGES)
    deadline = time.monotonic() + PATIENCE_S
    with subprocess.Popen([sys.executable, "-c", MAKE], start_new_session=True) as process:
        while not list(tmp_path.glob("tlstax/clients/*/bin/python")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
    interpreter = client_libraries.python_environment()
    subprocess.run([interpreter, "-I", "-c", "import pymysql"], check=True)
    (place,) = (path for path in tmp_path.glob("tlstax/clients/*") if path.is_dir())
    assert place == interpreter.parent.parent
    assert client_libraries.python_environment() == interpreter
