"""A server between Lance and an object store: it counts the requests, and may drop the condition of a write.

Or it says a request to Google's store in the words of S3, header by header: the XML API of Google's store was made so
that S3's clients can use it, and the two differ in a few headers.
"""

from __future__ import annotations

import http.client
import http.server
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import urlsplit

# Headers of Google's XML API, in lower case -> what S3 calls them, and the value there where it is another one: an
# object of generation 0 is one that is not there yet.
OF_GOOGLE = {
    "x-goog-if-generation-match": ("If-None-Match", "*"),
    "x-goog-copy-source": ("x-amz-copy-source", None),
}
HOP_BY_HOP = {"connection", "content-length", "date", "server", "transfer-encoding"}


@dataclass(frozen=True)
class Request:
    """One request.

    Attributes:
        kind: "list", or the method: "GET", "HEAD", "PUT", "POST", "DELETE".
        path: Bucket and object, or the bucket of a list.
        status: Of the answer.
        size: Bytes of the answer.
    """

    kind: str
    path: str
    status: int
    size: int


@dataclass
class Proxy:
    """What a running proxy has seen.

    Attributes:
        endpoint: Where it listens.
        requests: All requests so far.
    """

    endpoint: str
    requests: list[Request] = field(default_factory=list)


@contextmanager
def proxy(
    endpoint: str,
    *,
    drops: frozenset[str] = frozenset(),
    refuses: frozenset[str] = frozenset(),
    says: Mapping[str, tuple[str, str | None]] = MappingProxyType({}),
) -> Iterator[Proxy]:
    """Stand between clients and a server, for a block.

    Args:
        endpoint: Of the server.
        drops: Headers of requests, in lower case, that are not passed on: `if-none-match` makes a store without
            conditional writes of any.
        refuses: Methods that are answered with 403; without `PUT` a store can only be read.
        says: Headers of requests, in lower case -> what they are passed on as, as `OF_GOOGLE` has it.
    """
    behind = urlsplit(endpoint).netloc
    seen = Proxy("")

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # an answer goes out as one piece

        def pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.command in refuses:
                self.send_error(403)
                return
            sent = {}
            for name, value in self.headers.items():
                other, instead = says.get(name.lower(), (name, None))
                if not {name.lower(), other.lower()} & drops:
                    sent[other] = instead or value
            connection = http.client.HTTPConnection(behind)
            connection.request(self.command, self.path, body, sent)
            answer = connection.getresponse()
            data = answer.read()
            connection.close()
            path = urlsplit(self.path)
            kind = "list" if "list-type" in path.query else self.command
            seen.requests.append(Request(kind, path.path, answer.status, len(data)))
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            head = self.command == "HEAD"
            self.send_header("Content-Length", answer.getheader("content-length", "0") if head else str(len(data)))
            self.end_headers()
            if not head:
                self.wfile.write(data)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on  # noqa: N815  (names of the base class)

        def log_message(self, format: str, *_: object) -> None:
            """Print nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    seen.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
