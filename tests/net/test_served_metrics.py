"""The address at which a watching process reports to Prometheus: asked while it watches, free again afterwards."""

from __future__ import annotations

import socket
import urllib.request

import pytest

from tests.net.nodes import free_addresses
from tolfl.core.errors import TolFLError
from tolfl.net.status import served


def test_the_port_answers_while_it_watches_and_is_free_again_whatever_ends_it() -> None:
    (address,) = free_addresses(1)
    pages = []

    def watch() -> None:
        with served(address, lambda: "tolfl_watch_rows_total 7\n"):
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
                pages.append(answer.read())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watch()

    assert pages == [b"tolfl_watch_rows_total 7\n"]
    socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))).close()


def test_a_port_that_is_taken_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(TolFLError, match=f"{address} .*choose another"), served(address, str):
            raise AssertionError("it watches without its port")
