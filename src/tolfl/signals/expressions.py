"""The expressions of a sampling configuration, recognised and never run.

The original simulator hands these strings to Python's `eval`. Here a string is parsed into a syntax tree, which is
compared with the few shapes that are known; whatever has another shape is refused. White space, quotes, numbers and the
names of lambda arguments are free.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable
from dataclasses import dataclass

LAYERS = ("Ether", "IP", "TCP", "UDP", "Raw")
FIELDS = ("src", "dst", "time", "wirelen")
REDUCTIONS = ("min", "max", "mean", "sum", "std", "median")
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_LONGEST = 1000  #: a parser's memory grows with its input

KNOWN_MAPS = "null, aggregators.iat(), aggregators.keep_if(lambda rec: rec[0].src == '...')"
KNOWN_AGGREGATES = (
    "aggregators.count(), aggregators.count_if(lambda x: UDP in x), aggregators.n_unique(), aggregators.head(n), len, "
    "np.min, np.max, np.mean, np.sum, np.std, np.median, and np.nanmin to np.nanmedian"
)


@dataclass(frozen=True, slots=True)
class Condition:
    """A question about a packet (or about a value, where `field` is empty)."""

    field: str
    comparison: str  #: one of == != < <= > >=, or `in` and `not in` for a layer of the packet
    value: str | float


@dataclass(frozen=True, slots=True)
class Mapping:
    """What happens to the values of a window first: `all`, `gaps`, `first` (that meets a condition) or `lengths`."""

    kind: str = "all"
    condition: Condition | None = None


@dataclass(frozen=True, slots=True)
class Aggregate:
    """What makes a feature of the values: `count`, `count_if`, `n_unique`, `head`, or one of `REDUCTIONS`."""

    kind: str
    condition: Condition | None = None
    n_elements: int = 0
    skips_nan: bool = False


def parse_map(text: str | None) -> Mapping | None:
    """Return what a map function asks for; None if it is not known."""
    if text is None:
        return Mapping()
    tree = _tree(text)
    match _call(tree):
        case "iat", []:
            return Mapping("gaps")
        case "keep_if", [ast.Lambda() as question]:
            condition = _condition(question, _is_packet_of_record)
            return Mapping("first", condition) if condition else None
    match tree:
        case ast.Lambda(body=body) if (name := _argument(tree)) and _is_name(body, name):
            return Mapping()
        # `lambda arr: [a[0] for a in arr]`: the values alone, and the same with `len` around them.
        case ast.Lambda(body=ast.ListComp(elt=element, generators=[loop])) if name := _argument(tree):
            return _comprehension(element, loop, name)
    return None


def parse_aggregate(text: str) -> Aggregate | None:
    """Return what an aggregation function asks for; None if it is not known."""
    tree = _tree(text)
    match tree:
        # `lambda x: np.mean(x)` is `np.mean`.
        case ast.Lambda(body=ast.Call(func=function, args=[argument], keywords=[])):
            return _reduction(function) if _is_name(argument, _argument(tree)) else None
        case ast.Call():
            return _counted_or_cut(tree)
    return _reduction(tree)


def _counted_or_cut(tree: ast.Call) -> Aggregate | None:
    match _call(tree):
        case "count", []:
            return Aggregate("count")
        case (("n_unique" | "count_unique" | "unique"), []):
            return Aggregate("n_unique")
        case "count_if", [ast.Lambda() as question]:
            condition = _condition(question, _is_name) or _about_value(question)
            return Aggregate("count_if", condition) if condition else None
        case "head", [ast.Constant(value=int() as n_elements)] if n_elements > 0 and n_elements is not True:
            return Aggregate("head", n_elements=n_elements)
    return None


def _tree(text: str) -> ast.expr | None:
    if len(text) > _LONGEST:
        return None
    try:
        with warnings.catch_warnings(action="ignore"):  # of the parser, about somebody else's style
            return ast.parse(text.strip(), mode="eval").body  # a tree; nothing is compiled or run
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _call(tree: ast.expr | None) -> tuple[str, list[ast.expr]] | None:
    """Return name and arguments of `aggregators.name(...)`."""
    match tree:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="aggregators"), attr=name), args=arguments, keywords=[]):
            return name, arguments
    return None


def _reduction(function: ast.expr | None) -> Aggregate | None:
    match function:
        case ast.Name(id="len"):
            return Aggregate("count")
        case ast.Name(id=("min" | "max" | "sum") as name):
            return Aggregate(name)
        case ast.Attribute(value=ast.Name(id=("np" | "numpy")), attr=name):
            kind = {"amin": "min", "amax": "max"}.get(name, name.removeprefix("nan"))
            return Aggregate(kind, skips_nan=name.startswith("nan")) if kind in REDUCTIONS else None
    return None


def _condition(question: ast.Lambda, is_packet: Callable[[ast.expr, str], bool]) -> Condition | None:
    """Read `lambda x: UDP in x` and `lambda x: x.src == '...'`, with x itself or `x[0]` as the packet."""
    name = _argument(question)
    match question.body:
        case ast.Compare(left=ast.Name(id=layer), ops=[(ast.In() | ast.NotIn()) as operator], comparators=[packet]):
            if layer in LAYERS and is_packet(packet, name):
                return Condition("layer", "in" if isinstance(operator, ast.In) else "not in", layer)
        case ast.Call(func=ast.Attribute(value=packet, attr="haslayer"), args=[ast.Name(id=layer)], keywords=[]):
            if layer in LAYERS and is_packet(packet, name):
                return Condition("layer", "in", layer)
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in _COMPARISONS:
            comparison = _COMPARISONS[type(operator)]
            if isinstance(left, ast.Constant):
                left, right, comparison = right, left, _MIRRORED.get(comparison, comparison)
            match left:
                case ast.Attribute(value=packet, attr=field) if field in FIELDS and is_packet(packet, name):
                    return _comparison(field, comparison, right)
    return None


def _about_value(question: ast.Lambda) -> Condition | None:
    """Read `lambda x: x > 100`, where x is the value and not the packet."""
    match question.body:
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in _COMPARISONS:
            if _is_name(left, _argument(question)):
                return _comparison("", _COMPARISONS[type(operator)], right)
    return None


def _comparison(field: str, comparison: str, right: ast.expr) -> Condition | None:
    match right:
        case ast.Constant(value=str() as address) if field in ("src", "dst", "") and comparison in ("==", "!="):
            return Condition(field, comparison, address)
        case ast.Constant(value=int() | float() as number) if field in ("time", "wirelen", ""):
            return Condition(field, comparison, float(number))
    return None


def _comprehension(element: ast.expr, loop: ast.comprehension, name: str) -> Mapping | None:
    if loop.ifs or loop.is_async or not isinstance(loop.target, ast.Name) or not _is_name(loop.iter, name):
        return None
    item = loop.target.id
    if _is_packet_of_record(element, item):
        return Mapping()
    match element:
        case ast.Call(func=ast.Name(id="len"), args=[packet], keywords=[]) if _is_packet_of_record(packet, item):
            return Mapping("lengths")
    return None


def _argument(question: ast.Lambda) -> str:
    """Return the name of a lambda's only argument; empty if it has another number of them."""
    spec = question.args
    if len(spec.args) != 1 or spec.posonlyargs or spec.kwonlyargs or spec.vararg or spec.kwarg or spec.defaults:
        return ""
    return spec.args[0].arg


def _is_name(tree: ast.expr, name: str) -> bool:
    return isinstance(tree, ast.Name) and tree.id == name


def _is_packet_of_record(tree: ast.expr, name: str) -> bool:
    """Return whether this is `rec[0]`: records are pairs of a packet and its waveform."""
    match tree:
        case ast.Subscript(value=ast.Name(id=record), slice=ast.Constant(value=0)):
            return record == name
    return False
