"""Text of others made harmless: secrets left out, streams cleaned."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, TextIO, cast

from rater.text.values import printable_lines

# -- Values that are not shown: of names that look like a secret's, or that look like one ----------
#
# A guess: what a program has in its words or its files under another name is shown.

# A word of the name, as `_` or a change of case divide it: KEY is in API_KEY and apiKey, and not in
# KEYBOARD or MONKEY.
_WORDS = frozenset(
    "KEY KEYS TOKEN TOKENS PASS AUTH AUTHORIZATION BEARER CRED CREDS COOKIE JWT".split()  # noqa: SIM905
)
_ANYWHERE = re.compile("PASSWORD|PASSWD|PASSPHRASE|SECRET|CREDENTIAL|APIKEY|ACCESSKEY|PRIVATEKEY")
_AT_END = re.compile("TOKEN$")  # of a word
_LATER = frozenset(("PWD", "PAT"))  # MYSQL_PWD, GITHUB_PAT; PWD is a folder, --pat a pattern
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# As options (`--key 2` of sort) these have values of all kinds in the next word.
_NO_OPTION = frozenset(("KEY", "KEYS", "PASS", "AUTH"))
_ADDRESS = re.compile(r"(?<![\w+.-])([A-Za-z][A-Za-z0-9+.-]*://[^\s/:@'\"]*):([^\s/@'\"]+)@")
_NAME = r"(-{0,2}[A-Za-z_][\w.-]*)"
_ASSIGNED = re.compile(r"(-{0,2}[A-Za-z_][\w.:-]*)=(.*)", re.DOTALL)
_HEADER = re.compile(rf"{_NAME}:(\s*)(\S.*)", re.DOTALL)  # of HTTP, as one word
# What a service gives out with a sign of its own in front, so that it is found where it leaked:
# JSON web tokens, private keys, those of GitHub, GitLab, Slack, AWS, OpenAI, npm, Hugging Face.
_ISSUED = re.compile(
    r"(?<![\w-])(?:eyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]*)*"
    r"|(?:gh[opsru]_|github_pat_|glpat-|xox[a-z]-|AKIA|ASIA|sk-|npm_|hf_)"
    r"(?:[A-Za-z0-9]+[_-])*[A-Za-z0-9]{16}[\w-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*)",
    re.DOTALL,
)
# USER:PASSWORD@HOST without a scheme; not IMAGE:TAG@sha256:DIGEST.
_LOGIN = re.compile(r"(?<![\w/:@.+-])([A-Za-z_][\w.+-]*):([^\s/@:'\"]+)@(?!sha\d)(?=[A-Za-z\[])")
# Options of one letter mean something else in every program: what goes before, and the secret.
_MYSQL = r"(-p)([^ ].*)"
_OPTIONS = {
    name: re.compile(pattern, re.DOTALL)
    for name, pattern in {
        "curl": r"((?:-\w{0,20}[uU] ?|--(?:proxy-)?user[ =])[^:]*:)(.+)",
        "mysql": _MYSQL,
        "mysqldump": _MYSQL,
        "mysqladmin": _MYSQL,
        "mariadb": _MYSQL,
        "sshpass": r"(-p ?)(.+)",
        "ssh": r"(?!)",  # ends that of sshpass
        "redis-cli": r"(-a )(.+)",
        "ldapsearch": r"(-w ?)(.+)",
        "openssl": r"(-pass(?:in|out)? pass:|-[kK] )(.+)",
    }.items()
}
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
        or not _LATER.isdisjoint(words[1:])
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
        if not value:
            return value
        return self._instead(name, value) if is_secret(name) else self.text(value)

    def pairs(self, values: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """Return variables or values of axes, fit to be shown."""
        return tuple((name, self.pair(name, value)) for name, value in values)

    def text(self, text: str) -> str:
        """Return a text or a command, as a shell would take it, fit to be shown."""
        try:
            return self._text(text)
        except RecursionError:  # texts in texts in texts: whoever wrote that
            return self._instead("a text", text)

    def _text(self, text: str) -> str:
        found, end = [], 0
        places = list(_SHELL_WORD.finditer(text))
        words = [_unquoted(it[0]) for it in places]
        for it, word, shown in zip(places, words, self._words(words), strict=True):
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
                return self._words(value)
            case list():
                return [self.values(one) for one in value]
            case dict():
                return {name: self.values(one) for name, one in value.items()}
        return value

    def _words(self, words: Sequence[str]) -> list[str]:
        shown: list[str] = []
        before, program = "", ""
        for word in words:
            name = word.rpartition("/")[2]
            program = name if name in _OPTIONS else program
            for ahead in ("", f"{before} ") if program else ():
                found = _OPTIONS[program].fullmatch(ahead + word)
                if found and found[1].startswith(ahead):
                    instead = self._instead(f"password of {program}", found[2])
                    shown.append(found[1].removeprefix(ahead) + instead)
                    break
            else:
                shown.append(self._word(word, before))
            before = word
        return shown

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
        word = _ISSUED.sub(lambda it: self._instead("a token of a known form", it[0]), word)
        if re.search(r"\s", word):
            return self._text(word)
        word = _LOGIN.sub(
            lambda it: f"{it[1]}:{self._instead('password of an address', it[2])}@", word
        )
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
        if _SHOWN.fullmatch(value):
            return value
        self.hidden[name] = None
        seen = [known for known in self._seen if known[0] == name]
        number = len(seen) + 1
        instead = "[redacted]" if number == 1 else f"[redacted {number}]"
        return self._seen.setdefault((name, value), instead)


def _unquoted(word: str) -> str:
    if any(sign in word for sign in "'\"\\"):
        with suppress(ValueError):  # a quote that is not closed
            (word,) = shlex.split(word)
    return word


# -- Streams on which text of others is no order to a terminal -------------------------------------


class _Cleaned:
    """A stream whose text has no control characters but ends of lines and tabulators."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write text of anybody."""
        return self.stream.write(printable_lines(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts of anybody."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def sanitizing_stream(stream: IO[str]) -> TextIO:
    """Return a stream that cleans what is written into this one."""
    return cast(TextIO, _Cleaned(stream))


def raw_stream(stream: TextIO) -> IO[str]:
    """Return the stream itself, for who cleans what he writes and has colours of his own."""
    return stream.stream if isinstance(stream, _Cleaned) else stream


@contextmanager
def cleaned_streams() -> Iterator[None]:
    """Keep what names, databases, files and programs say from being read as orders by a terminal.

    The one place for standard output and error; a `Terminal` does the same for what it draws.
    """
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(sanitizing_stream, before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
