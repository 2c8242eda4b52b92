"""`tolfl node`: one real device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def node(
    config: Annotated[Path, typer.Option("--config", "-c", help="The configuration of this device, in TOML.")],
) -> None:
    """Run one device of a fleet on this machine until the run is over; Ctrl-C or SIGTERM leaves in good order.

    Example: tolfl node --config device.toml
    """
    import asyncio

    from tolfl.net.config import NodeConfig
    from tolfl.net.preparing import prepare

    settings = NodeConfig.from_file(config)

    async def live() -> str:
        return await prepare(settings).run()

    reason = asyncio.run(live())
    typer.echo(f"tolfl: device {settings.device}: {reason}", err=True)
