"""A device that writes down how long it trained: `tolfl node` and nothing else, for `benchmarks.network`.

python -m benchmarks.timed_node node.toml
"""

from __future__ import annotations

import asyncio
import sys
import time
from concurrent.futures import Future
from pathlib import Path

from tolfl.core.contribution import Contribution
from tolfl.net.node_config import NodeConfig
from tolfl.net.prepare import prepare
from tolfl.net.trainer import Trainer
from tolfl.protocol.history import Version

#: A line for each round: its number and the seconds of local training.
TRAINING = "training.txt"


def time_training(log: Path) -> None:
    """Let every trainer of this process write down the seconds from the start of a training to its end."""
    untimed = Trainer.start

    def start(trainer: Trainer, version: Version, state: object) -> Future[Contribution]:
        began = time.perf_counter()

        def note(result: Future[Contribution]) -> None:
            if not result.cancelled():
                with log.open("a") as file:
                    file.write(f"{version.round} {time.perf_counter() - began:.6f}\n")

        training = untimed(trainer, version, state)
        training.add_done_callback(note)
        return training

    Trainer.start = start  # type: ignore[method-assign]


async def live(config: NodeConfig) -> str:
    return await prepare(config).run()


if __name__ == "__main__":
    settings = NodeConfig.from_file(Path(sys.argv[1]))
    time_training(Path(settings.state) / TRAINING)
    asyncio.run(live(settings))
