"""Apps of the older kind (`server_fn`, `client_fn`, NumPyClient): their strategy behind the newer interface."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common import Code, EvaluateRes, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.client_manager import SimpleClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedProx, FedYogi

from .waiting_server import FIRST_NODE, Plan, RefusedAppError

try:
    from flwr.compat.common import recorddict_compat as compat
except ImportError:
    from flwr.common import recorddict_compat as compat

_OF_THE_MEAN = (FedAvg, FedAvgM, FedProx, FedAdam, FedAdagrad, FedYogi)
_TIMEOUT_S = 3600.0


class _Node(ClientProxy):  # type: ignore[misc]
    """A node as older strategies see it; nobody may call it."""

    def _never(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("strategies are asked what to send, and do not send it themselves")

    get_properties = get_parameters = fit = evaluate = reconnect = _never


class _Nodes(SimpleClientManager):  # type: ignore[misc]
    """The live nodes; whoever waits for more of them waits in vain."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def show(self, devices: Iterable[int]) -> None:
        for node in list(self.clients.values()):
            self.unregister(node)
        for device in devices:
            self.register(_Node(str(FIRST_NODE + device)))

    def wait_for(self, num_clients: int, timeout: int = 0) -> bool:  # noqa: ARG002
        if num_clients > len(self.clients):
            raise RefusedAppError(f"{self._name} waits for {num_clients} nodes; {len(self.clients)} are there")
        return True


class OlderStrategy:
    """The newer interface on top of an older strategy."""

    weighted_by_key = "num_examples"

    def __init__(self, strategy: Any, name: str, n_devices: int) -> None:
        self.inner = strategy
        self._nodes = _Nodes(name)
        self._nodes.show(range(n_devices))
        self.fraction_evaluate = getattr(strategy, "fraction_evaluate", 1.0)

    @property
    def is_of_the_mean(self) -> bool:
        """Whether it needs no more of the replies than their mean."""
        if not has_methods_of(self.inner, _OF_THE_MEAN, ("aggregate_fit", "aggregate_evaluate")):
            return False
        return self.inner.fit_metrics_aggregation_fn is None and self.inner.evaluate_metrics_aggregation_fn is None

    @property
    def min_available_nodes(self) -> int:
        """How many nodes it waits for."""
        names = ("min_available_clients", "min_fit_clients", "min_evaluate_clients")
        return max(int(getattr(self.inner, name, 0)) for name in names)

    def initial_arrays(self) -> Any:
        """Return the first arrays, or None if a client is to be asked for them."""
        parameters = self.inner.initialize_parameters(self._nodes)
        return None if parameters is None else _arrays(parameters)

    def configure_train(self, number: int, arrays: Any, config: Any, grid: Any) -> list[Any]:  # noqa: ARG002
        """Return the messages of a round of training."""
        return self._messages("train", self.inner.configure_fit, compat.fitins_to_recorddict, number, arrays, grid)

    def configure_evaluate(self, number: int, arrays: Any, config: Any, grid: Any) -> list[Any]:  # noqa: ARG002
        """Return the messages of a round of evaluation."""
        configure, to_record = self.inner.configure_evaluate, compat.evaluateins_to_recorddict
        return self._messages("evaluate", configure, to_record, number, arrays, grid)

    def _messages(self, kind: str, configure: Any, to_record: Any, number: int, arrays: Any, grid: Any) -> list[Any]:
        self._nodes.show(node - FIRST_NODE for node in grid.nodes)
        asked = configure(number, _parameters(arrays), self._nodes)
        return [Message(to_record(ins, True), int(node.cid), kind, group_id=str(number)) for node, ins in asked]

    def content_for_mean(self, content: Any, is_train: bool) -> Any:
        """Return what of a reply a mean is taken of."""
        if is_train:
            found = compat.recorddict_to_fitres(content, True)
            metrics = MetricRecord({"num_examples": found.num_examples})
            return RecordDict({"arrays": _arrays(found.parameters), "metrics": metrics})
        found = compat.recorddict_to_evaluateres(content)
        return RecordDict({"metrics": MetricRecord({"num_examples": found.num_examples, "loss": float(found.loss)})})

    def aggregate_train(self, number: int, replies: list[Any]) -> tuple[Any, Any]:
        """Return the arrays and metrics after a round."""
        results = []
        for reply in replies:
            content = reply.content
            if "fitres.parameters" in content:
                found = compat.recorddict_to_fitres(content, True)
            else:
                n_examples = content["metrics"]["num_examples"]
                found = FitRes(Status(Code.OK, ""), _parameters(content["arrays"]), n_examples, {})
            results.append((_Node(str(reply.metadata.src_node_id)), found))
        parameters, metrics = self.inner.aggregate_fit(number, results, [])
        return None if parameters is None else _arrays(parameters), _numbers(metrics)

    def aggregate_evaluate(self, number: int, replies: list[Any]) -> Any:
        """Return the metrics of a round of evaluation."""
        results = []
        for reply in replies:
            content = reply.content
            if "metrics" in content:
                found = EvaluateRes(
                    Status(Code.OK, ""), content["metrics"]["loss"], content["metrics"]["num_examples"], {}
                )
            else:
                found = compat.recorddict_to_evaluateres(content)
            results.append((_Node(str(reply.metadata.src_node_id)), found))
        if not results:
            return None
        loss, metrics = self.inner.aggregate_evaluate(number, results, [])
        return _numbers({**({} if loss is None else {"loss": float(loss)}), **metrics})

    def evaluate_fn(self, number: int, arrays: Any) -> Any:
        """Return the metrics of the strategy's own evaluation, if it has one."""
        found = self.inner.evaluate(number, _parameters(arrays))
        return None if found is None else _numbers({"loss": float(found[0]), **found[1]})


