"""Text of others made harmless: secrets left out, streams cleaned."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import IO, Any, TextIO, cast

from rater.system.patterns import compile_later
from rater.text.values import printable_lines

# -- Values that are not shown: of names that look like a secret's, or that look like one ----------
#
# A guess: what a program has in its words or its files under another name is shown.

# A word of the name, as `_` or a change of case divide it: KEY is in API_KEY and apiKey, and not in
# KEYBOARD or MONKEY.
_WORDS = frozenset(
    "KEY KEYS TOKEN TOKENS PASS AUTH AUTHORIZATION BEARER CRED CREDS COOKIE COOKIES JWT".split()  # noqa: SIM905
)
_ANYWHERE = compile_later(
    "PASSWORD|PASSWD|PASSPHRASE|SECRET|CREDENTIAL|APIKEY|ACCESSKEY|ACCOUNTKEY|PRIVATEKEY|WEBHOOK"
    "|(?:SSH|DB|USER|ROOT|ADMIN|SMTP|MAIL|PROXY|LDAP|FTP|KEY|STORE)PASS$"
)
_LATER = frozenset(("PWD", "PAT"))  # MYSQL_PWD, GITHUB_PAT; PWD is a folder, --pat a pattern
# The last word of what only tells of a secret: --token-count, PASSWORD_FILE.
_ABOUT = frozenset(
    "BITS BYTES COUNT DIR FILE FILES LEN LENGTH LIMIT MODE NAME PATH RATE SIZE TTL TYPE".split()  # noqa: SIM905
)
# What is no secret where only a word of the name speaks for one: `--pass=2`, MAX_TOKENS=131072.
_PLAIN = compile_later(r"[+-]?\d{1,3}|true|false|yes|no|on|off|none|auto", re.IGNORECASE)
_AMOUNT = compile_later(r"[\d.,:+-]{1,20}[kKmMgGtT%]?")
_WORD = compile_later(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# As options (`--key 2` of sort) these have values of all kinds in the next word.
_NO_OPTION = frozenset(("KEY", "KEYS", "PASS", "AUTH"))
_TO_LINE_END = frozenset(("AUTHORIZATION", "COOKIE"))  # as headers: `Basic x`, `a=1; b=2`
_ADDRESS = compile_later(r"(?<![\w+.-])([A-Za-z][A-Za-z0-9+.-]*://[^\s/:@'\"]*):([^\s/@'\"]+)@")
# NAME=, NAME: as in headers and YAML, "NAME": as in JSON, "NAME", as in lists of words.
_QUOTE = r"(\\{0,3}[\"'])"
_NAMED = compile_later(
    rf"(?<![\w.$-]){_QUOTE}?(-{{0,2}}[A-Za-z_][\w.-]*+){_QUOTE}?"
    r"([ \t]{0,9}:(?!//|=)[ \t]{0,9}|:?={1,2}>?|[ \t]{1,9}:?={1,2}>?[ \t]{1,9}"
    r"|(?<=[\"'])[ \t]{0,9},[ \t]{0,9}(?=\\{0,3}[\"']))"
)
# Quoted, or to a blank, a quote, and what ends a word of a shell, an address, or an argument of a
# call: a bracket before one of these, a comma before another name.
_VALUE = compile_later(
    r"(?:\"(?:[^\"\\]|\\.)*(?:\"|\Z)|'[^']*(?:'|\Z)|\\."
    r"|,(?!\s{0,9}[\"']?[A-Za-z_][\w-]{0,99}[\"']?\s{0,9}[=:])"
    r"|[)}\]](?![)}\],;]{0,9}(?:[\s\"']|\Z))|[^\s'\"&;|,)}\]\\]++)*",
    re.DOTALL,
)
_LINE = compile_later(r"[^'\"\n]*")
# What a service gives out with a sign of its own in front, so that it is found where it leaked:
# JSON web tokens, those of GitHub, GitLab, Slack, AWS, OpenAI, npm, Hugging Face, Google, Stripe,
# PyPI, Docker, SendGrid, Vault, age; a token as the user of an address; what bears a request, and
# addresses of webhooks.
_ISSUED = compile_later(
    r"(?<![\w-])(?:eyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]*)*"
    r"|(?:gh[opsru]_|github_pat_|glpat-|xox[a-z]-|AKIA|ASIA|sk-|npm_|hf_|AIza|[rs]k_live_|pypi-"
    r"|dckr_pat_|SG\.|hvs\.|AGE-SECRET-KEY-)(?:[A-Za-z0-9]+[_-])*[A-Za-z0-9]{16}[\w.-]*)"
    r"|(?<=://)[\w-]{20,}(?=@)"
    r"|(?<=[Bb]earer )[\w.~+/=-]{8,}|(?<=hooks\.slack\.com/)\w+/[^\s'\"]+"
    r"|(?<=/api/webhooks/)[^\s'\"]+|(?<=\.office\.com/webhook)[^\s'\"]+"
    r"|(?<=api\.telegram\.org/bot)[^\s/'\"]+",
    re.DOTALL,
)
# What a sentence says of a password that is not its value.
_NO_VALUE = (
    "a|accepted|already|also|always|an|asked|at|being|by|empty|encrypted|expired|for|from|given"
    "|hidden|in|incorrect|invalid|kept|known|long|missing|needed|never|no|not|now|of|old|on|only"
    "|optional|out|protected|read|redacted|rejected|required|right|same|sent|set|short|stored"
    "|strong|that|the|too|unchanged|unknown|unset|used|valid|weak|what|wrong|your"
)
# Secrets of several words, wherever a text has them: what goes before, and the secret.
_SPREAD = (
    # A key in PEM, to its end or to that of the text.
    compile_later(
        r"()(-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----[^'\"]*?"
        r"(?:-----END [A-Z ]{0,40}-----|(?=['\"])|\Z))"
    ),
    # A key of PuTTY and its proof.
    compile_later(
        r"(\bPrivate-Lines:[ ]?\d{1,5}(?:\s|\\[nr]){1,9})"
        r"([A-Za-z0-9+/=]{20}[^'\"]*?(?=(?:\s|\\[nr]){0,9}Private-|['\"]|\Z))"
    ),
    compile_later(r"(\bPrivate-MAC:[ ]?)([0-9a-fA-F]{40,64})"),
    # `login NAME password VALUE` of a .netrc.
    compile_later(r"(\blogin\s{1,99}\S+\s{1,99}password\s{1,99})([^\s'\"]+)"),
    # An element of XML.
    compile_later(r"(<[\w:.-]{0,40}(?:[Pp]assword|[Ss]ecret|[Tt]oken)[\w:.-]{0,40}>)([^<\s'\"]+)"),
    # `HOST:PORT:DATABASE:USER:PASSWORD` of a .pgpass.
    compile_later(
        r"(?<![\w/:@.+*-])((?:\*|[A-Za-z][\w.-]{0,99}|\d{1,3}(?:\.\d{1,3}){3}):(?:\*|\d{4,5}):"
        r"(?:\*|[A-Za-z_][\w.-]{0,99}):(?:\*|[A-Za-z_][\w.@-]{0,99}):)"
        r"((?:[^\s:'\"\\]|\\.)+)(?=[\s'\"]|\Z)"
    ),
    # A value in the line below its name.
    compile_later(
        r"((?i:password|passwd|passphrase|secret)[ \t]{0,9}:[ \t]{0,9}(?:[|>][+-]?)?\r?\n"
        r"[ \t]{0,99})(?![-#])([^\s'\"]*[^\s'\":])(?=[ \t]{0,9}(?:[\r\n'\"]|\Z))"
    ),
    # SQL.
    compile_later(r"(\bIDENTIFIED BY ['\"])([^'\"\n]+)"),
    # What a sentence tells.
    compile_later(
        r"(\b(?i:password|passwd|passphrase)[ \t]{1,9}"
        r"(?:is:?|for[ \t][^:\n]{1,80}(?::|[ \t]is:?))[ \t]{1,9}['\"]?)"
        rf"(?!(?i:{_NO_VALUE})\b)"
        r"([^\s'\";&|][^'\"\n;&|]*?(?=[ \t]{0,9}(?:['\"\n;&|]|\Z)))"
    ),
)
_SPREAD_NAME = "a secret of several words"
# USER:PASSWORD@HOST without a scheme; not IMAGE:TAG@sha256:DIGEST.
_LOGIN = compile_later(r"(?<![\w/:@.+-])([A-Za-z_][\w.+-]*):([^\s/@:'\"]+)@(?!sha\d)(?=[A-Za-z\[])")
# Options of one letter mean something else in every program: what goes before, and the secret.
_OPTIONS = {
    "curl": compile_later(
        r"(?s)((?:-\w{0,20}[uU] ?|--(?:proxy-)?user[ =])[^:]*:|-b (?=[^=]*=))(.+)",
    ),
    "sshpass": compile_later(r"(?s)(-p ?)(.+)"),
    "ssh": compile_later(r"(?!)"),  # ends that of sshpass
    "ssh-keygen": compile_later(r"(?s)(-[NP] ?)(.+)"),
    "redis-cli": compile_later(r"(?s)(-a )(.+)"),
    "ldapsearch": compile_later(r"(?s)(-w ?)(.+)"),
    "openssl": compile_later(r"(?s)(-pass(?:in|out)? pass:|-[kK] )(.+)"),
    "smbclient": compile_later(r"(?s)((?:-U ?|--user[ =])[^%]*%)(.+)"),
    **dict.fromkeys(
        ["mysql", "mysqldump", "mysqladmin", "mariadb"], compile_later(r"(?s)(-p)([^ ].*)")
    ),
    **dict.fromkeys(
        ["zip", "unzip", "ipmitool", "mosquitto_pub"], compile_later(r"(?s)(-P ?)(.+)")
    ),
}
_SHOWN = compile_later(r"\[redacted(?: ([0-9]{1,9}))?\]")
_MARK = compile_later("\ue000([0-9]+)\ue001")  # the same while a text is read: one word
# A word as a shell reads it; a quote that is not closed stands for itself.
_SHELL_WORD = compile_later(
    r"(?:'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.|[^\s'\"\\;|&]|['\"\\])+", re.DOTALL
)
_QUOTED = compile_later(r"'([^']*)'|\"((?:[^\"\\]|\\.)*)\"|\\(.)", re.DOTALL)
_ESCAPED = compile_later(r"\\([\"\\])")
_MOST_TEXTS = 4096  # that are remembered
_DEEPEST = 8  # quotes in quotes: beyond, the whole text is hidden


@lru_cache(4096)
def is_secret(name: str) -> bool:
    """Tell whether what has this name is a secret, by the words in it."""
    words = _split_name(name)
    return not _ABOUT.intersection(words[-1:]) and (
        _ANYWHERE.search("".join(words)) is not None
        or any(word in _WORDS or word.endswith("TOKEN") for word in words)
        or not _LATER.isdisjoint(words[1:])
    )


@lru_cache(4096)
def _split_name(name: str) -> tuple[str, ...]:
    return tuple(word.upper() for word in _WORD.findall(name))


def _is_hidden(name: str, value: str) -> bool:
    """Tell whether a value is not shown: numbers are, where the name is but a guess."""
    words = _split_name(name)
    plain_value = _PLAIN if {"KEYS", "TOKENS"}.isdisjoint(words) else _AMOUNT
    name_is_clear = _ANYWHERE.search("".join(words)) is not None
    return is_secret(name) and (name_is_clear or not plain_value.fullmatch(value))


class Secrets:
    """What several redactors share: the numbers of secrets, and the texts that were read before."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, str], str] = {}  # of a value by its name
        # By kind and text, what is shown of it and the names whose values were left out.
        self.texts: dict[tuple[object, object], tuple[Any, tuple[str, ...]]] = {}


