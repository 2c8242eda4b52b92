"""Recordings in SigMF: written, checked by the `sigmf` library, read again; and those of others, whole or broken."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import sigmf
from hypothesis import given, settings
from hypothesis import strategies as st
from sigmf.sigmffile import SigMFFile

from tolfl.core.errors import DataFileError
from tolfl.signals.iq_features import recording_rows
from tolfl.signals.sigmf import (
    Annotation,
    Recording,
    WrittenType,
    datatype_of,
    full_scale,
    open_recording,
    write_recording,
)

RATE_HZ, TUNED_HZ = 1e6, 2.437e9
STEP = 1.01 * 2**-16 * 2**0.5  #: half a step of 16 bits in both directions
NUMBERS = ["f32_le", "f32_be", "f64_le", "i32_be", "i16_le", "i16_be", "u16_le", "u16_be", "i8", "u8"]


def signal(n_samples: int, seed: int = 0) -> np.ndarray:
    parts = np.random.default_rng(seed).uniform(-0.9, 0.9, (n_samples, 2))
    return (parts[:, 0] + 1j * parts[:, 1]).astype(np.complex64)


def all_samples(recording: Recording) -> np.ndarray:
    return np.concatenate([recording.read(segment, 0, segment.n_samples) for segment in recording.segments])


def foreign(folder: Path, content: bytes, about: dict[str, object], **rest: object) -> Path:
    """Write a recording as somebody else would, right or wrong."""
    usual = {"core:datatype": "ci16_le", "core:version": "1.0.0", "core:sample_rate": RATE_HZ}
    meta = {"global": {**usual, **about}, "captures": [], "annotations": [], **rest}
    (folder / "theirs.sigmf-data").write_bytes(content)
    path = folder / "theirs.sigmf-meta"
    path.write_text(json.dumps(meta))
    return path


# -- ours -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("datatype", ["cf32_le", "ci16_le"])
def test_the_sigmf_library_reads_what_was_written(tmp_path: Path, datatype: WrittenType) -> None:
    samples = signal(5000)
    notes = [
        Annotation(4000, 3000, TUNED_HZ, TUNED_HZ + 1e5, "late", "a comment", "tolfl", "02:00", "02:01", 99, -50.0),
        Annotation(100, 50, TUNED_HZ - 1e5, TUNED_HZ, "early"),
    ]
    blocks = iter([samples[:700], samples[700:]])
    path = write_recording(
        tmp_path / "a.b", blocks, rate_hz=RATE_HZ, frequency_hz=TUNED_HZ, annotations=notes, datatype=datatype,
    )  # fmt: skip
    theirs = sigmf.fromfile(path)
    theirs.validate()

    assert path.name == "a.b.sigmf-meta"
    assert isinstance(theirs, SigMFFile)
    assert np.allclose(theirs.read_samples(), samples, atol=0 if datatype == "cf32_le" else STEP)
    assert theirs.sample_rate == RATE_HZ
    first, second = theirs.get_annotations()
    assert (first["core:label"], first["core:freq_lower_edge"]) == ("early", TUNED_HZ - 1e5)
    assert (second["core:sample_start"], second["core:sample_count"]) == (4000, 1000)  # cut where the samples end
    assert second["tolfl:wire_bytes"] == 99


@settings(max_examples=25)
@given(st.integers(1, 3000), st.integers(1, 1000), st.sampled_from(["cf32_le", "ci16_le"]))
def test_samples_come_back_however_they_were_cut(
    tmp_path_factory: pytest.TempPathFactory, n_samples: int, block: int, datatype: WrittenType
) -> None:
    samples = signal(n_samples, n_samples)
    blocks = (samples[first : first + block] for first in range(0, n_samples, block))
    path = tmp_path_factory.mktemp("recordings") / "ours"
    written = write_recording(path, blocks, rate_hz=RATE_HZ, frequency_hz=0.0, datatype=datatype)

    assert np.allclose(all_samples(open_recording(written)), samples, atol=0 if datatype == "cf32_le" else STEP)


def test_integers_are_cut_off_at_full_scale(tmp_path: Path) -> None:
    loud = np.array([3 - 3j, 0.5 + 0j], np.complex64)
    path = write_recording(tmp_path / "x", [loud], rate_hz=1.0, frequency_hz=0.0, datatype="ci16_le")

    assert all_samples(open_recording(path)).tolist() == [32767 / 32768 - 1j, 0.5 + 0j]


# -- those of others --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["c", "r"])
@pytest.mark.parametrize("number", NUMBERS)
def test_every_datatype_is_read_as_the_sigmf_library_reads_it(tmp_path: Path, kind: str, number: str) -> None:
    numbers_of, _ = datatype_of(kind + number)
    scale = full_scale(numbers_of)
    parts = signal(1200).view(np.float32) if kind == "c" else signal(1200).real
    numbers = np.round(parts * scale + scale * (numbers_of.kind == "u")) if scale > 1 else parts
    content = numbers.astype(numbers_of).tobytes()
    path = foreign(tmp_path, content, {"core:datatype": kind + number})
    theirs = sigmf.fromfile(path)
    assert isinstance(theirs, SigMFFile)

    found = all_samples(open_recording(path))
    assert np.allclose(found, theirs.read_samples(), atol=1e-6)
    assert np.allclose(found, signal(1200) if kind == "c" else signal(1200).real, atol=0.01)


def test_an_archive_is_read_where_it_lies(tmp_path: Path) -> None:
    samples = signal(3000)
    meta = write_recording(tmp_path / "one", [samples], rate_hz=RATE_HZ, frequency_hz=1e8)
    with tarfile.open(tmp_path / "one.sigmf", "w") as archive:
        archive.add(meta, "one/one.sigmf-meta")
        archive.add(meta.with_suffix(".sigmf-data"), "one/one.sigmf-data")

    assert np.array_equal(all_samples(open_recording(tmp_path / "one.sigmf")), samples)
    theirs = sigmf.fromfile(tmp_path / "one.sigmf")
    assert isinstance(theirs, SigMFFile)
    assert np.array_equal(theirs.read_samples(), samples)


def test_what_the_sigmf_library_writes_and_ties_up_is_read(tmp_path: Path) -> None:
    samples = signal(4000)
    samples.tofile(tmp_path / "lib.sigmf-data")
    about = {"core:datatype": "cf32_le", "core:sample_rate": 48_000, "core:version": "1.2.0"}
    made = SigMFFile(data_file=tmp_path / "lib.sigmf-data", global_info=about)
    made.add_capture(0, metadata={"core:frequency": 915e6, "core:datetime": "2026-01-01T00:00:00Z"})
    made.add_annotation(100, 200, metadata={"core:label": "beacon", "core:freq_lower_edge": 914.99e6,
                                            "core:freq_upper_edge": 915.01e6})  # fmt: skip
    made.tofile(tmp_path / "lib.sigmf-meta")
    made.archive(tmp_path / "tied.sigmf")

    for name in ("lib.sigmf-meta", "tied.sigmf"):
        recording = open_recording(tmp_path / name)
        assert np.array_equal(all_samples(recording), samples)
        assert recording.segments[0].frequency_hz == 915e6
        assert [note.label for note in recording.annotations] == ["beacon"]
        (rows,) = recording_rows(recording)
        assert list(rows.labels) == ["beacon", "none", "none"]


def test_either_of_the_two_files_names_the_recording(tmp_path: Path) -> None:
    meta = write_recording(tmp_path / "one", [signal(10)], rate_hz=RATE_HZ, frequency_hz=1e8)

    assert open_recording(meta).n_samples == open_recording(meta.with_suffix(".sigmf-data")).n_samples == 10


def test_headers_trailers_offsets_and_channels_are_understood(tmp_path: Path) -> None:
    # Two channels; the file starts with 8 bytes of something, has 4 more before the second capture, 6 at the end.
    numbers = np.arange(40, dtype="<i2").reshape(10, 2, 2)
    content = bytes(8) + numbers[:6].tobytes() + bytes(4) + numbers[6:].tobytes() + bytes(6)
    captures = [
        {"core:sample_start": 100, "core:header_bytes": 8, "core:frequency": 1e9, "core:global_index": 5000},
        {"core:sample_start": 106, "core:header_bytes": 4, "core:frequency": 2e9, "core:global_index": 9000},
    ]
    about = {"core:num_channels": 2, "core:offset": 100, "core:trailing_bytes": 6, "core:dataset": "samples.bin"}
    path = foreign(tmp_path, content, about, captures=captures, annotations=[{"core:sample_start": 107}])
    (tmp_path / "theirs.sigmf-data").rename(tmp_path / "samples.bin")
    recording = open_recording(path)

    assert [(s.start, s.n_samples, s.frequency_hz) for s in recording.segments] == [(0, 6, 1e9), (6, 4, 2e9)]
    assert [s.time_s for s in recording.segments] == [0.0, pytest.approx(4e-3)]
    assert (all_samples(recording).real * 32768).tolist() == list(range(0, 40, 4))
    assert recording.annotations[0].sample_start == 7


def test_no_window_lies_across_a_retuning_and_labels_are_those_of_the_annotations(tmp_path: Path) -> None:
    notes = [
        {"core:sample_start": 0, "core:sample_count": 2100, "core:label": "wifi"},
        {"core:sample_start": 1500, "core:sample_count": 10, "core:label": "bluetooth"},
        {"core:sample_start": 1600, "core:sample_count": 10},
        {"core:sample_start": 4024, "core:label": "jammer"},
    ]
    captures = [{"core:sample_start": 0}, {"core:sample_start": 3000}]
    content = (signal(6100).view(np.float32) * 30000).astype("<i2").tobytes()
    path = foreign(tmp_path, content, {}, captures=captures, annotations=notes)
    (rows,) = recording_rows(open_recording(path))

    # Windows of 1024 samples (a millisecond would be too short for a spectrum): two before sample 3000, three after it.
    assert list(rows.labels) == ["wifi", "bluetooth+wifi", "none", "jammer", "jammer"]
    assert (rows.start_s * RATE_HZ).round().tolist() == [0, 1024, 3000, 4024, 5048]
    assert rows.features.shape == (5, len(rows.names))


# -- broken ones ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("about", "rest", "sentence"),
    [
        ({"core:datatype": "cf16_le"}, {}, "core:datatype 'cf16_le' is unknown"),
        ({"core:datatype": "ci16"}, {}, "core:datatype 'ci16' is unknown"),
        ({"core:sample_rate": 0}, {}, r"Expected `float` > 0.0 - at `\$.global"),
        ({"core:sample_rate": None}, {}, r"Expected `float`, got `null` - at `\$.global"),
        ({"core:sample_rate": "fast"}, {}, "the metadata are not those of SigMF"),
        ({"core:sha512": "0" * 128}, {}, "core:sha512 differs"),
        ({"core:num_channels": 0}, {}, r"Expected `int` >= 1 - at `\$.global"),
        ({"core:metadata_only": True}, {}, "there are no samples to it"),
        ({"core:dataset": "../other"}, {}, "is no name of a file beside it"),
        ({"core:trailing_bytes": 4000}, {}, "there is no sample in it"),
        ({"core:trailing_bytes": 2}, {}, "2 bytes are left after the last whole sample of 4"),
        ({}, {"annotations": [{"core:sample_start": 900, "core:sample_count": 200}]}, "refer to sample 1100, but"),
        ({}, {"annotations": [{"core:sample_start": 5, "core:sample_count": -1}]}, ">= 0 - at `.*annotations"),
        ({}, {"captures": [{"core:sample_start": 1000}]}, "refer to sample 1001, but there are 1000"),
        ({}, {"captures": [{"core:sample_start": 9}, {"core:sample_start": 1}]}, "not in the order of their samples"),
        ({}, {"captures": "none"}, "the metadata are not those of SigMF"),
    ],
)  # fmt: skip
def test_metadata_that_lie_get_one_sentence(
    tmp_path: Path, about: dict[str, object], rest: dict[str, object], sentence: str
) -> None:
    path = foreign(tmp_path, bytes(4000), about, **rest)

    with pytest.raises(DataFileError, match=sentence) as caught:
        open_recording(path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "the metadata are empty"),
        (b"{", "are no JSON"),
        (b"\xff\xfe", "are no JSON"),
        (b"[]", "not those of SigMF"),
        (b"{}", "not those of SigMF"),
    ],
)
def test_metadata_that_are_none_get_one_sentence(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = foreign(tmp_path, bytes(4000), {})
    path.write_bytes(content)

    with pytest.raises(DataFileError, match=sentence):
        open_recording(path)


def test_files_that_are_missing_empty_or_something_else_get_one_sentence(tmp_path: Path) -> None:
    path = foreign(tmp_path, b"", {})
    with pytest.raises(DataFileError, match="there is no sample in it"):
        open_recording(path)
    path.with_suffix(".sigmf-data").unlink()
    with pytest.raises(DataFileError, match=r"theirs\.sigmf-data is not beside it"):
        open_recording(path)
    with pytest.raises(DataFileError, match="no such file"):
        open_recording(tmp_path / "nothing.sigmf-meta")
    with pytest.raises(DataFileError, match="no recording by its name"):
        open_recording(tmp_path / "song.wav")
    (tmp_path / "bad.sigmf").write_bytes(b"not a tar file" * 100)
    with pytest.raises(DataFileError, match="no archive of SigMF"):
        open_recording(tmp_path / "bad.sigmf")
    with pytest.raises(DataFileError, match="a packed archive"):
        open_recording(tmp_path / "packed.sigmf.gz")


def test_archives_without_samples_or_with_two_recordings_get_one_sentence(tmp_path: Path) -> None:
    meta = write_recording(tmp_path / "one", [signal(10)], rate_hz=RATE_HZ, frequency_hz=1e8)
    with tarfile.open(tmp_path / "half.sigmf", "w") as archive:
        archive.add(meta, "one.sigmf-meta")
    with tarfile.open(tmp_path / "two.sigmf", "w") as archive:
        archive.add(meta, "one.sigmf-meta")
        archive.add(meta, "two.sigmf-meta")

    with pytest.raises(DataFileError, match=r"there is no one\.sigmf-data in the archive"):
        open_recording(tmp_path / "half.sigmf")
    with pytest.raises(DataFileError, match="2 recordings, not one"):
        open_recording(tmp_path / "two.sigmf")


def test_a_recording_shorter_than_a_window_gets_one_sentence(tmp_path: Path) -> None:
    path = foreign(tmp_path, bytes(4 * 1023), {})

    with pytest.raises(DataFileError, match="1023 samples are less than one window of 1024"):
        next(recording_rows(open_recording(path)))


@settings(max_examples=60)
@given(st.binary(max_size=300))
def test_random_metadata_never_lead_to_anything_but_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = foreign(tmp_path_factory.mktemp("random"), bytes(4000), {})
    path.write_bytes(content)

    with pytest.raises(DataFileError):
        open_recording(path)


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.sampled_from(["core:sample_rate", "core:offset", "core:num_channels", "core:trailing_bytes", "core:sha512"]),
        st.one_of(st.none(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=5)),
    ),
    st.lists(st.dictionaries(st.sampled_from(["core:sample_start", "core:header_bytes", "core:global_index"]),
                             st.integers(-10, 2000)), max_size=3),
)  # fmt: skip
def test_strange_metadata_lead_to_samples_or_to_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, about: dict[str, object], captures: list[dict[str, int]]
) -> None:
    path = foreign(tmp_path_factory.mktemp("strange"), bytes(4000), about, captures=captures)
    try:
        recording = open_recording(path)
    except DataFileError:
        return

    assert len(all_samples(recording)) == recording.n_samples


def test_the_hash_is_that_of_the_samples(tmp_path: Path) -> None:
    content = bytes(range(200)) * 20
    path = foreign(tmp_path, content, {"core:sha512": hashlib.sha512(content).hexdigest().upper()})

    assert open_recording(path).n_samples == 1000
