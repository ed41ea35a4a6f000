"""The elements of an hwloc XML file that matter, read by expat, each with its place in the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import NoReturn
from xml.parsers import expat

from rater.errors import InputError
from rater.text import cpuset
from rater.text.words import printable

_LONGEST_SUBTYPE = 24
_DEEPEST = 200  # a real machine has about 25 levels; the tree is walked by recursion
# More than 16384 PUs with cores and three caches each have; they bound the time and the memory
# that a hostile file takes.
_MOST_ELEMENTS = 400_000
_MOST_OBJECTS = 120_000
_MOST_ATTRIBUTES = 1_000_000
_MOST_MATRICES = 1000
_ENCODINGS = ("UTF-8", "UTF-16", "ISO-8859-1", "US-ASCII")  # that expat itself reads
_MEMORY_TYPES = ("NUMANode", "MemCache")
_NO_CPUS_TYPES = ("Misc", "Bridge", "PCIDev", "OSDev")  # their CPUs are those of their parent
_parse_bitmap = lru_cache(maxsize=256)(cpuset.parse_bitmap)  # neighbours repeat each other's sets


@dataclass(slots=True)
class Element:
    """One element of the file that matters, with helpers whose errors name its place."""

    source: str
    line: int
    tag: str  # for people: "object PU", "cpukind"
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)  # objects
    memory_children: list[Element] = field(default_factory=list)
    texts: dict[str, list[str]] = field(default_factory=dict)  # of indexes and u64values
    infos: dict[str, str] = field(default_factory=dict)  # of <info>; the first of a name counts

    def fail(self, message: str) -> NoReturn:
        """Raise the error of this place; `message` goes on after the tag."""
        raise InputError(f"{self.source}:{self.line}: {self.tag}{message}")

    def number(self, name: str, default: int | None = None) -> int:
        """Return the whole number in an attribute; without a default it must be there."""
        text = self._text(name, None if default is None else str(default), "a number")
        digits = text.strip().removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
            self.fail(f": {name}={text[:60]!r}, expected a number")
        return int(text)

    def mask(self, name: str, default: int | None = None) -> int:
        """Return the mask of the bitmap in an attribute; without a default it must be there."""
        if default is not None and name not in self.attributes:
            return default
        try:
            return _parse_bitmap(self._text(name, None, "a bitmap"))
        except ValueError as error:
            self.fail(f": {name}: {error}")

    def _text(self, name: str, default: str | None, expected: str) -> str:
        text = self.attributes.get(name, default)
        if text is None:
            self.fail(f" has no {name}, expected {name}= and {expected}")
        return text

    @property
    def type(self) -> str:
        """The type of an object."""
        return self.attributes["type"]

    def subtype(self) -> str | None:
        """Return what hwloc calls a special node or group, cut where it is long."""
        return short(self.attributes.get("subtype", ""), _LONGEST_SUBTYPE) or None

    def os_index(self) -> int:
        """Return the OS number of a PU or node."""
        number = self.number("os_index")
        if not 0 <= number <= cpuset.MAX_NUMBER:
            self.fail(f": os_index={number}, expected 0 to {cpuset.MAX_NUMBER}")
        return number


def short(text: str, longest: int = 64) -> str:
    """Return a name that a file gives to something, cut where it is longer than people's are."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


