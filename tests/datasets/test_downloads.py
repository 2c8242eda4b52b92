"""Downloads from a server of the test's own: whole, cut, refused, checked, and nothing half-written."""

from __future__ import annotations

import hashlib
import io
import socket
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.datasets.written import idx_files, write_cifar_100
from tolfl.datasets.downloads import DownloadError, DownloadProgress, download, unpack
from tolfl.datasets.public_sets import PUBLIC_SETS, find, load_public

BIG = bytes(range(256)) * 4096  # one MiB


class Shelf(ThreadingHTTPServer):
    """Files by name, and how badly they are served."""

    files: dict[str, bytes]
    asked: list[str]
    cut_after: list[int]
    hides_length = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/data/"

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that has heard enough hangs up."""


class Handler(BaseHTTPRequestHandler):
    server: Shelf

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        data = self.server.files.get(self.path.rsplit("/", 1)[-1])
        if data is None:
            self.send_error(404)
            return
        self.send_response(200)
        if not self.server.hides_length:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: self.server.cut_after.pop(0) if self.server.cut_after else None])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Shelf(("127.0.0.1", 0), Handler)
    server.files, server.asked, server.cut_after = {}, [], []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def offer(monkeypatch: pytest.MonkeyPatch, shelf: Shelf, name: str, files: dict[str, bytes]) -> None:
    """Put files on the shelf, and their checksums where the published ones are."""
    shelf.files |= files
    md5 = {file: hashlib.md5(data).hexdigest() for file, data in files.items()}
    monkeypatch.setitem(PUBLIC_SETS, name, replace(PUBLIC_SETS[name], address="http://127.0.0.1:9/unused", md5=md5))


@pytest.fixture
def mnist(monkeypatch: pytest.MonkeyPatch, shelf: Shelf) -> Shelf:
    offer(monkeypatch, shelf, "mnist", idx_files())
    return shelf


def packed(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def everything_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_whole_set_arrives_is_found_and_can_be_read(mnist: Shelf, tmp_path: Path) -> None:
    seen: list[DownloadProgress] = []
    folder = download("mnist", tmp_path, mnist.url, seen.append)

    assert folder == tmp_path / "mnist" == find("mnist", str(tmp_path))
    assert load_public("mnist", str(tmp_path)).n_samples == 8
    assert everything_in(tmp_path) == {f"mnist/{name}" for name in idx_files()}
    assert [step.file for step in seen] == list(idx_files())
    assert all(step.done == step.total for step in seen)
    assert mnist.asked[0] == "/data/train-images-idx3-ubyte"


def test_what_is_there_is_not_fetched_again(mnist: Shelf, tmp_path: Path) -> None:
    download("mnist", tmp_path, mnist.url)
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte").unlink()
    mnist.asked.clear()
    download("mnist", tmp_path, mnist.url)
    download("mnist", tmp_path, "http://127.0.0.1:9/nobody-asks-here")

    assert mnist.asked == ["/data/t10k-labels-idx1-ubyte"]


@pytest.fixture
def big(monkeypatch: pytest.MonkeyPatch, shelf: Shelf) -> Shelf:
    offer(monkeypatch, shelf, "mnist", {**idx_files(), "train-images-idx3-ubyte": BIG})
    return shelf


def test_a_connection_that_is_cut_leaves_nothing_and_the_next_call_fetches_all(big: Shelf, tmp_path: Path) -> None:
    big.cut_after = [300_000]
    with pytest.raises(DownloadError, match="the connection was cut; try again"):
        download("mnist", tmp_path, big.url)
    assert everything_in(tmp_path) == set()

    download("mnist", tmp_path, big.url)

    assert (tmp_path / "mnist" / "train-images-idx3-ubyte").read_bytes() == BIG


def test_a_server_that_hides_the_length_is_trusted_until_the_checksum(big: Shelf, tmp_path: Path) -> None:
    big.hides_length = True
    seen: list[DownloadProgress] = []
    download("mnist", tmp_path, big.url, seen.append)

    assert (tmp_path / "mnist" / "train-images-idx3-ubyte").read_bytes() == BIG
    assert seen[0].total is None


def test_a_wrong_checksum_removes_the_file(mnist: Shelf, tmp_path: Path) -> None:
    mnist.files["train-labels-idx1-ubyte"] += b"!"
    with pytest.raises(DownloadError, match=r"train-labels-idx1-ubyte: .* published checksum and was removed"):
        download("mnist", tmp_path, mnist.url)

    assert everything_in(tmp_path) == {"mnist/train-images-idx3-ubyte"}


def test_a_file_that_the_server_does_not_have(mnist: Shelf, tmp_path: Path) -> None:
    mnist.files.clear()
    with pytest.raises(DownloadError, match=r"the server answers 404 Not Found; .* or put train-images") as caught:
        download("mnist", tmp_path, mnist.url)

    assert str(tmp_path / "mnist") in str(caught.value)
    assert not everything_in(tmp_path)


def test_without_a_server_one_sentence_says_what_to_put_where(mnist: Shelf, tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound, not listening: nobody answers there
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(DownloadError, match="cannot be reached") as caught:
            download("mnist", tmp_path, f"http://127.0.0.1:{taken.getsockname()[1]}")

    assert f"into {tmp_path / 'mnist'}" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not everything_in(tmp_path)


def test_a_server_that_says_nothing_is_given_up_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(DownloadError, match="cannot be reached"):
            download("mnist", tmp_path, url, timeout_s=0.05)


@pytest.mark.parametrize("address", ["file:///etc/", "ftp://example.org", "nonsense"])
def test_only_the_web_is_asked(tmp_path: Path, address: str) -> None:
    with pytest.raises(DownloadError, match="not an address that starts with http"):
        download("mnist", tmp_path, address)


def test_an_archive_is_unpacked_and_removed(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = write_cifar_100(tmp_path / "written")
    files = {f"cifar-100-binary/{path.name}": path.read_bytes() for path in written.iterdir()}
    offer(monkeypatch, shelf, "cifar-100", {"cifar-100-binary.tar.gz": packed(files)})
    folder = download("cifar-100", tmp_path / "data", shelf.url)

    assert folder == tmp_path / "data" / "cifar-100-binary"
    assert everything_in(tmp_path / "data") == set(files)
    assert load_public("cifar-100", str(tmp_path / "data")).n_samples == 4


def test_an_archive_with_the_wrong_checksum_is_not_unpacked(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, shelf, "cifar-10", {"cifar-10-binary.tar.gz": packed({"a": b"b"})})
    shelf.files["cifar-10-binary.tar.gz"] = packed({"../evil": b"x"})
    with pytest.raises(DownloadError, match="checksum"):
        download("cifar-10", tmp_path / "data", shelf.url)

    assert not everything_in(tmp_path)


@pytest.mark.parametrize("name", ["../evil", "cifar-100-binary/../../evil", "train.bin", "cifar-100-binary/train.bin"])
def test_an_archive_cannot_write_elsewhere_nor_lack_a_file(tmp_path: Path, name: str) -> None:
    archive = tmp_path / "data" / "a.tar.gz"
    archive.parent.mkdir()
    archive.write_bytes(packed({name: b"x"}))
    with pytest.raises(DownloadError, match=r"cannot be unpacked|there is no cifar-100-binary/t"):
        unpack(archive, archive.parent / "cifar-100-binary", ("train.bin", "test.bin"))

    assert everything_in(tmp_path) == {"data/a.tar.gz"}


@pytest.mark.parametrize(
    "data", [b"", b"not a tar", packed({"a": b"b" * 5000})[:60]], ids=["empty", "text", "cut short"]
)
def test_a_damaged_archive_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.tar.gz").write_bytes(data)
    with pytest.raises(DownloadError, match=r"a\.tar\.gz: cannot be unpacked"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "folder", ("train.bin",))

    assert everything_in(tmp_path) == {"a.tar.gz"}


def test_wsn_ds_is_fetched_by_hand(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"https://www\.kaggle\.com/datasets/bassamkasasbeh1/wsnds"):
        download("wsn-ds", tmp_path)


def test_a_place_that_cannot_be_written_is_named(mnist: Shelf, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(DownloadError, match="cannot be written"):
        download("mnist", tmp_path / "file", mnist.url)


def test_every_set_has_an_address_or_says_where_to_get_it() -> None:
    fetched = {name: known for name, known in PUBLIC_SETS.items() if known.md5}

    assert set(fetched) == {"mnist", "fashion-mnist", "cifar-10", "cifar-100"}
    assert all(known.address and len(md5) == 32 for known in fetched.values() for md5 in known.md5.values())
