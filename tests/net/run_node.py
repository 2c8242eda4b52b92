"""One device on a network that a test made: `tolfl node` refuses plain text outside loopback, and is right to.

python -m tests.net.run_node device.toml
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tolfl.net.node_config import NodeConfig
from tolfl.net.prepare import prepare


async def live(config: NodeConfig) -> str:
    return await prepare(config, is_own_network=True).run()


if __name__ == "__main__":
    print(asyncio.run(live(NodeConfig.from_file(Path(sys.argv[1])))), file=sys.stderr)
