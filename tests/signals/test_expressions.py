"""What is recognised in a sampling configuration, in any spelling, and that nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tolfl.signals.expressions import Aggregate, Condition, Mapping, parse_aggregate, parse_map

UDP = Condition("layer", "in", "UDP")
HERE = Condition("src", "==", "aa:bb")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, Mapping()),
        ("aggregators.iat()", Mapping("gaps")),
        ("  aggregators . iat( ) ", Mapping("gaps")),
        ("aggregators.keep_if(lambda rec: rec[0].src == 'aa:bb')", Mapping("first", HERE)),
        ('aggregators.keep_if( lambda   r:"aa:bb"==r[0].src )', Mapping("first", HERE)),
        ("aggregators.keep_if(lambda r: r[0].dst != 'x')", Mapping("first", Condition("dst", "!=", "x"))),
        ("aggregators.keep_if(lambda r: UDP in r[0])", Mapping("first", UDP)),
        ("aggregators.keep_if(lambda r: 100 < r[0].wirelen)", Mapping("first", Condition("wirelen", ">", 100.0))),
        ("lambda arr: arr", Mapping()),
        ("lambda arr: [a[0] for a in arr]", Mapping()),
        ("lambda xs: [len(x[0]) for x in xs]", Mapping("lengths")),
    ],
)
def test_a_known_map_is_recognised(text: str | None, expected: Mapping) -> None:
    assert parse_map(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("aggregators.count()", Aggregate("count")),
        ("len", Aggregate("count")),
        ("lambda a: len(a)", Aggregate("count")),
        ("aggregators.count_if(lambda x: UDP in x)", Aggregate("count_if", UDP)),
        ("aggregators.count_if(\n lambda packet : UDP  in packet )", Aggregate("count_if", UDP)),
        ("aggregators.count_if(lambda p: p.haslayer(UDP))", Aggregate("count_if", UDP)),
        ("aggregators.count_if(lambda p: IP not in p)", Aggregate("count_if", Condition("layer", "not in", "IP"))),
        ('aggregators.count_if(lambda p: p.src == "aa:bb")', Aggregate("count_if", HERE)),
        ("aggregators.count_if(lambda v: v >= 100)", Aggregate("count_if", Condition("", ">=", 100.0))),
        ("aggregators.n_unique()", Aggregate("n_unique")),
        ("aggregators.count_unique()", Aggregate("n_unique")),
        ("aggregators.head(200)", Aggregate("head", n_elements=200)),
        ("aggregators.head( 7 )", Aggregate("head", n_elements=7)),
        ("np.min", Aggregate("min")),
        ("np.amax", Aggregate("max")),
        ("numpy.mean", Aggregate("mean")),
        ("np . nanmean", Aggregate("mean", skips_nan=True)),
        ("lambda x: np.nanstd(x)", Aggregate("std", skips_nan=True)),
        ("np.nanmedian", Aggregate("median", skips_nan=True)),
        ("np.nansum", Aggregate("sum", skips_nan=True)),
        ("max", Aggregate("max")),
    ],
)
def test_a_known_aggregation_is_recognised(text: str, expected: Aggregate) -> None:
    assert parse_aggregate(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "np.",
        "np.ptp",
        "np.load('samples.npy')",
        "os.system",
        "eval",
        "__import__('os').system('true')",
        "aggregators.count_if(lambda x: __import__('os').system('true'))",
        "aggregators.count_if(lambda x: UDP in y)",
        "aggregators.count_if(lambda x, y: UDP in x)",
        "aggregators.count_if(lambda x=1: UDP in x)",
        "aggregators.count_if(lambda x: ARP in x)",
        "aggregators.count_if(lambda x: x.secret == 'a')",
        "aggregators.count_if(lambda x: x.src == open('a'))",
        "aggregators.count_if(lambda x: x.src < 'a')",
        "aggregators.count_if(lambda x: x.wirelen == 'a')",
        "aggregators.count_if(lambda x: 1 < x < 3)",
        "aggregators.count_if(UDP)",
        "aggregators.count(1)",
        "aggregators.head()",
        "aggregators.head(0)",
        "aggregators.head(True)",
        "aggregators.head(n=3)",
        "aggregators.head(10 ** 9)",
        "aggregators.downsample(2)",
        "other.count()",
        "lambda x: np.mean(y)",
        "lambda x: np.mean(x, axis=0)",
        "lambda x: x",
        "np.mean; import os",
        "np.mean\x00",
        "(" * 900,
        "-" * 900 + "1",
        "np.mean" + " " * 2000 + "if True else 0",
        "'\\d' + len",
    ],
)
def test_anything_else_is_not(text: str) -> None:
    assert parse_aggregate(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "iat",
        "aggregators.iat(1)",
        "aggregators.keep_if(lambda rec: rec[1].src == 'a')",
        "aggregators.keep_if(lambda rec: rec.src == 'a')",
        "aggregators.keep_if(lambda rec: True)",
        "lambda arr: [a[0] for a in arr if a]",
        "lambda arr: [a[1] for a in arr]",
        "lambda arr: [a[0] for a in open('x')]",
        "lambda arr: [len(a) for a in arr]",
        "lambda a, b: a",
        "__import__('os')",
    ],
)
def test_any_other_map_is_not(text: str) -> None:
    assert parse_map(text) is None


@given(st.text(alphabet="abcx.()[]=:'\"<0 \n\\lmdnp", max_size=60))
def test_no_text_makes_the_parser_fail(text: str) -> None:
    parse_map(text)
    parse_aggregate(text)
