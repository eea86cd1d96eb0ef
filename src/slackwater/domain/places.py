"""A set of a chunk's lines as bits: line ``n`` is bit ``n % 8`` of byte ``n // 8``. A thousand lines take 125 bytes."""

from collections.abc import Iterable


def pack_places(places: Iterable[int]) -> bytes:
    """Write a set of places, as short as its greatest allows."""
    bits = 0
    for place in places:
        bits |= 1 << place
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def unpack_places(packed: bytes) -> list[int]:
    """Read a set of places, in order."""
    return [8 * at + bit for at, byte in enumerate(packed) if byte for bit in range(8) if byte >> bit & 1]
