"""A NumPyClient of the older kind."""

import numpy as np
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp


class Client(NumPyClient):
    def __init__(self, partition):
        rng = np.random.default_rng(partition)
        self.rows = rng.normal(size=(10 + 3 * partition, 4)).astype(np.float32)
        self.targets = self.rows @ np.array([1, -2, 3, -4], np.float32)

    def get_parameters(self, config):
        return [np.full(4, 0.25, np.float32)]

    def fit(self, parameters, config):
        weights = parameters[0]
        for _ in range(3):
            weights = weights - 0.1 * self.rows.T @ (self.rows @ weights - self.targets) / len(self.rows)
        return [weights.astype(np.float32)], len(self.rows), {"rows": len(self.rows)}

    def evaluate(self, parameters, config):
        return float(np.mean((self.rows @ parameters[0] - self.targets) ** 2)), len(self.rows), {"rows": len(self.rows)}


def client_fn(context):
    return Client(context.node_config["partition-id"]).to_client()


app = ClientApp(client_fn=client_fn)
