"""Half of a fleet on 64-bit ARM (under qemu-user) changes no bit of the model that the simulator predicts here."""

from __future__ import annotations

import importlib.metadata
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.net.fleet_processes import fleet_of, small_spec
from tests.net.test_detector_fleets import files_of
from tolfl.net.collect import collect
from tolfl.sim.simulation import run

pytestmark = [pytest.mark.slow, pytest.mark.processes, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
ARM64 = ROOT / ".arm64"
_KERNEL = """
import platform
from tolfl.kernel import chosen_kernel
print(platform.machine(), chosen_kernel().kernel.name, chosen_kernel().problem)
"""


@pytest.fixture(scope="module")
def arm_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Python for ARM, to be called as any other, whose kernel is compiled."""
    if shutil.which("qemu-aarch64") is None or not (ARM64 / ".up-to-date").is_file():
        pytest.skip("there is no emulated processor: make tools makes one")
    folder = tmp_path_factory.mktemp("arm64")
    metadata = folder / "names" / "tolfl-0.dist-info"  # an editable install's, without its path
    metadata.mkdir(parents=True)
    for name in ("METADATA", "entry_points.txt"):
        (metadata / name).write_text(importlib.metadata.distribution("tolfl").read_text(name) or "")
    paths = ":".join(map(str, (ARM64 / "site", ROOT / "src", metadata.parent)))
    program = folder / "python"
    settings = f"PYTHONPATH={paths} CC=aarch64-linux-gnu-gcc XDG_CACHE_HOME={folder}"
    (emulated,) = (ARM64 / "root" / "usr" / "bin").glob("python3.*[0-9]")
    program.write_text(f'#!/bin/sh\n{settings} exec qemu-aarch64 -L {ARM64 / "root"} {emulated} "$@"\n')
    program.chmod(0o755)
    found = subprocess.run([program, "-c", _KERNEL], capture_output=True, text=True, check=False)
    assert found.stdout == "aarch64 compiled (base) \n", found.stderr
    return program


@pytest.mark.parametrize("learn", ["autoencoder", "detector"])
@pytest.mark.parametrize("of_arm", ["1 | 3 | 5", "0 | 2 | 4"], ids=["members on ARM", "heads on ARM"])
def test_half_a_fleet_on_another_processor_changes_no_bit(
    learn: str, of_arm: str, arm_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is a head in the beginning dies, so heads and the closer have been of both kinds."""
    either = tmp_path / "python"
    both = (
        f'{of_arm}) exec {arm_python} "$@" ;;',
        f'*) exec {shlex.quote(sys.executable)} "$@" ;;',
    )
    # The launcher's command is `-m tolfl.net .../devices/N/node.toml`.
    either.write_text("\n".join(["#!/bin/sh", 'case $(basename "$(dirname "$3")") in', *both, "esac"]) + "\n")
    either.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(either))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    spec = small_spec(6, 3, rounds=20, fail="server@3;closer@8", learn={"what": learn})

    with fleet_of(spec, tmp_path / "run", is_insecure=False) as fleet:
        fleet.until_the_end()
    summary = collect(fleet.launcher.directory, spec, fleet.data, fleet.survivors)

    (simulated,) = run(spec)
    assert fleet.survivors == [1, 2, 3, 5]
    for name in ("state_digest", "model_sha256", "survivors", "rounds_done"):
        assert summary[name] == simulated.summary[name], name
    if learn == "detector":
        assert len(files_of(tmp_path / "run", fleet.survivors)) == 1
