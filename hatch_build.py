"""Compiles the kernel while the package is built, and makes the README one that can be read elsewhere.

Without a compiler the wheel has no kernel, and NumPy computes.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

#: Where files of the repository can be read: `make dist LINKS=...` sets it.
LINKS = "TOLFL_LINKS"


class CustomBuildHook(BuildHookInterface):
    """Puts the compiled library beside its source."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and say for which platform the wheel is; the standard library alone decides how."""
        building = _building(Path(self.root))
        path = building.HERE / building.library_name()
        for stale in building.HERE.glob("tolfl_kernel-*.so"):
            stale.unlink()
        try:
            building.compile_to(path)
        except building.BuildError as error:
            self.app.display_warning(f"the kernel is not compiled: {error}; tolfl compiles it when it is first used")
            return
        if version == "editable":
            return  # the library lies in the source tree, where it is looked for
        build_data["force_include"][str(path)] = f"tolfl/kernel/{path.name}"
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"], build_data["pure_python"] = f"py3-none-{platform}", False


class ReadmeHook(MetadataHookInterface):
    """Gives the package the README, its links to files of the repository with an address in front."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme`."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": with_links(text, os.environ.get(LINKS, ""))}


def with_links(text: str, address: str) -> str:
    """Return a page whose links to files begin with an address; a picture is asked for as it is, not as a page."""
    if not address:
        return text
    page = address.rstrip("/") + "/"
    picture = page.replace("/blob/", "/raw/")
    return re.sub(
        r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)]+)\)",
        lambda found: f"{found[1]}[{found[2]}]({picture if found[1] else page}{found[3]})",
        text,
    )


def _building(root: Path) -> ModuleType:
    """Return `tolfl.kernel.building` by itself: the package cannot be imported before it is built."""
    spec = importlib.util.spec_from_file_location("building", root / "src" / "tolfl" / "kernel" / "building.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
