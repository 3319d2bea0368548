"""Protocol v3: the part of a message that belongs to its operation, as a table of fields.

A :class:`Part` pairs fields of protobuf with the attributes of our value, in the order in which the value's
constructor takes them. Two loops over the pairs read and write every part of this shape; operations whose
answers repeat a header (authentication, TLS) have functions of their own beside their tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Generic, TypeVar

#: The type of a part that protobuf generates; each has fields of its own.
Message = Any
#: Id in an answer that has none, as when only the status came.
NO_ID = -1

Value = TypeVar("Value")


class Part(Generic[Value]):
    """Read and write one kind of value.

    ``name`` is the part's field in the message. ``required`` and ``optional`` map the part's fields to
    attributes; an optional attribute is None when its field did not come. ``read_flags`` returns the
    attributes that share a field of bits or of an enumeration, and ``write_flags`` sets that field.
    Of the attributes, ``of`` gets the part of a message and ``required`` gets the contents of a part.
    """

    def __init__(
        self,
        kind: Callable[..., Value],
        name: str,
        required: Mapping[str, str],
        optional: Mapping[str, str] | None = None,
        read_flags: Callable[[Message], dict[str, Any]] | None = None,
        write_flags: Callable[[Message, Any], None] | None = None,
    ) -> None:
        self.kind = kind
        self.name = name
        self.of = attrgetter(name)
        self.required = _getter(tuple(required))
        self.missing = (NO_ID,) * len(required)
        self._required = tuple(required.items())
        self._optional = tuple((optional or {}).items())
        self._is_plain = not optional and read_flags is None
        self._read_flags = read_flags
        self._write_flags = write_flags

    def others(self, part: Message) -> dict[str, Any]:
        """Return the optional attributes whose fields came, and the flags."""
        if self._is_plain:
            return {}
        found = {} if self._read_flags is None else self._read_flags(part)
        for field, attribute in self._optional:
            if part.HasField(field):
                found[attribute] = getattr(part, field)
        return found

    def write(self, part: Message, value: Value) -> None:
        """Set the fields of ``part`` from the attributes of ``value``."""
        for field, attribute in self._required:
            setattr(part, field, getattr(value, attribute))
        for field, attribute in self._optional:
            content = getattr(value, attribute)
            if content is not None:
                setattr(part, field, content)
        if self._write_flags is not None:
            self._write_flags(part, value)


def _getter(fields: tuple[str, ...]) -> Callable[[Message], tuple[Any, ...]]:
    """Return a function that gets all fields of a part as a tuple, in C where there are two or more."""
    if len(fields) > 1:
        return attrgetter(*fields)
    return lambda part: tuple(getattr(part, field) for field in fields)
