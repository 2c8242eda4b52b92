"""The authority of a fleet: whom it lets in, whom it never lets in again, and what it says of files that are spoilt."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.net.hostile_peers import certificate_for, issuer_in
from tolfl.net.enrolment import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    REVOCATIONS,
    Authority,
    EnrolmentError,
    EnrolmentRequestError,
    Revocations,
    read_certificate,
    read_revocations,
)
from tolfl.net.tls import Credentials, Identity, identity_of


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "fleet", "plant")


def names_of(certificate: x509.Certificate) -> list[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return names.get_values_for_type(x509.DNSName)


# -- certificates -----------------------------------------------------------------------------------------------------


def test_a_certificate_binds_the_id_and_the_generation_and_signs_nothing(authority: Authority) -> None:
    certificate = read_certificate(authority.issue("gateway", 3) / CERTIFICATE)

    assert names_of(certificate) == ["d3-g1.plant.tolfl", "device.plant.tolfl"]
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign


def test_an_operator_is_no_device(authority: Authority) -> None:
    tls = Credentials(authority.issue("me", None))

    assert tls.identity == Identity(is_operator=True)


def test_keys_are_for_their_owner_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        authority = Authority.create(tmp_path / "fleet")
        folder = authority.issue("gateway", 3)
        authority.renew("gateway")
    finally:
        os.umask(before)

    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob(KEY)}
    assert modes == {authority.folder / KEY: 0o600, folder / KEY: 0o600}
    assert not list(tmp_path.rglob("*.part"))


def test_a_renewed_certificate_has_another_key_and_the_same_name(authority: Authority) -> None:
    folder = authority.issue("gateway", 3, days=1)
    before = {name: (folder / name).read_bytes() for name in (KEY, CERTIFICATE)}
    authority.renew("gateway", days=400)

    assert all((folder / name).read_bytes() != content for name, content in before.items())
    assert Credentials(folder).identity == Identity(3, 1)
    (folder / CERTIFICATE).write_bytes(before[CERTIFICATE])
    with pytest.raises(EnrolmentError, match="not the key of"):
        Credentials(folder)


@given(st.lists(st.tuples(st.sampled_from(["issue", "revoke", "again", "renew"]), st.integers(0, 1)), max_size=12))
@settings(max_examples=25)
def test_whoever_was_revoked_never_counts_again(steps: list[tuple[str, int]]) -> None:
    """Whatever is done in whatever order: `again` revokes the first certificate of an id once more."""
    with TemporaryDirectory() as folder:
        authority = Authority.create(Path(folder), "plant")
        issued: dict[int, list[str]] = {0: [], 1: []}
        versions = [0]
        for number, (step, device) in enumerate(steps):
            names = issued[device]
            if step == "issue" and all(authority.entries()[name].is_revoked for name in names):
                authority.issue(f"n{number}", device)
                names.append(f"n{number}")
            elif step == "renew" and names and not authority.entries()[names[-1]].is_revoked:
                authority.renew(names[-1])
            elif step in ("revoke", "again") and names:
                authority.revoke(names[-1] if step == "revoke" else names[0])
            versions.append(authority.revocations().version)

        revocations = authority.revocations()
        assert versions == sorted(versions)
        for entry in authority.entries().values():
            assert entry.device is not None
            assert entry.is_revoked == (entry.generation < revocations.of(entry.device))


def test_names_and_ids_are_taken_once(authority: Authority) -> None:
    authority.issue("gateway", 3)

    with pytest.raises(EnrolmentError, match="'gateway' is enrolled already"):
        authority.issue("gateway", 4)
    with pytest.raises(EnrolmentError, match="device 3 is 'gateway' already"):
        authority.issue("other", 3)
    authority.issue("me", None)
    authority.issue("you", None)  # as many operators as there are


@pytest.mark.parametrize("name", ["", "Gateway", "a b", "../x", "a.b", "-a", "a-", "x" * 43, "a\n", "é"])
def test_a_name_that_no_certificate_can_have_is_refused(authority: Authority, name: str) -> None:
    with pytest.raises(EnrolmentRequestError, match="use small letters"):
        authority.issue(name, 3)
    assert authority.entries() == {}
    assert not (authority.folder / "devices").exists()


# -- whom a certificate means -----------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(1, 99), st.from_regex(r"[a-z0-9-]{1,9}", fullmatch=True))
def test_a_name_means_a_device_of_its_own_fleet_alone(device: int, generation: int, other: str) -> None:
    name = f"d{device}-g{generation}.plant.tolfl"

    assert identity_of([name, "device.plant.tolfl"], "plant") == Identity(device, generation)
    if other != "plant":
        assert identity_of([name], other) is None


@pytest.mark.parametrize(
    "name",
    ["", "d3.plant.tolfl", "d-3-g1.plant.tolfl", "d3-g1.plant.tolfl.evil.org", "xd3-g1.plant.tolfl", "*.plant.tolfl"],
)
def test_a_name_that_only_looks_like_one_means_nobody(name: str) -> None:
    assert identity_of([name], "plant") is None


# -- lists of revocations ---------------------------------------------------------------------------------------------


def test_the_list_says_the_lowest_generation_that_counts(authority: Authority) -> None:
    authority.issue("gateway", 3)
    authority.revoke("gateway")
    replaced = Credentials(authority.issue("gateway-2", 3))

    assert authority.revocations() == Revocations(1, {"3": 2})
    assert replaced.identity == Identity(3, 2)
    assert not replaced.is_revoked(replaced.identity)
    assert replaced.is_revoked(Identity(3, 1))
    assert not replaced.is_revoked(Identity(1, 1))
    assert not replaced.is_revoked(Identity(is_operator=True))


def test_a_newer_list_is_news_and_an_older_one_is_not(authority: Authority) -> None:
    tls = Credentials(authority.issue("gateway", 3))
    authority.issue("other", 4)
    lists = [(authority.folder / REVOCATIONS).read_bytes()]
    for name in ("gateway", "other"):
        authority.revoke(name)
        lists.append((authority.folder / REVOCATIONS).read_bytes())

    assert [tls.learn(one) for one in (lists[0], b"", lists[2])] == [None, None, {3, 4}]
    assert [tls.learn(one) for one in lists] == [None] * 3
    assert tls.revocations == lists[2]
    assert tls.is_revoked(Identity(4, 1))


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, x509.Certificate]:
    authority = Authority.create(tmp_path_factory.mktemp("signed") / "fleet", "plant")
    authority.issue("gateway", 3)
    authority.revoke("gateway")
    return (authority.folder / REVOCATIONS).read_bytes(), read_certificate(authority.folder / AUTHORITY)


@given(data=st.data())
def test_a_list_that_was_changed_anywhere_is_refused(
    signed: tuple[bytes, x509.Certificate], data: st.DataObject
) -> None:
    content, certificate = signed
    place = data.draw(st.integers(0, len(content) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != content[place]))
    spoilt = content[:place] + bytes([other]) + content[place + 1 :]

    try:
        found = read_revocations(spoilt, certificate)
    except EnrolmentError:
        return
    # Spaces, or a digit in capitals: another way to write the same.
    assert found == read_revocations(content, certificate)


@pytest.mark.parametrize(
    "content", [b"[" * 3_000, b'{"mood":' + b"[" * 3_000, b"\xff{"], ids=["list", "field", "bytes"]
)
def test_brackets_without_end_are_no_list(signed: tuple[bytes, x509.Certificate], content: bytes) -> None:
    with pytest.raises(EnrolmentError, match="has not signed"):
        read_revocations(content, signed[1])


def test_a_list_of_another_authority_is_refused(authority: Authority, signed: tuple[bytes, x509.Certificate]) -> None:
    folder = authority.issue("gateway", 3)
    tls = Credentials(folder)

    with pytest.raises(EnrolmentError, match="has not signed"):
        tls.learn(signed[0])
    (folder / REVOCATIONS).write_bytes(signed[0])
    assert tls.reread() is None
    assert not tls.is_revoked(tls.identity)


# -- files that are spoilt --------------------------------------------------------------------------------------------

Spoiler = Callable[[Path], object]


def write_rsa(folder: Path) -> None:
    key = rsa.generate_private_key(65537, 2048)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (folder / KEY).write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))


def lock(folder: Path) -> None:
    _, key = issuer_in(folder)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (folder / KEY).write_bytes(key.private_bytes(encoding, form, serialization.BestAvailableEncryption(b"secret")))


def rename(*names: str) -> Spoiler:
    def spoil(folder: Path) -> None:
        issuer = issuer_in(folder.parents[1])
        for file, content in zip((KEY, CERTIFICATE), certificate_for(names, *issuer), strict=True):
            (folder / file).write_bytes(content)

    return spoil


def outlive(folder: Path) -> None:
    issuer = issuer_in(folder.parents[1])
    for file, content in zip((KEY, CERTIFICATE), certificate_for(["d3-g1.plant.tolfl"], *issuer, days=-1), strict=True):
        (folder / file).write_bytes(content)


def adopt(folder: Path) -> None:
    other = Authority.create(folder / "other", "plant")
    (folder / AUTHORITY).write_bytes((other.folder / AUTHORITY).read_bytes())


KEYS: list[tuple[str, Spoiler, str]] = [
    ("no key", lambda f: (f / KEY).unlink(), "key.pem: No such file"),
    ("garbage key", lambda f: (f / KEY).write_bytes(b"\x00garbage"), "no private key"),
    ("half a key", lambda f: (f / KEY).write_bytes((f / KEY).read_bytes()[:100]), "no private key"),
    ("key under a password", lock, "no private key"),
    ("key of another kind", write_rsa, "no private key"),
    ("key that others read", lambda f: (f / KEY).chmod(0o640), "chmod 600"),
    ("no authority", lambda f: (f / AUTHORITY).unlink(), "authority.pem: No such file"),
    ("garbage authority", lambda f: (f / AUTHORITY).write_text("garbage"), "authority.pem is no certificate"),
]
DEVICE: list[tuple[str, Spoiler, str]] = [
    *KEYS,
    ("no certificate", lambda f: (f / CERTIFICATE).unlink(), "cert.pem: No such file"),
    ("garbage certificate", lambda f: (f / CERTIFICATE).write_bytes(b""), "cert.pem is no certificate"),
    ("of another authority", adopt, "cert.pem is not of authority.pem"),
    ("certificate that ended", outlive, "ended on .*; tolfl enroll renew"),
    ("certificate of a web server", rename("localhost"), "no certificate of a fleet"),
    ("certificate without a name", rename(), "no certificate of a fleet"),
    ("certificate of nobody", rename("x.plant.tolfl"), "no certificate of a fleet"),
    ("garbage list", lambda f: (f / REVOCATIONS).write_text("[]"), "revocations.json.*has not signed"),
]
REGISTRY: list[tuple[str, Spoiler, str]] = [
    ("garbage registry", lambda f: (f / "devices.json").write_text('{"a": 1}'), "devices.json cannot be read"),
    ("no list", lambda f: (f / REVOCATIONS).unlink(), "revocations.json cannot be used.*restore it"),
    ("garbage list", lambda f: (f / REVOCATIONS).write_text("{}"), "revocations.json cannot be used.*restore it"),
]


def check_sentence(error: EnrolmentError, secrets: str) -> None:
    assert "\n" not in str(error)
    assert len(str(error)) < 400
    for line in re.findall(r"[A-Za-z0-9+/=]{30,}", secrets):
        assert line not in str(error)


@pytest.mark.parametrize(("spoil", "said"), [case[1:] for case in DEVICE], ids=[case[0] for case in DEVICE])
def test_spoilt_credentials_are_named_in_one_sentence(authority: Authority, spoil: Spoiler, said: str) -> None:
    folder = authority.issue("gateway", 3)
    secrets = (folder / KEY).read_text()
    Credentials(folder)
    spoil(folder)
    with pytest.raises(EnrolmentError, match=said) as error:
        Credentials(folder)

    check_sentence(error.value, secrets)


@pytest.mark.parametrize(
    ("spoil", "said"), [case[1:] for case in KEYS + REGISTRY], ids=[case[0] for case in KEYS + REGISTRY]
)
def test_a_spoilt_authority_is_named_in_one_sentence(authority: Authority, spoil: Spoiler, said: str) -> None:
    authority.issue("gateway", 3)
    secrets = (authority.folder / KEY).read_text()
    spoil(authority.folder)
    with pytest.raises(EnrolmentError, match=said) as error:
        Authority(authority.folder).issue("other", 4)

    check_sentence(error.value, secrets)
    assert not (authority.folder / "devices" / "other" / CERTIFICATE).exists()


def test_an_authority_is_never_overwritten(authority: Authority) -> None:
    before = (authority.folder / KEY).read_bytes()
    with pytest.raises(EnrolmentError, match="holds an authority already"):
        Authority.create(authority.folder)

    assert (authority.folder / KEY).read_bytes() == before
