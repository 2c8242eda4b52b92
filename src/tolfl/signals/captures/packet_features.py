"""Windows of packets of all links but 802.11 as rows: the statistics of the simulation, and what scans change."""

from __future__ import annotations

import numpy as np

from tolfl.signals.captures.link_layers import IS_ARP, IS_DNS, IS_ICMP, IS_RST, IS_SYN
from tolfl.signals.captures.wlan_features import CaptureFeature, Float
from tolfl.signals.packets import STATISTICS, Windows, count, different, window_statistics

_LEAST_PACKETS = 10  #: that a share is taken of
_SHARES = {"syn_share": IS_SYN, "rst_share": IS_RST, "icmp_share": IS_ICMP, "dns_share": IS_DNS, "arp_share": IS_ARP}


def _of_statistic(name: str) -> CaptureFeature:
    if name.startswith("gap"):
        return CaptureFeature(name, "s", "duration")
    return CaptureFeature(name, "bytes", "volume") if name.endswith("bytes") else CaptureFeature(name, "", "count")


PACKET_FEATURES = (
    *map(_of_statistic, STATISTICS),
    *(CaptureFeature(name, "", "share") for name in _SHARES),
    CaptureFeature("peers", "", "count"),
)


def packet_rows(windows: Windows) -> Float:
    """Return the features of windows of packets of a capture, shape `(n_windows, 18)`.

    A share of fewer than ten packets is missing. Peers are the IP addresses that send or are sent to.
    """
    sizes = windows.sizes
    shares = [
        np.where(sizes >= _LEAST_PACKETS, count(windows, windows.packets["signs"] & sign > 0) / sizes, np.nan)
        for sign in _SHARES.values()
    ]
    return np.column_stack([window_statistics(windows), *shares, _peers(windows)])


def _peers(windows: Windows) -> Float:
    addresses = np.concatenate([windows.packets["from_ip"], windows.packets["to_ip"]])
    number = np.concatenate([windows.number, windows.number])
    is_there = addresses > 0
    return np.bincount(different(addresses[is_there], number[is_there])[0], minlength=len(windows)).astype(float)
