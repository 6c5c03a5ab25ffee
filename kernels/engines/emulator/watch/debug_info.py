"""The debug information of a PTX module compiled with -G: each C++ variable's name, type and scope, and where it is when.

NVRTC writes DWARF 2 as text, with labels of the code for addresses. Here each label gets a number as its address, and pyelftools reads
the bytes. The number of a register is its name, up to eight ASCII characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from inspect import signature
from io import BytesIO

from elftools.dwarf.die import DIE
from elftools.dwarf.dwarf_expr import DWARFExprParser
from elftools.dwarf.dwarfinfo import DebugSectionDescriptor, DwarfConfig, DWARFInfo
from elftools.dwarf.locationlists import LocationEntry, LocationExpr, LocationParser

from kernels.engines.emulator.watch import types
from kernels.engines.emulator.watch.types import Type

_SECTION = re.compile(r"\.section\s+(\.debug_\w+)\s*\{(.*?)\n\s*\}", re.DOTALL)
_DATA = re.compile(r"\.b(8|16|32|64)\s+(.*)")
_ADDRESS = 32  # the lowest bit of a label's address; offsets from it are below
_KINDS = {
    4: "f",
    5: "i",
    6: "i",
}  # NumPy's letters of DWARF's encodings: float, signed, signed char; others are unsigned
_SAME = {"DW_TAG_typedef", "DW_TAG_const_type", "DW_TAG_volatile_type", "DW_TAG_restrict_type"}
_POINTERS = {"DW_TAG_pointer_type", "DW_TAG_reference_type", "DW_TAG_rvalue_reference_type"}
_STRUCTS = {"DW_TAG_structure_type", "DW_TAG_class_type", "DW_TAG_union_type"}
_PARAMETER = "DW_TAG_formal_parameter"


@dataclass(frozen=True)
class Place:
    """Where a variable is: in a register, or at bytes after a symbol. From one label of its function to another; "" always."""

    register: str = ""
    symbol: str = ""
    offset: int = 0
    start: str = ""
    stop: str = ""


@dataclass(frozen=True)
class Variable:
    """`scope`: the labels of its first instruction and of the one after the last."""

    name: str
    type: Type
    line: int
    places: tuple[Place, ...]
    scope: tuple[str, str]
    is_parameter: bool


@dataclass(frozen=True)
class Function:
    """A function of the module by its name in C++."""

    name: str
    variables: tuple[Variable, ...]
    parameters: tuple[str, ...]


@lru_cache(maxsize=64)
def functions(ptx: str) -> Mapping[str, Function]:
    """Returns the functions of a module by their names in PTX; empty without debug information."""
    sections, labels = _assembled(ptx)
    if not sections.get(".debug_info"):
        return {}
    return _Reader(sections, labels).functions()


def _assembled(ptx: str) -> tuple[dict[str, bytes], dict[int, str]]:
    """Returns the sections' bytes and the label of each address."""
    sections: dict[str, bytes] = {}
    addresses: dict[str, int] = {}
    for section, content in _SECTION.findall(ptx):
        out = bytearray()
        for bits, listed in _DATA.findall(content):
            for value in listed.split(","):
                number = _number(value.strip(), addresses) & (1 << int(bits)) - 1
                out += number.to_bytes(int(bits) // 8, "little")
        sections[section] = bytes(out)
    return sections, {address: label for label, address in addresses.items()}


def _number(text: str, addresses: dict[str, int]) -> int:
    if text[0].isdigit() or text[0] == "-":
        return int(text, 0)
    symbol, _, offset = text.partition("+")
    start = 0 if symbol.startswith(".debug_") else addresses.setdefault(symbol, len(addresses) + 1 << _ADDRESS)
    return start + int(offset or 0)


class _Reader:
    def __init__(self, sections: Mapping[str, bytes], labels: Mapping[int, str]):
        self.labels = labels
        self.info = _dwarf(sections)
        self.locations = LocationParser(self.info.location_lists())
        self.types: dict[int, Type] = {}  # by place in .debug_info

    def functions(self) -> dict[str, Function]:
        found = {}
        for unit in self.info.iter_CUs():
            self.expressions = DWARFExprParser(unit.structs)
            for die in unit.iter_DIEs():
                if die.tag == "DW_TAG_subprogram" and "DW_AT_low_pc" in die.attributes:
                    name = _text(die, "DW_AT_name")
                    parameters = [child for child in die.iter_children() if child.tag == _PARAMETER]
                    function = Function(
                        name, tuple(self._variables(die)), tuple(_text(p, "DW_AT_name") for p in parameters)
                    )
                    found[_text(die, "DW_AT_MIPS_linkage_name") or name] = function
        return found

    def _variables(self, around: DIE) -> Iterator[Variable]:
        scope = self._label(around, "DW_AT_low_pc"), self._label(around, "DW_AT_high_pc")
        for die in around.iter_children():
            if die.tag == "DW_TAG_lexical_block" and "DW_AT_low_pc" in die.attributes:
                yield from self._variables(die)
            elif die.tag in ("DW_TAG_variable", _PARAMETER) and "DW_AT_location" in die.attributes:
                type_, places = self._type_of(die), tuple(self._places(die))
                if type_.leaves and places and (name := _text(die, "DW_AT_name")):
                    yield Variable(name, type_, _whole(die, "DW_AT_decl_line"), places, scope, die.tag == _PARAMETER)

    def _label(self, die: DIE, attribute: str) -> str:
        return self.labels[die.attributes[attribute].value]

    # -- places -----------------------------------------------------------------------------------------
    def _places(self, die: DIE) -> Iterator[Place]:
        found = self.locations.parse_from_attribute(die.attributes["DW_AT_location"], die.cu["version"], die)
        for entry in [found] if isinstance(found, LocationExpr) else found:
            if isinstance(entry, LocationEntry):
                labels = self.labels[entry.begin_offset], self.labels[entry.end_offset]
                yield from self._place(entry.loc_expr, *labels)
            elif isinstance(entry, LocationExpr):
                yield from self._place(entry.loc_expr)

    def _place(self, expression: list[int], start: str = "", stop: str = "") -> Iterator[Place]:
        operation, *rest = self.expressions.parse_expr(expression)
        if operation.op_name == "DW_OP_regx":
            name = operation.args[0].to_bytes(8, "big").lstrip(b"\0").decode("ascii")
            yield Place(register=name, start=start, stop=stop)
        elif operation.op_name == "DW_OP_addr":
            label, offset = divmod(operation.args[0], 1 << _ADDRESS)
            offset += sum(more.args[0] for more in rest if more.op_name == "DW_OP_plus_uconst")
            yield Place(symbol=self.labels[label << _ADDRESS], offset=offset, start=start, stop=stop)

    # -- types ------------------------------------------------------------------------------------------
    def _type_of(self, die: DIE) -> Type:
        """Returns the type that an entry names."""
        if "DW_AT_type" not in die.attributes:
            return types.UNKNOWN
        named = die.get_DIE_from_attribute("DW_AT_type")
        if named.offset not in self.types:
            self.types[named.offset] = types.UNKNOWN  # one that contains itself through a pointer
            self.types[named.offset] = self._type(named)
        return self.types[named.offset]

    def _type(self, die: DIE) -> Type:
        name, size, tag = _text(die, "DW_AT_name"), _whole(die, "DW_AT_byte_size"), die.tag
        if tag in _SAME:
            return self._type_of(die)
        if tag in _POINTERS:
            return types.pointer(self._type_of(die))
        if tag == "DW_TAG_base_type":
            return types.number(name, size, _kind(die)) if size in (1, 2, 4, 8) else types.UNKNOWN
        if tag == "DW_TAG_enumeration_type":
            return types.number(name, size, "i")
        if tag in _STRUCTS:
            parts = [child for child in die.iter_children() if child.tag in ("DW_TAG_member", "DW_TAG_inheritance")]
            members = [(_text(part, "DW_AT_name"), self._offset(part), self._type_of(part)) for part in parts]
            return types.struct(name, size, members)
        if tag == "DW_TAG_array_type":
            ranges = [child for child in die.iter_children() if child.tag == "DW_TAG_subrange_type"]
            return types.array(self._type_of(die), tuple(map(_extent, ranges)))
        return types.UNKNOWN

    def _offset(self, member: DIE) -> int:
        """Returns the place of a member in bytes."""
        if "DW_AT_data_member_location" not in member.attributes:
            return 0  # of a union
        value = member.attributes["DW_AT_data_member_location"].value
        return value if isinstance(value, int) else self.expressions.parse_expr(value)[0].args[0]


def _kind(die: DIE) -> str:
    """Returns NumPy's letter for a type of one number."""
    return _KINDS.get(_whole(die, "DW_AT_encoding"), "u")


def _extent(subrange: DIE) -> int:
    if "DW_AT_count" in subrange.attributes:
        return _whole(subrange, "DW_AT_count")
    return _whole(subrange, "DW_AT_upper_bound") + 1 if "DW_AT_upper_bound" in subrange.attributes else 0


def _text(die: DIE, attribute: str) -> str:
    found = die.attributes.get(attribute)
    return found.value.decode(errors="replace") if found else ""


def _whole(die: DIE, attribute: str) -> int:
    found = die.attributes.get(attribute)
    return int(found.value) if found else 0


def _dwarf(sections: Mapping[str, bytes]) -> DWARFInfo:
    """Returns pyelftools' reader of sections, with None for those that NVRTC does not write."""

    def section(name: str) -> DebugSectionDescriptor | None:
        data = sections.get(f".{name}")
        return DebugSectionDescriptor(BytesIO(data), name, None, len(data), 0) if data else None

    config = DwarfConfig(little_endian=True, machine_arch="x64", default_address_size=8)
    others = [name for name in signature(DWARFInfo).parameters if name.endswith("_sec")]
    return DWARFInfo(config, **{name: section(name.removesuffix("_sec")) for name in others})
