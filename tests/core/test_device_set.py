"""Sets of devices as bits agree with sets of numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tolfl.core.device_set import DeviceSet

ids = st.sets(st.integers(0, 300))


@given(ids, ids)
def test_device_sets_behave_as_sets_do(left: set[int], right: set[int]) -> None:
    a, b = DeviceSet.of(left), DeviceSet.of(right)

    assert list(a) == sorted(left)
    assert len(a) == len(left)
    assert set(a | b) == left | right
    assert set(a & b) == left & right
    assert set(a - b) == left - right
    assert all((device in a) == (device in left) for device in range(301))
    assert a.bits == sum(1 << device for device in left)
    assert DeviceSet(a.bits) == a


@given(ids)
def test_equal_sets_are_equal_however_they_were_made(devices: set[int]) -> None:
    a, b = DeviceSet.of(sorted(devices)), DeviceSet.of(sorted(devices, reverse=True))

    assert a == b
    assert hash(a) == hash(b)
    assert a != devices
    assert repr(a) == f"DeviceSet({sorted(devices)})"


def test_a_device_or_a_cluster_costs_its_own_bits_wherever_it_is() -> None:
    cluster = DeviceSet.of([999_000]) | DeviceSet.of(range(999_001, 999_200))

    assert cluster._places.bit_length() == len(cluster) == 200
    assert DeviceSet.of([999_999])._places == 1
