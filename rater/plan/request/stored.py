"""A request as JSON, as it is kept with its run: enough to ask for the same again; pure."""

from __future__ import annotations

import json
from dataclasses import asdict, fields

from rater import __version__
from rater.errors import InputError
from rater.plan.request.request import Request
from rater.text.kinds import UnexpectedError, described, of_type


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
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: what it was asked for is not JSON ({error})") from error
    if type(values) is not dict:
        raise InputError(f"{where}: what it was asked for is no JSON object")
    unknown = sorted(values.keys() - {field.name for field in fields(Request)})
    if unknown:
        raise InputError(
            f"{where} was made by a newer rater: it was asked for with {', '.join(unknown)}, "
            f"which rater {__version__} does not know; upgrade rater"
        )
    try:
        request: Request = of_type(Request).read(values)
    except UnexpectedError as error:
        raise InputError(
            f"{where}: what it was asked for is damaged: {error.at[1:]}: expected "
            f"{error.expected}, got {described(error.value, 'an object')}"
        ) from None
    return request
