"""The server: Flower's FedAvg, written to be fast and to lose nothing.

It looks for replies twice a second (Flower's own loop looks every three), leaves out evaluation, and keeps the
model of every round in a file, from which the next run of the app goes on.
"""

import json
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()
_PULL_S = 0.5


def look_often(grid: Grid) -> None:
    """Let the grid wait for replies as it does, with a shorter pause."""

    def send_and_receive(messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        waiting, found = set(grid.push_messages(messages)), []
        ends = time.monotonic() + (timeout or float("inf"))
        while waiting and time.monotonic() < ends:
            replies = list(grid.pull_messages(waiting))
            found += replies
            waiting -= {reply.metadata.reply_to_message_id for reply in replies}
            if waiting:
                time.sleep(_PULL_S)
        return found

    grid.send_and_receive = send_and_receive


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    folder = Path(str(config["folder"]))
    look_often(grid)
    counts: list[int] = []

    def count(replies: list[RecordDict], weighted_by_key: str) -> MetricRecord:
        counts[:] = [int(metrics[weighted_by_key]) for one in replies for metrics in one.metric_records.values()]
        return MetricRecord({"clients": len(counts)})

    def note(server_round: int, arrays: ArrayRecord) -> None:
        if server_round > 0:  # Flower asks before the first round too
            np.save(folder / "part.npy", arrays["flat"].numpy())
            (folder / "part.npy").replace(folder / "model.npy")
        line = {"time": time.time(), "round": server_round, "clients": len(counts), "run": context.run_id}
        with (folder / "rounds.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    while len(list(grid.get_node_ids())) < int(config["devices"]):
        time.sleep(_PULL_S)
    # Every client that is there takes part; those that are lost later are not waited for before a round.
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, train_metrics_aggr_fn=count)
    start = ArrayRecord({"flat": Array(np.load(folder / "model.npy"))})
    strategy.start(grid, start, num_rounds=int(config["rounds"]), evaluate_fn=note)
