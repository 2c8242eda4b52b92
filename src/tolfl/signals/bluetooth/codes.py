"""What protects Bluetooth's bits: sync word, header check, CRC, repetition, Hamming code, whitening.

Numbers in brackets are sections of the Core specification, vol. 2 part B.
Bits are in the order in which they are sent, the least significant one of a byte or number first.
"""

from __future__ import annotations

import binascii
from functools import cache

import numpy as np

from tolfl.signals.bluetooth.gfsk import Bits

_BARKER = {0: 0b101100, 1: 0b010011}  #: behind the address, by its last bit; as a number, so the first bit is lowest
_NOISE = 0x83848D96BBCC54FC  #: p63 to p0
_SYNC_GENERATOR = 0o260534236651
_HEADER_GENERATOR = 0b1_1010_0111  #: D^8 + D^7 + D^5 + D^2 + D + 1
_HAMMING_GENERATOR = 0b11_0101  #: (D + 1)(D^4 + D + 1)
_LOW_ENERGY_GENERATOR = 0xDA6000  #: D^24 + D^10 + D^9 + D^6 + D^4 + D^3 + D + 1, backwards, without the first
_WHITENING_PERIOD = 127


def bits_of(data: bytes) -> Bits:
    """Return the bits of bytes."""
    return np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")


def number_bits(value: int, n_bits: int) -> Bits:
    """Return a number's `n_bits` bits."""
    return ((value >> np.arange(n_bits)) & 1).astype(np.uint8)


def _remainder(value: int, generator: int) -> int:
    """Return what is left of a polynomial after division; the highest power is the highest bit."""
    degree = generator.bit_length() - 1
    while value.bit_length() > degree:
        value ^= generator << (value.bit_length() - 1 - degree)
    return value


def _reversed(value: int, n_bits: int) -> int:
    return int(f"{value:0{n_bits}b}"[::-1], 2)


@cache
def access_code(lap: int) -> Bits:
    """Return the 72 bits ahead of a packet: preamble, the sync word of the lower address part, trailer (6.3).

    The sync word is a code word of 64 bits, at least 14 away from any other, behind a fixed noise sequence.
    """
    information = (_BARKER[lap >> 23] << 24 | lap) ^ _NOISE >> 34
    # The first bit of the sync word is the lowest power, and so is the first information bit.
    code_word = information << 34 | _remainder(information << 34, _SYNC_GENERATOR)
    sync = bits_of((code_word ^ _NOISE).to_bytes(8, "little"))
    preamble, trailer = np.array([0, 1, 0, 1]) ^ sync[0], np.array([1, 0, 1, 0]) ^ sync[-1]
    return np.concatenate([preamble, sync, trailer]).astype(np.uint8)


def header_check(header: int, uap: int) -> int:
    """Return the 8 check bits (HEC) of a header of 10 bits; the register starts with the upper address part (7.1.1).

    >>> f"{header_check(0x123, 0x47):02x}"
    '06'
    """
    register = uap
    for place in range(10):
        feedback = register >> 7 ^ header >> place & 1
        register = register << 1 & 0xFF ^ feedback * (_HEADER_GENERATOR & 0xFF)
    return _reversed(register, 8)


def payload_check(payload: bytes, uap: int) -> bytes:
    """Return the two CRC bytes of a payload: CCITT, from the upper address part (7.1.2).

    >>> payload_check(bytes.fromhex("4e010203040506070809"), 0x47).hex()
    '6dd2'
    """
    turned = bytes(_reversed(byte, 8) for byte in payload)
    crc = binascii.crc_hqx(turned, uap)
    return _reversed(crc, 16).to_bytes(2, "little")


def low_energy_check(pdu: bytes, start: int) -> bytes:
    """Return the three CRC bytes of a low-energy packet (vol. 6 part B, 3.1.1); advertisements start from 0x555555.

    >>> low_energy_check(bytes.fromhex("00119992b1ebd7900201050702031802180418"), 0x555555).hex()
    'a85def'
    """
    register = _reversed(start, 24)
    for bit in bits_of(pdu).tolist():
        feedback = (register ^ bit) & 1
        register = register >> 1 ^ feedback * _LOW_ENERGY_GENERATOR
    return register.to_bytes(3, "little")


def repeated(bits: Bits) -> Bits:
    """Return every bit three times: the code of headers (7.4)."""
    return np.repeat(bits, 3)


def hamming(bits: Bits) -> Bits:
    """Return code words of 15 bits for every 10, the last ones filled with zeros: the code of DM packets (7.5)."""
    blocks = np.pad(bits, (0, -len(bits) % 10)).reshape(-1, 10)
    # The first bit is the highest power, and so is the first check bit.
    checks = [_remainder(1 << (14 - place), _HAMMING_GENERATOR) for place in range(10)]
    table = np.array([[check >> (4 - bit) & 1 for bit in range(5)] for check in checks], np.uint8)
    return np.concatenate([blocks, blocks @ table % 2], axis=1).ravel()


@cache
def whitening(register: int) -> Bits:
    """Return one period of the whitening sequence x^7 + x^4 + 1; the register's highest bit comes out first (7.2)."""
    sequence = np.empty(_WHITENING_PERIOD, np.uint8)
    for index in range(_WHITENING_PERIOD):
        out = register >> 6
        sequence[index] = out
        register = (register << 1 & 0x7F | out) ^ out << 4
    sequence.flags.writeable = False
    return sequence


def whitened(bits: Bits, register: int) -> Bits:
    """Return the bits behind whitening; doing it twice gives them back."""
    return bits ^ np.resize(whitening(register), len(bits))
