"""A request as JSON, as it is kept with its run: enough to ask for the same again; pure."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from rater import __version__
from rater.errors import InputError
from rater.plan.request.request import Request


def request_to_json(request: Request) -> str:
    """Return a request as JSON text."""
    return json.dumps(asdict(request))


def request_from_json(text: str, where: str) -> Request:
    """Return the request that `request_to_json` made `text` of; `where` names the run in errors.

    What an older rater did not know has its default. Raises `InputError` for what
    this one does not know.
    """
    try:
        values = json.loads(text)
    except ValueError as error:
        raise InputError(f"{where}: what it was asked for is not JSON ({error})") from error
    if type(values) is not dict:
        raise InputError(f"{where}: what it was asked for is no JSON object")
    kinds = _kinds()
    unknown = sorted(values.keys() - kinds.keys())
    if unknown:
        raise InputError(
            f"{where} was made by a newer rater: it was asked for with {', '.join(unknown)}, "
            f"which rater {__version__} does not know; upgrade rater"
        )
    found = {}
    for name, value in values.items():
        try:
            found[name] = _frozen(value, kinds[name])
        except TypeError:
            raise InputError(
                f"{where}: what it was asked for is damaged: {name} is {value!r}"
            ) from None
    return Request(**found)


@cache
def _kinds() -> dict[str, Any]:
    return get_type_hints(Request)


def _frozen(value: Any, kind: Any) -> Any:
    """Return a value of JSON as a field of this type holds it; raises `TypeError`."""
    if get_origin(kind) is UnionType:
        return None if value is None else _frozen(value, get_args(kind)[0])
    if get_origin(kind) is tuple:
        item, last = get_args(kind)
        if type(value) is not list or (last is not ... and len(value) != 2):
            raise TypeError
        return tuple(_frozen(one, item) for one in value)
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise TypeError
    return value
