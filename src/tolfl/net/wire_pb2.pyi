from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Frame(_message.Message):
    __slots__ = ("hello", "pulse", "message", "chunk", "receipt", "revocations")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    PULSE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    REVOCATIONS_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    pulse: Pulse
    message: Message
    chunk: bytes
    receipt: Receipt
    revocations: bytes
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., pulse: _Optional[_Union[Pulse, _Mapping]] = ..., message: _Optional[_Union[Message, _Mapping]] = ..., chunk: _Optional[bytes] = ..., receipt: _Optional[_Union[Receipt, _Mapping]] = ..., revocations: _Optional[bytes] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("wire", "fleet", "device", "incarnation", "to", "is_inside", "addresses", "revocations")
    class AddressesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: str
        def __init__(self, key: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
    WIRE_FIELD_NUMBER: _ClassVar[int]
    FLEET_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    IS_INSIDE_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    REVOCATIONS_FIELD_NUMBER: _ClassVar[int]
    wire: int
    fleet: str
    device: int
    incarnation: int
    to: int
    is_inside: bool
    addresses: _containers.ScalarMap[int, str]
    revocations: bytes
    def __init__(self, wire: _Optional[int] = ..., fleet: _Optional[str] = ..., device: _Optional[int] = ..., incarnation: _Optional[int] = ..., to: _Optional[int] = ..., is_inside: _Optional[bool] = ..., addresses: _Optional[_Mapping[int, str]] = ..., revocations: _Optional[bytes] = ...) -> None: ...

class Pulse(_message.Message):
    __slots__ = ("wants_answer",)
    WANTS_ANSWER_FIELD_NUMBER: _ClassVar[int]
    wants_answer: bool
    def __init__(self, wants_answer: _Optional[bool] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class Version(_message.Message):
    __slots__ = ("work", "round", "revision", "history")
    WORK_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    work: int
    round: int
    revision: int
    history: str
    def __init__(self, work: _Optional[int] = ..., round: _Optional[int] = ..., revision: _Optional[int] = ..., history: _Optional[str] = ...) -> None: ...

class Life(_message.Message):
    __slots__ = ("device", "incarnation")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    device: int
    incarnation: int
    def __init__(self, device: _Optional[int] = ..., incarnation: _Optional[int] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("sender", "incarnation", "version", "dead", "report", "mean", "closed", "offer", "want", "ack", "heartbeat", "pull", "join", "goodbye")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    OFFER_FIELD_NUMBER: _ClassVar[int]
    WANT_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    PULL_FIELD_NUMBER: _ClassVar[int]
    JOIN_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    sender: int
    incarnation: int
    version: Version
    dead: _containers.RepeatedCompositeFieldContainer[Life]
    report: Report
    mean: Mean
    closed: Closed
    offer: About
    want: About
    ack: About
    heartbeat: Nothing
    pull: Nothing
    join: Nothing
    goodbye: Nothing
    def __init__(self, sender: _Optional[int] = ..., incarnation: _Optional[int] = ..., version: _Optional[_Union[Version, _Mapping]] = ..., dead: _Optional[_Iterable[_Union[Life, _Mapping]]] = ..., report: _Optional[_Union[Report, _Mapping]] = ..., mean: _Optional[_Union[Mean, _Mapping]] = ..., closed: _Optional[_Union[Closed, _Mapping]] = ..., offer: _Optional[_Union[About, _Mapping]] = ..., want: _Optional[_Union[About, _Mapping]] = ..., ack: _Optional[_Union[About, _Mapping]] = ..., heartbeat: _Optional[_Union[Nothing, _Mapping]] = ..., pull: _Optional[_Union[Nothing, _Mapping]] = ..., join: _Optional[_Union[Nothing, _Mapping]] = ..., goodbye: _Optional[_Union[Nothing, _Mapping]] = ...) -> None: ...

class Nothing(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class About(_message.Message):
    __slots__ = ("is_mean", "included")
    IS_MEAN_FIELD_NUMBER: _ClassVar[int]
    INCLUDED_FIELD_NUMBER: _ClassVar[int]
    is_mean: bool
    included: bytes
    def __init__(self, is_mean: _Optional[bool] = ..., included: _Optional[bytes] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("contribution", "joiners")
    CONTRIBUTION_FIELD_NUMBER: _ClassVar[int]
    JOINERS_FIELD_NUMBER: _ClassVar[int]
    contribution: Contribution
    joiners: _containers.RepeatedCompositeFieldContainer[Life]
    def __init__(self, contribution: _Optional[_Union[Contribution, _Mapping]] = ..., joiners: _Optional[_Iterable[_Union[Life, _Mapping]]] = ...) -> None: ...

class Mean(_message.Message):
    __slots__ = ("total", "missing", "joiners")
    class MissingEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: str
        def __init__(self, key: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    JOINERS_FIELD_NUMBER: _ClassVar[int]
    total: Contribution
    missing: _containers.ScalarMap[int, str]
    joiners: _containers.RepeatedCompositeFieldContainer[Life]
    def __init__(self, total: _Optional[_Union[Contribution, _Mapping]] = ..., missing: _Optional[_Mapping[int, str]] = ..., joiners: _Optional[_Iterable[_Union[Life, _Mapping]]] = ...) -> None: ...

class Closed(_message.Message):
    __slots__ = ("version", "roster", "parent", "included", "missing", "n_samples", "is_over", "models")
    class MissingEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: str
        def __init__(self, key: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    INCLUDED_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    N_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    IS_OVER_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    version: Version
    roster: _containers.RepeatedCompositeFieldContainer[Life]
    parent: str
    included: bytes
    missing: _containers.ScalarMap[int, str]
    n_samples: int
    is_over: bool
    models: _containers.RepeatedCompositeFieldContainer[Model]
    def __init__(self, version: _Optional[_Union[Version, _Mapping]] = ..., roster: _Optional[_Iterable[_Union[Life, _Mapping]]] = ..., parent: _Optional[str] = ..., included: _Optional[bytes] = ..., missing: _Optional[_Mapping[int, str]] = ..., n_samples: _Optional[int] = ..., is_over: _Optional[bool] = ..., models: _Optional[_Iterable[_Union[Model, _Mapping]]] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("key", "params")
    KEY_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    key: str
    params: Tensor
    def __init__(self, key: _Optional[str] = ..., params: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...

class Contribution(_message.Message):
    __slots__ = ("included", "n_samples", "loss", "parts")
    INCLUDED_FIELD_NUMBER: _ClassVar[int]
    N_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    included: bytes
    n_samples: int
    loss: float
    parts: _containers.RepeatedCompositeFieldContainer[Part]
    def __init__(self, included: _Optional[bytes] = ..., n_samples: _Optional[int] = ..., loss: _Optional[float] = ..., parts: _Optional[_Iterable[_Union[Part, _Mapping]]] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("key", "n_samples", "weight", "included", "loss", "n_trained", "vector")
    KEY_FIELD_NUMBER: _ClassVar[int]
    N_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    INCLUDED_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    N_TRAINED_FIELD_NUMBER: _ClassVar[int]
    VECTOR_FIELD_NUMBER: _ClassVar[int]
    key: str
    n_samples: int
    weight: int
    included: bytes
    loss: float
    n_trained: int
    vector: Tensor
    def __init__(self, key: _Optional[str] = ..., n_samples: _Optional[int] = ..., weight: _Optional[int] = ..., included: _Optional[bytes] = ..., loss: _Optional[float] = ..., n_trained: _Optional[int] = ..., vector: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...

class Tensor(_message.Message):
    __slots__ = ("is_float64", "length")
    IS_FLOAT64_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    is_float64: bool
    length: int
    def __init__(self, is_float64: _Optional[bool] = ..., length: _Optional[int] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("device", "incarnation", "fleet", "version", "rounds", "role", "cluster", "loss", "has_loss", "n_samples", "roster", "dead", "peers", "refused", "stopped", "trouble", "running_s", "wire", "bytes_sent", "messages_sent")
    class RefusedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    FLEET_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    HAS_LOSS_FIELD_NUMBER: _ClassVar[int]
    N_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    RUNNING_S_FIELD_NUMBER: _ClassVar[int]
    WIRE_FIELD_NUMBER: _ClassVar[int]
    BYTES_SENT_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_SENT_FIELD_NUMBER: _ClassVar[int]
    device: int
    incarnation: int
    fleet: str
    version: Version
    rounds: int
    role: str
    cluster: int
    loss: float
    has_loss: bool
    n_samples: int
    roster: _containers.RepeatedCompositeFieldContainer[Life]
    dead: _containers.RepeatedCompositeFieldContainer[Life]
    peers: _containers.RepeatedCompositeFieldContainer[Peer]
    refused: _containers.ScalarMap[str, int]
    stopped: str
    trouble: str
    running_s: float
    wire: int
    bytes_sent: int
    messages_sent: int
    def __init__(self, device: _Optional[int] = ..., incarnation: _Optional[int] = ..., fleet: _Optional[str] = ..., version: _Optional[_Union[Version, _Mapping]] = ..., rounds: _Optional[int] = ..., role: _Optional[str] = ..., cluster: _Optional[int] = ..., loss: _Optional[float] = ..., has_loss: _Optional[bool] = ..., n_samples: _Optional[int] = ..., roster: _Optional[_Iterable[_Union[Life, _Mapping]]] = ..., dead: _Optional[_Iterable[_Union[Life, _Mapping]]] = ..., peers: _Optional[_Iterable[_Union[Peer, _Mapping]]] = ..., refused: _Optional[_Mapping[str, int]] = ..., stopped: _Optional[str] = ..., trouble: _Optional[str] = ..., running_s: _Optional[float] = ..., wire: _Optional[int] = ..., bytes_sent: _Optional[int] = ..., messages_sent: _Optional[int] = ...) -> None: ...

class Peer(_message.Message):
    __slots__ = ("device", "address", "is_connected", "silent_s")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    IS_CONNECTED_FIELD_NUMBER: _ClassVar[int]
    SILENT_S_FIELD_NUMBER: _ClassVar[int]
    device: int
    address: str
    is_connected: bool
    silent_s: float
    def __init__(self, device: _Optional[int] = ..., address: _Optional[str] = ..., is_connected: _Optional[bool] = ..., silent_s: _Optional[float] = ...) -> None: ...

class CommandRequest(_message.Message):
    __slots__ = ("token", "cut", "leave")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    token: str
    cut: Cut
    leave: Nothing
    def __init__(self, token: _Optional[str] = ..., cut: _Optional[_Union[Cut, _Mapping]] = ..., leave: _Optional[_Union[Nothing, _Mapping]] = ...) -> None: ...

class Cut(_message.Message):
    __slots__ = ("devices",)
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    devices: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, devices: _Optional[_Iterable[int]] = ...) -> None: ...

class CommandReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