def has_methods_of(strategy: Any, kinds: tuple[type, ...], names: tuple[str, ...]) -> bool:
    """Return whether a strategy is of one of these kinds, and has not replaced these of its methods."""
    own = type(strategy)
    base = next((one for one in own.__mro__ if one in kinds), None)
    return base is not None and all(getattr(own, name, None) is getattr(base, name, None) for name in names)


def asked_client_for_arrays(client: Any, device: int, context: Any) -> Any:
    """Return the parameters that a client of an older app starts from."""
    from flwr.common import GetParametersIns  # noqa: PLC0415

    content = compat.getparametersins_to_recorddict(GetParametersIns({}))
    reply = client(Message(content, FIRST_NODE + device, "get_parameters"), context)
    return _arrays(compat.recorddict_to_getparametersres(reply.content, True).parameters)


def older_plan(server: Any, name: str, context: Any, n_devices: int) -> Plan:
    """Return what a ServerApp without a `main` asks for."""
    if server._server_fn is not None:
        components = server._server_fn(context)
        strategy, config, own = components.strategy, components.config, components.server
    else:
        strategy, config, own = server._strategy, server._config, server._server
    if own is not None:
        raise RefusedAppError(f"{name} brings a server of its own; a fleet has none")
    older = OlderStrategy(FedAvg() if strategy is None else strategy, name, n_devices)
    timeout = getattr(config, "round_timeout", None) or _TIMEOUT_S
    num_rounds = 1 if config is None else config.num_rounds
    arrays = older.initial_arrays()
    return Plan(older, arrays, num_rounds, timeout, ConfigRecord(), ConfigRecord(), older.evaluate_fn)


def _arrays(parameters: Any) -> Any:
    return ArrayRecord(parameters_to_ndarrays(parameters))


def _parameters(arrays: Any) -> Any:
    return ndarrays_to_parameters(arrays.to_numpy_ndarrays())


def _numbers(metrics: dict[str, Any]) -> Any:
    numbers = {key: getattr(value, "item", lambda value=value: value)() for key, value in metrics.items()}
    return MetricRecord({key: value for key, value in numbers.items() if type(value) in (int, float)})
