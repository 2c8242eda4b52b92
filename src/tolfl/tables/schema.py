"""The meaning of a table's columns: settled once, when a detector is fitted; later tables are matched by name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from tolfl.tables.block_reader import Block
    from tolfl.tables.rows import Rows

N_HASHES, N_COUNTS = 32, 256  #: of words: features, and values that are counted for a word's rarity
_WITH_UNIT = re.compile(r"(?P<name>.*\S)\s*\[(?P<unit>[^\]]*)\]\s*")
_HASHED = re.compile(r"(?P<name>.+) \(hash \d+\)")
RARITY = " (rarity)"  #: behind the name of the feature that holds what words are counted by


class Roles(msgspec.Struct, frozen=True):
    """Columns of device, label and time; empty where there is none."""

    device: str = ""
    label: str = ""
    time: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """Those that are named."""
        return tuple(name for name in (self.device, self.label, self.time) if name)


class Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One column that is learned from: numbers (also true and false), or words.

    A column of words is 33 features: whether a hash value of the word is 0, 1, ..., 31, and another hash value below
    256, which a detector counts to know how rare the word is. No vocabulary is kept: there may be any number of words.

    >>> Column("temp", "number", unit="C").features, Column("mode", "words").features[::32]
    (('temp [C]',), ('mode (hash 0)', 'mode (rarity)'))
    """

    name: str
    kind: Literal["number", "words"] = "number"
    unit: str = ""
    measure: str = ""  #: what is measured (a count, a share, ...), where that is known; its values may be missing

    @property
    def features(self) -> tuple[str, ...]:
        """The names of its features, with the unit in brackets, and behind a semicolon the measure."""
        if self.kind == "number":
            note = f"{self.unit}; {self.measure}" if self.measure else self.unit
            return (f"{self.name} [{note}]" if note else self.name,)
        return (*(f"{self.name} (hash {place})" for place in range(N_HASHES)), f"{self.name}{RARITY}")


class Schema(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which columns are learned from, what they hold, and those of device, label and time."""

    columns: tuple[Column, ...]
    roles: Roles = Roles()
    decimal: Literal[".", ",", "1,000"] = "."  #: what 1,234 is: no number, 1.234, or 1234
    is_day_first: bool | None = (
        None  #: whether 1/2/2024 is the first of February; None: the dates of the table are ambiguous
    )
    encoding: str = ""
    fill_missing: bool = False  #: whether a missing value becomes the usual one; else its row is not used
    left_out: dict[str, str] = {}  #: column -> why it is not learned from

    @classmethod
    def from_features(cls, features: Sequence[str], roles: Roles | None = None) -> Schema:
        """Return the schema behind names of features, as a fleet's specification has them.

        >>> [column.kind for column in Schema.from_features(["temp [C]", *Column("mode", "words").features]).columns]
        ['number', 'words']
        """
        known = set(features)
        columns: dict[str, Column] = {}
        for feature in features:
            name = word_column(feature)
            if name is not None and known.issuperset(Column(name, "words").features):
                columns[name] = Column(name, "words")
            else:
                columns[feature] = Column(*name_and_unit(feature))
        return cls(tuple(columns.values()), roles or Roles())

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features, units in brackets."""
        return tuple(name for column in self.columns for name in column.features)

    @property
    def n_features(self) -> int:
        """How many numbers a row becomes."""
        return sum(N_HASHES + 1 if column.kind == "words" else 1 for column in self.columns)

    @classmethod
    def of_fleet(cls, features: Sequence[str], form: Mapping[str, object]) -> Schema:
        """Return the schema of a fleet's tables, of the features and the form that its specification has.

        >>> Schema.of_fleet(["temp [C]"], {"decimal": ","}) == Schema((Column("temp", unit="C"),), decimal=",")
        True
        """
        columns = msgspec.to_builtins(cls.from_features(features).columns)
        return msgspec.convert({**form, "columns": columns}, cls)

    @property
    def form(self) -> dict[str, object]:
        """How a table is written and what is left out of it, in plain values: for the specification of a fleet.

        >>> Schema((Column("temp"),), decimal=",").form
        {'decimal': ','}
        """
        plain, usual = msgspec.to_builtins(self), msgspec.to_builtins(Schema(self.columns))
        return {name: value for name, value in plain.items() if value != usual[name]}

    def with_roles(self, roles: Roles) -> Schema:
        """Return the schema with other roles, where others are named."""
        mine = self.roles
        merged = Roles(roles.device or mine.device, roles.label or mine.label, roles.time or mine.time)
        return msgspec.structs.replace(self, roles=merged)

    def rows(self, block: Block) -> Rows:
        """Return a block as numbers; columns are found by name, in any order."""
        from tolfl.tables.rows import rows_of  # noqa: PLC0415  (pyarrow is an extra, and a schema is not)

        return rows_of(self, block)


def note_of(schema: Schema, is_command: bool = True) -> str:
    """Return one line about what is not learned from, and how to learn from it; empty if all is learned from."""
    found = {name: why for name, why in schema.left_out.items() if why != "as asked"}
    if not found:
        return ""
    shown = ", ".join(f"{name} ({why})" for name, why in list(found.items())[:5])
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    kept = [column.name for column in schema.columns[:2]]
    how = f"--columns {','.join(kept)},..." if is_command else f"columns=[{', '.join(map(repr, kept))}, ...]"
    return f"not learned from: {shown}{more}; to choose yourself: {how}"


def word_column(feature: str) -> str | None:
    """Return the column of words that a feature is of; None: of none.

    >>> word_column("mode (hash 7)"), word_column("mode (rarity)"), word_column("temp")
    ('mode', 'mode', None)
    """
    if found := _HASHED.fullmatch(feature):
        return found["name"]
    return feature.removesuffix(RARITY) if feature.endswith(RARITY) else None


def value_features(features: Sequence[str]) -> list[int]:
    """Return the places of one feature per column: of the many of a word, its rarity. Values are counted by these.

    >>> value_features(["temp", "mode (hash 0)", "mode (hash 1)", "mode (rarity)"])
    [0, 3]
    """
    return [place for place, name in enumerate(features) if not _HASHED.fullmatch(name)]


def name_and_unit(name: str) -> tuple[str, Literal["number"], str, str]:
    """Return the name, the kind (unless it holds words), the unit and the measure of a column.

    >>> name_and_unit("size [bytes; volume]"), name_and_unit("temp [C]"), name_and_unit("x")
    (('size', 'number', 'bytes', 'volume'), ('temp', 'number', 'C', ''), ('x', 'number', '', ''))
    """
    found = _WITH_UNIT.fullmatch(name)
    if not found:
        return name, "number", "", ""
    unit, mark, measure = found["unit"].rpartition(";")
    return (found["name"], "number", unit.strip(), measure.strip()) if mark else (found["name"], "number", measure, "")
