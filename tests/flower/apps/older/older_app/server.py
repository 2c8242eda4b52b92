"""A server of the older kind, with or without first parameters."""

import numpy as np
from flwr.common import ndarrays_to_parameters
from flwr.server import Server, ServerAppComponents, ServerConfig, SimpleClientManager
from flwr.server.strategy import FedAvg
from flwr.serverapp import ServerApp


def most_rows(metrics):
    return {"most-rows": np.max([told["rows"] for _, told in metrics])}  # a number of NumPy, as means of it are


def server_fn(context):
    told = context.run_config
    first = ndarrays_to_parameters([np.zeros(4, np.float32)]) if told["has-parameters"] else None
    own = {"fit_metrics_aggregation_fn": most_rows, "evaluate_metrics_aggregation_fn": most_rows}
    strategy = FedAvg(initial_parameters=first, **(own if told["own-metrics"] else {}))
    config = ServerConfig(num_rounds=told["num-server-rounds"])
    if told["own-server"]:
        return ServerAppComponents(server=Server(client_manager=SimpleClientManager(), strategy=strategy), config=config)
    return ServerAppComponents(strategy=strategy, config=config)


app = ServerApp(server_fn=server_fn)