class File:
    """The elements of one file that matter, as expat meets them."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.open: list[Element | None] = []  # None: an element that does not matter
        self.root: Element | None = None
        self.matrices: list[Element] = []
        self.kinds: list[Element] = []
        self.infos: dict[str, str] = {}  # of the file as a whole (version 3)
        self.elements = 0
        self.objects = 0
        self.text: list[str] | None = None  # where character data goes, None: nowhere

    def read(self, text: str | bytes) -> None:
        """Read a whole file; raises `InputError` with the line of what is wrong."""
        self.parser = expat.ParserCreate("utf-8" if isinstance(text, str) else None)
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.parser.XmlDeclHandler = self._declaration
        try:
            data = text.encode("utf-8", "replace") if isinstance(text, str) else text
            if data.count(b"=") > _MOST_ATTRIBUTES:
                self._fail(1, f"more than {_MOST_ATTRIBUTES} attributes, expected an hwloc file")
            self.parser.Parse(data, True)
        except expat.ExpatError as error:
            self._fail(
                error.lineno,
                f"not well-formed XML ({expat.ErrorString(error.code)}), "
                "expected a whole hwloc XML file",
            )

    def _fail(self, line: int, message: str) -> NoReturn:
        raise InputError(f"{self.source}:{line}: {message}")

    def _declaration(self, version: str, encoding: str | None, standalone: int) -> None:
        # For others expat asks Python, whose codecs warn, fail in their own ways, or are no text.
        if encoding is not None and encoding.upper() not in _ENCODINGS:
            self._fail(
                self.parser.CurrentLineNumber,
                f"encoding={encoding[:40]!r}, expected hwloc XML in UTF-8",
            )

    def _doctype(self, name: str, system: str | None, public: str | None, internal: bool) -> None:
        if internal:  # the only place where entities, and so their explosion, can be declared
            self._fail(
                self.parser.CurrentLineNumber,
                "the DOCTYPE has declarations of its own, "
                'expected <!DOCTYPE topology SYSTEM "hwloc2.dtd"> or none',
            )

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        line = self.parser.CurrentLineNumber
        if len(self.open) >= _DEEPEST:
            self._fail(line, f"<{tag}> lies more than {_DEEPEST} deep, expected an hwloc file")
        parent = self.open[-1] if self.open else None
        self.elements += 1
        if self.elements > _MOST_ELEMENTS:
            self._fail(line, f"more than {_MOST_ELEMENTS} elements, expected an hwloc file")
        new: Element | None = None
        if not self.open:
            self._topology(tag, attributes, line)
        elif tag == "object":
            new = self._object(parent, attributes, line)
        elif tag == "distances2" and len(self.open) == 1:
            new = Element(self.source, line, tag, attributes)
            if len(self.matrices) == _MOST_MATRICES:
                new.fail(f" is one of more than {_MOST_MATRICES}, expected a few")
            self.matrices.append(new)
        elif tag == "cpukind" and len(self.open) == 1:
            new = Element(self.source, line, tag, attributes)
            self.kinds.append(new)
        elif tag in ("indexes", "u64values") and parent is not None and parent.tag == "distances2":
            self.text = parent.texts.setdefault(tag, [])
        elif tag == "info":
            self._info(parent, attributes)
        self.open.append(new)

    def _end(self, tag: str) -> None:
        if self.text is not None:
            self.text.append(" ")  # numbers of two blocks do not run together
            self.text = None
        self.open.pop()

    def _characters(self, data: str) -> None:
        if self.text is not None:
            self.text.append(data)

    def _topology(self, tag: str, attributes: dict[str, str], line: int) -> None:
        if tag != "topology":
            self._fail(line, f"found <{tag[:40]}>, expected <topology> of an hwloc XML file")
        version = attributes.get("version", "1")
        major = version.partition(".")[0]
        if major in ("0", "1"):
            self._fail(
                line,
                "this is the format of hwloc 1.x, expected version 2 or 3: convert it with "
                "`lstopo --input OLD.xml NEW.xml` of hwloc 2.x",
            )
        if major not in ("2", "3"):
            self._fail(
                line,
                f"<topology version={version[:20]!r}>, expected version 2 or 3, such as "
                "`lstopo --export-xml-flags v2` writes",
            )

    def _object(
        self, parent: Element | None, attributes: dict[str, str], line: int
    ) -> Element | None:
        kind = attributes.get("type")
        if not kind:
            self._fail(line, "<object> has no type, expected type=")
        self.objects += 1
        if self.objects > _MOST_OBJECTS:
            self._fail(line, f"more than {_MOST_OBJECTS} objects, expected an hwloc file")
        new = Element(self.source, line, f"object {printable(kind[:40])}", attributes)
        if parent is not None:
            if kind in _NO_CPUS_TYPES:
                return None
            (parent.memory_children if kind in _MEMORY_TYPES else parent.children).append(new)
            return new
        if len(self.open) > 1:
            return None  # inside a device
        if self.root is not None:
            new.fail(" is a second outermost object, expected one Machine")
        if kind != "Machine":
            new.fail(" is the outermost object, expected a Machine")
        self.root = new
        return new

    def _info(self, parent: Element | None, attributes: dict[str, str]) -> None:
        """Keep what an <info> says of its element; version 3 says some of it of the whole file."""
        infos = self.infos if len(self.open) == 1 else parent.infos if parent is not None else {}
        infos.setdefault(attributes.get("name", ""), attributes.get("value", ""))
