"""How hypothesis searches: without a stopwatch, and in continuous integration along the same path every time.

`make test` looks at a fifth of the usual number of examples (`TOLFL_QUICK`), `make test-all` at all of them.
"""

from __future__ import annotations

import os

from hypothesis import settings

_EXAMPLES = 20 if os.environ.get("TOLFL_QUICK") else 100
settings.register_profile("search", deadline=None, max_examples=_EXAMPLES)
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=_EXAMPLES)
settings.load_profile("repeatable" if os.environ.get("CI") else "search")
