"""Tiny files in the exact public formats."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


def idx(array: Bytes) -> bytes:
    header = bytes([0, 0, 8, array.ndim])
    return header + b"".join(length.to_bytes(4, "big") for length in array.shape) + array.tobytes()


def idx_files(n_train: int = 6, n_test: int = 2, side: int = 3) -> dict[str, bytes]:
    pixels = np.arange((n_train + n_test) * side * side, dtype=np.uint8).reshape(-1, side, side)
    labels = (np.arange(n_train + n_test) % 10).astype(np.uint8)
    return {
        "train-images-idx3-ubyte": idx(pixels[:n_train]),
        "train-labels-idx1-ubyte": idx(labels[:n_train]),
        "t10k-images-idx3-ubyte": idx(pixels[n_train:]),
        "t10k-labels-idx1-ubyte": idx(labels[n_train:]),
    }


def write_idx(folder: Path, **changed: bytes) -> Path:
    """Write the four files; `train_images=b"..."` replaces one of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in idx_files().items():
        short = "_".join(name.split("-")[:2])
        (folder / f"{name}.gz").write_bytes(gzip.compress(changed.get(short, data)))
    return folder


def cifar_records(labels: list[tuple[int, ...]], red: int = 10, green: int = 20, blue: int = 30) -> bytes:
    pixels = bytes([red]) * 1024 + bytes([green]) * 1024 + bytes([blue]) * 1024
    return b"".join(bytes(label) + pixels for label in labels)


def write_cifar_10(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, 6):
        (folder / f"data_batch_{number}.bin").write_bytes(cifar_records([(number,), (0,)]))
    (folder / "test_batch.bin").write_bytes(cifar_records([(9,)], 255, 0, 0))
    return folder


def write_cifar_100(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.bin").write_bytes(cifar_records([(4, 0), (1, 1), (19, 99)]))
    (folder / "test.bin").write_bytes(cifar_records([(10, 71)]))
    return folder


def csv(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.name.endswith(".gz") else text.encode())
    return path
