"""`tolfl node`: one real device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tolfl.cli import options


def node(
    config: Annotated[Path, typer.Option("--config", "-c", help="The configuration of this device, in TOML.")],
    absent: Annotated[
        str, typer.Option(help="Ids of devices that are gone for good, as in 3,4: the start does not wait for them.")
    ] = "",
    learn: options.Learn = None,
    flower: options.Flower = None,
    run_config: options.RunConfig = None,
    node_config: options.NodeConfig = None,
    python: options.Python = None,
) -> None:
    """Run one device of a fleet on this machine until the run is over; Ctrl-C or SIGTERM leaves in good order.

    What was learned is in its state folder then: `detector.tolfl`, or the model. All devices of a fleet must learn the
    same: give --learn to all of them, or write it into the specification.

    Example: tolfl node --config device.toml

    Example: tolfl node --config device.toml --flower my-app --node-config "partition-id=0"
    """
    import asyncio

    from tolfl.net.node_config import NodeConfig
    from tolfl.net.prepare import prepare

    flags = {"learn": learn, "flower": flower, "run_config": run_config, "node_config": node_config, "python": python}
    given = options.with_flower(flags)
    said = {"what" if name == "learn" else name: value for name, value in given.items()}
    settings = NodeConfig.from_file(config).without(absent)

    async def live() -> str:
        return await prepare(settings, learn=said).run()

    reason = asyncio.run(live())
    typer.echo(f"tolfl: device {settings.device}: {reason}", err=True)
