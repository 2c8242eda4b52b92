"""`python -m tolfl.net device.toml [ids of absent devices]`: a device of a launcher.

It does what `tolfl node` does, without the packages of a command line: their imports were a third of the processor time
that a device takes to start.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tolfl.core.errors import sentence_and_status
from tolfl.net.node_config import NodeConfig
from tolfl.net.prepare import prepare, run_to_the_end


def main(config: str, absent: str = "") -> int:
    """Run the device of a configuration file; return its exit status."""

    async def live() -> tuple[list[str], int]:
        return await run_to_the_end(prepare(NodeConfig.from_file(Path(config)).without(absent)))

    try:
        sentences, code = asyncio.run(live())
    except Exception as error:
        known = sentence_and_status(error)
        if known is None:
            raise
        sentences, code = [known[0]], known[1]
    sys.stderr.writelines(f"tolfl: {sentence}\n" for sentence in sentences)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
