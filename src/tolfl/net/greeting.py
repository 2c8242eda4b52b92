"""What a first frame must fit before anything in it is believed."""

from __future__ import annotations

from tolfl.core.errors import SpecError
from tolfl.net import wire_pb2 as pb
from tolfl.net.codec import MAX_COUNT, RefusedMessageError
from tolfl.net.credentials import split_address

_MAX_ADDRESS = 300  #: a name of 253 characters, a port, and something to spare


def check_hello(hello: pb.Hello) -> None:
    """Refuse a life beyond counting, which others would not pass on, and addresses that nobody can dial."""
    if hello.incarnation >= MAX_COUNT:
        raise RefusedMessageError("malformed", f"incarnation {hello.incarnation}")
    for address in hello.addresses.values():
        try:
            split_address(address)
        except SpecError as error:
            raise RefusedMessageError("malformed", str(error)) from None
        if len(address) > _MAX_ADDRESS:
            raise RefusedMessageError("malformed", "an address that is longer than any")
