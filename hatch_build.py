"""Compiles the kernel while the package is built; without a compiler the wheel has none, and NumPy computes."""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


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


def _building(root: Path) -> ModuleType:
    """Return `tolfl.kernel.building` by itself: the package cannot be imported before it is built."""
    spec = importlib.util.spec_from_file_location("building", root / "src" / "tolfl" / "kernel" / "building.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
