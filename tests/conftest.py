"""How hypothesis searches: without a stopwatch, and in continuous integration along the same path every time."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("search", deadline=None)
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable" if os.environ.get("CI") else "search")
