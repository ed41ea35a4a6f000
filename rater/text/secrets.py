"""Values that are not shown: of names that look like a secret's, and passwords in addresses; pure.

A guess by names: what a program has in its words or its files under another name is shown.
"""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from typing import Any

# A word of the name, as `_` or a change of case divide it: KEY is in API_KEY and apiKey, and not in
# KEYBOARD or MONKEY.
_WORDS = frozenset(
    "KEY KEYS TOKEN TOKENS PASS AUTH AUTHORIZATION BEARER CRED CREDS COOKIE".split()  # noqa: SIM905
)
_ANYWHERE = re.compile("PASSWORD|PASSWD|PASSPHRASE|SECRET|CREDENTIAL|APIKEY|ACCESSKEY|PRIVATEKEY")
_AT_END = re.compile("TOKEN$")  # of a word
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# As options (`--key 2` of sort) these have values of all kinds in the next word.
_NO_OPTION = frozenset(("KEY", "KEYS", "PASS", "AUTH"))
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^\s/:@'\"]*):([^\s/@'\"]+)@")
_NAME = r"(-{0,2}[A-Za-z_][\w.-]*)"
_ASSIGNED = re.compile(rf"{_NAME}=(.*)", re.DOTALL)
_HEADER = re.compile(rf"{_NAME}:(\s+)(\S.*)", re.DOTALL)  # of HTTP, as one word
_SHOWN = re.compile(r"\[redacted( [0-9]+)?\]")
_IN_QUERY = re.compile(rf"([?&]){_NAME}=([^&#\s]+)")
# A word as a shell reads it; a quote that is not closed stands for itself.
_SHELL_WORD = re.compile(r"(?:'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.|[^\s'\"\\;|&]|['\"\\])+", re.DOTALL)


def is_secret(name: str) -> bool:
    """Tell whether what has this name is a secret, by the words in it."""
    joined = re.sub(r"[\W_]", "", name).upper()
    words = [word.upper() for word in _WORD.findall(name)]
    return (
        _ANYWHERE.search(joined) is not None
        or not _WORDS.isdisjoint(words)
        or any(_AT_END.search(word) for word in words)
        or "PWD" in words[1:]  # MYSQL_PWD; PWD and OLDPWD are folders
    )


class Redactor:
    """Puts `[redacted]` for secrets; another value of the same name is `[redacted 2]`.

    So what differs between two runs still differs, for as long as both were read through one
    `seen`. `hidden` has the names whose values were left out.
    """

    def __init__(self, seen: dict[tuple[str, str], str] | None = None) -> None:
        self._seen: dict[tuple[str, str], str] = {} if seen is None else seen
        self.hidden: dict[str, None] = {}

    def pair(self, name: str, value: str) -> str:
        """Return the value of a variable, fit to be shown."""
        if _SHOWN.fullmatch(value):
            return value
        return self._instead(name, value) if is_secret(name) else self.text(value)

    def text(self, text: str) -> str:
        """Return a text or a command, as a shell would take it, fit to be shown."""
        try:
            return self._text(text)
        except RecursionError:  # texts in texts in texts: whoever wrote that
            return self._instead("a text", text)

    def _text(self, text: str) -> str:
        found, end, before = [], 0, ""
        for it in _SHELL_WORD.finditer(text):
            word = it[0]
            if any(sign in word for sign in "'\"\\"):
                with suppress(ValueError):  # a quote that is not closed
                    (word,) = shlex.split(word)
            shown, before = self._word(word, before), word
            if shown != word:
                quoted = shlex.quote(shown) if it[0] != word else shown
                found += [text[end : it.start()], quoted]
                end = it.end()
        return "".join([*found, text[end:]])

    def values(self, value: Any) -> Any:
        """Return a value of JSON with its texts, and lists of words, fit to be shown."""
        match value:
            case str():
                return self.text(value)
            case [str(), *rest] if all(isinstance(one, str) for one in rest):
                return [self._word(*two) for two in zip(value, ["", *value], strict=False)]
            case list():
                return [self.values(one) for one in value]
            case dict():
                return {name: self.values(one) for name, one in value.items()}
        return value

    def _word(self, word: str, before: str = "") -> str:
        """Return a word of a command, without quotes, which may be a command itself."""
        name = before.lstrip("-")
        takes = before.startswith("-") and is_secret(name) and name.upper() not in _NO_OPTION
        if takes and "=" not in before and word and not word.startswith("-"):
            return self._instead(before, word)
        assigned = _ASSIGNED.fullmatch(word)
        if assigned:
            secret = is_secret(assigned[1])
            value = self._instead(*assigned.groups()) if secret else self._word(assigned[2])
            return f"{assigned[1]}={value}"
        header = _HEADER.fullmatch(word)
        if header and is_secret(header[1]) and header[1].upper() not in _NO_OPTION:
            return f"{header[1]}:{header[2]}{self._instead(header[1], header[3])}"
        if re.search(r"\s", word):
            return self._text(word)
        word = _ADDRESS.sub(
            lambda it: f"{it[1]}:{self._instead('password of an address', it[2])}@", word
        )
        return _IN_QUERY.sub(
            lambda it: (
                f"{it[1]}{it[2]}={self._instead(it[2], it[3])}" if is_secret(it[2]) else it[0]
            ),
            word,
        )

    def _instead(self, name: str, value: str) -> str:
        self.hidden[name] = None
        seen = [known for known in self._seen if known[0] == name]
        number = len(seen) + 1
        instead = "[redacted]" if number == 1 else f"[redacted {number}]"
        return self._seen.setdefault((name, value), instead)
