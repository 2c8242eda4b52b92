"""Whatever bytes a file holds, a reader returns data or says one sentence; it never falls over."""

from __future__ import annotations

import gzip
import io
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.datasets.written import cifar_records, idx
from tests.tables.reading import read_table
from tolfl.core.errors import TolFLError
from tolfl.datasets.public_sets import read_idx, read_records


def npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, X=np.ones((2, 2)), y=np.array(["a", "b"]))
    return file.getvalue()


def npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.ones((2, 2)))
    return file.getvalue()


def parquet() -> bytes:
    file = io.BytesIO()
    pa_parquet.write_table(pa.table({"a": [1.5, None], "b": ["x", "y"]}), file)
    return file.getvalue()


PICTURES = idx(np.zeros((2, 3, 3), np.uint8))
READERS: dict[str, tuple[str, Callable[[Path], object], bytes]] = {
    "idx": ("images", lambda path: read_idx(path, 3), PICTURES),
    "packed idx": ("images.gz", lambda path: read_idx(path, 3), gzip.compress(PICTURES, mtime=0)),
    "cifar-10": ("batch.bin", lambda path: read_records(path, (10,)), cifar_records([(1,)])),
    "cifar-100": ("batch.bin", lambda path: read_records(path, (20, 100)), cifar_records([(1, 2)])),
    "npz": ("t.npz", read_table, npz()),
    "npy": ("t.npy", read_table, npy()),
    "parquet": ("t.parquet", read_table, parquet()),
    "csv": ("t.csv", read_table, b'a,b\n1,"x"\n2.5,y\n'),
    "packed csv": ("t.csv.gz", read_table, gzip.compress(b"a,b\n1,x\n2.5,y\n", mtime=0)),
}


def read(reader: str, data: bytes) -> None:
    name, call, _ = READERS[reader]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        try:
            call(path)
        except TolFLError as problem:
            said = str(problem)
        else:
            return
    assert "\n" not in said
    assert name in said


@pytest.mark.parametrize("reader", READERS)
@given(data=st.binary(max_size=200))
def test_random_bytes_are_refused_in_a_sentence(reader: str, data: bytes) -> None:
    read(reader, data)


@pytest.mark.parametrize("reader", READERS)
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused_in_a_sentence(reader: str, data: st.DataObject) -> None:
    damaged = bytearray(READERS[reader][2])
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    read(reader, bytes(damaged[: data.draw(st.integers(0, len(damaged)))] if data.draw(st.booleans()) else damaged))


@given(text=st.text(st.sampled_from('ab,;\t"\n\r 1.5-:éx'), max_size=60))
@settings(max_examples=200)
def test_any_text_is_a_table_or_refused_in_a_sentence(text: str) -> None:
    read("csv", text.encode())
