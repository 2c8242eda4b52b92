"""Whole Wi-Fi frames at baseband: 802.11a/g OFDM and 802.11ac VHT, from bytes to samples.

Numbers in brackets are clauses of IEEE 802.11-2020.
"""

from tolfl.signals.wifi.legacy import legacy_frame
from tolfl.signals.wifi.mac import ampdu, data_mpdu, with_check_sequence
from tolfl.signals.wifi.vht import vht_frame

__all__ = ["ampdu", "data_mpdu", "legacy_frame", "vht_frame", "with_check_sequence"]
