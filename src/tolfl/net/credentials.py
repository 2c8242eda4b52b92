"""The one place where credentials go in: how a device listens, and how it dials."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

import grpc
import grpc.aio

from tolfl.core.errors import SpecError
from tolfl.net.frames import MAX_FRAME_BYTES

_OPTIONS: Sequence[tuple[str, int]] = (
    ("grpc.max_receive_message_length", MAX_FRAME_BYTES),
    ("grpc.max_send_message_length", MAX_FRAME_BYTES),
    # The back-stop for links on which nothing is due; the failure detector is much faster.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)
_SERVER_OPTIONS = (
    *_OPTIONS,
    ("grpc.so_reuseport", 0),  # a port that is taken must be an error, not shared
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
)
_CHANNEL_OPTIONS = (
    *_OPTIONS,
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own: a heartbeat must not queue behind a model
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
)


class NoCredentials:
    """Plain text, for loopback and for networks of one's own making."""

    def server(self) -> grpc.aio.Server:
        """Return a server that has no port yet."""
        return grpc.aio.server(options=_SERVER_OPTIONS)

    def listen(self, server: grpc.aio.Server, address: str) -> int:
        """Open a port and return its number."""
        return int(server.add_insecure_port(address))

    def dial(self, address: str, device: int | None) -> grpc.aio.Channel:  # noqa: ARG002  (TLS will ask who it is)
        """Return a channel to an address where a device is expected."""
        return grpc.aio.insecure_channel(address, options=_CHANNEL_OPTIONS)


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of `host:port`, `[v6]:port`."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535 or not host:
        raise SpecError(f"address {address!r}; write host:port, as in 10.0.0.3:7000")
    return host.strip("[]"), int(port)


def is_loopback(address: str) -> bool:
    """Tell whether an address can be reached from this machine alone."""
    host = split_address(address)[0]
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