class Redactor:
    """Puts `[redacted]` for secrets; another value of the same name is `[redacted 2]`.

    So what differs between two runs still differs, for as long as both were read through the same
    `secrets`. `hidden` has the names whose values were left out.
    """

    def __init__(self, secrets: Secrets | None = None) -> None:
        self._secrets = Secrets() if secrets is None else secrets
        self._numbers = self._secrets.numbers
        self.hidden: dict[str, None] = {}

    @property
    def values(self) -> frozenset[str]:
        """The values that were left out; not the words of a language that were so by a guess."""
        return frozenset(
            value
            for name, value in self._numbers
            if value and not (name == _SPREAD_NAME and value.isalpha())
        )

    def redact_once[T](self, kind: object, text: T, redact: Callable[[T], T]) -> T:
        """Return what `redact` makes of a text, or made of the same text of that kind before.

        `text`: a text, or what else has texts in it and does not change.

        Thousands of runs have the same few commands and variables; a number once given to a secret
        stays its own.
        """
        texts = self._secrets.texts
        redacted = texts.get((kind, text))
        if redacted is None:
            hidden_before, self.hidden = self.hidden, {}
            try:
                redacted = redact(text), tuple(self.hidden)
            finally:
                self.hidden = hidden_before
            if len(texts) >= _MOST_TEXTS:
                texts.clear()
            texts[kind, text] = redacted
        self.hidden.update(dict.fromkeys(redacted[1]))
        shown: T = redacted[0]
        return shown

    def redact_value(self, name: str, value: str) -> str:
        """Return the value of a variable, fit to be shown."""
        return self.redact_once(("value", name), value, partial(self._redact_value, name))

    def _redact_value(self, name: str, value: str) -> str:
        if value and _is_hidden(name, value):
            return _marks_out(self._mark_for(name, _marks_in(value)))
        return self.redact(value)

    def redact_pairs(self, values: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """Return variables or values of axes, fit to be shown."""
        return tuple((name, self.redact_value(name, value)) for name, value in values)

    def redact(self, text: str) -> str:
        """Return a text or a command, as a shell would take it, fit to be shown."""
        return self.redact_once("text", text, self._redact_text)

    def _redact_text(self, text: str) -> str:
        marked = _marks_in(text)
        for pattern in _SPREAD:
            marked = pattern.sub(self._redact_spread, marked)
        return _marks_out(self._redact_named_values(self._redact_command(marked), head=-1))

    def _redact_spread(self, match: re.Match[str]) -> str:
        before, value = match.groups()
        return f"{before}{self._mark_for(_SPREAD_NAME, value)}"

    def redact_json(self, value: Any) -> Any:
        """Return a value of JSON with its texts, and lists of words, fit to be shown."""
        match value:
            case str():
                return self.redact(value)
            case [str(), *rest] if all(isinstance(member, str) for member in rest):
                return [
                    _marks_out(word)
                    for word in self._redact_words([_marks_in(member) for member in value])
                ]
            case list():
                return [self.redact_json(member) for member in value]
            case dict():
                return {
                    name: self.redact_value(name, member)
                    if isinstance(member, str)
                    else self.redact_json(member)
                    for name, member in value.items()
                }
        return value

    def _redact_command(self, text: str, depth: int = 0) -> str:
        if depth > _DEEPEST:
            return self._mark_for("a text", text)
        pieces, end = [], 0
        places = list(_SHELL_WORD.finditer(text))
        words = [_unquote(place[0]) for place in places]
        for it, word, shown in zip(places, words, self._redact_words(words, depth), strict=True):
            if shown != word:
                quoted = shlex.quote(shown) if it[0] != word else shown
                pieces += [text[end : it.start()], quoted]
                end = it.end()
        return "".join([*pieces, text[end:]])

    def _redact_words(self, words: Sequence[str], depth: int = 0) -> list[str]:
        """Return the words of a command, without quotes."""
        shown: list[str] = []
        previous_word, program = "", ""
        for word in words:
            name = word.rpartition("/")[2].rpartition("=")[2]
            program = name if name in _OPTIONS else program
            for prefix in ("", f"{previous_word} ") if program else ():
                match = _OPTIONS[program].fullmatch(prefix + word)
                if match and match[1].startswith(prefix):
                    mark = self._mark_for(f"password of {program}", match[2])
                    shown.append(match[1].removeprefix(prefix) + mark)
                    break
            else:
                shown.append(self._redact_word(word, previous_word, depth))
            previous_word = word
        return shown

    def _redact_word(self, word: str, previous_word: str, depth: int) -> str:
        """Return a word of a command, without quotes, which may be a command itself."""
        name = previous_word.lstrip("-")
        takes_value = (
            previous_word.startswith("-")
            and "=" not in previous_word
            and name.upper() not in _NO_OPTION
        )
        if takes_value and word and not word.startswith("-") and _is_hidden(name, word):
            return self._mark_for(previous_word, word)
        word = self._redact_named_values(word, head=0)
        word = _ISSUED.sub(lambda match: self._mark_for("a token of a known form", match[0]), word)
        if re.search(r"\s", word):
            return self._redact_command(word, depth + 1)
        for address in (_LOGIN, _ADDRESS):
            word = address.sub(
                lambda match: f"{match[1]}:{self._mark_for('password of an address', match[2])}@",
                word,
            )
        return word

    def _redact_named_values(self, text: str, *, head: int) -> str:
        """Return a text without the values of names; one that begins at `head` has all the rest."""
        pieces, copied_to, position = [], 0, 0
        while name_match := _NAMED.search(text, position):
            position = name_match.end()
            if not _names_secret(name_match):
                head = position if name_match.start() == head else head
                continue
            value_end = len(text)
            if name_match[1] and not name_match[3]:  # 'NAME: VALUE'
                close = text.find(name_match[1], position)
                value_end = close if close >= 0 else value_end
            elif name_match.start() != head:
                is_header = name_match[2].upper() in _TO_LINE_END and ":" in name_match[4]
                value_match = (_LINE if is_header else _VALUE).match(text, position)
                value_end = value_match.end() if value_match else position
            value, quote = text[position:value_end], text[position:value_end][:1]
            if quote in ("'", '"') and value.find(quote, 1) == len(value) - 1:
                position, value = position + 1, value[1:-1]
            if value and (_is_hidden(name_match[2], value) or not is_secret(name_match[2])):
                pieces += [text[copied_to:position], self._mark_for(name_match[2], value)]
                copied_to = position + len(value)
                position = value_end
        return "".join([*pieces, text[copied_to:]])

    def _mark_for(self, name: str, value: str) -> str:
        """Return a mark; its number is counted under the name and no value."""
        if value.lstrip("'\"\\").startswith("\ue000"):
            return value
        self.hidden[name] = None
        if (name, value) not in self._numbers:
            number = int(self._numbers.get((name, ""), "0")) + 1
            self._numbers[name, ""] = self._numbers[name, value] = str(number)
        return f"\ue000{self._numbers[name, value]}\ue001"


def _names_secret(name_match: re.Match[str]) -> bool:
    """Tell whether a name with its sign and quotes is that of a secret."""
    name, sign, previous = (
        name_match[2].lstrip("-"),
        name_match[4],
        name_match.string[name_match.start() - 1 : name_match.start()],
    )
    if previous in ("?", "&") and {"SIG", "SIGNATURE"}.intersection(_split_name(name)):
        return True
    if previous == ";" and name.upper() == "PWD" and "=" in sign:  # of ODBC
        return True
    if "," in sign and not name_match[2].startswith("-"):
        return _ANYWHERE.search("".join(_split_name(name))) is not None and is_secret(name)
    is_alone = "=" not in sign and name.upper() in (
        ("KEY", "KEYS") if name_match[3] else _NO_OPTION
    )
    return not is_alone and is_secret(name)


def command_text(words: Sequence[str]) -> str:
    """Return a command as a shell takes it, fit to be shown."""
    return Redactor().redact(shlex.join(words))


def _marks_in(text: str) -> str:
    """Return a text with marks in place of what was left out before, and with no others."""
    return _SHOWN.sub(lambda mark: f"\ue000{mark[1] or 1}\ue001", _MARK.sub("?", text))


def _marks_out(text: str) -> str:
    return _MARK.sub(lambda mark: "[redacted]" if mark[1] == "1" else f"[redacted {mark[1]}]", text)


def _unquote(word: str) -> str:
    """Return a word as a shell passes it on; a quote that is not closed stays."""
    return _QUOTED.sub(
        lambda match: _ESCAPED.sub(r"\1", match[2]) if match[2] else match[1] or match[3] or "",
        word,
    )


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
