"""Secrets are known by the words of their names, and left out wherever they are written."""

import pytest

from rater.text.secrets import Redactor, is_secret

SECRETS = """
API_KEY apiKey AWS_ACCESS_KEY_ID GITHUB_TOKEN githubtoken MAX_TOKENS SECRET client-secret PGPASSWORD
MYSQL_PASSWD SMTP_PASS SSH_AUTH_SOCK CREDENTIALS passphrase OPENAI_APIKEY KEY2
MYSQL_PWD
"""
OTHERS = """
KEYBOARD MONKEY OMP_NUM_THREADS PATH PWD OLDPWD AUTHOR TOKENIZERS_PARALLELISM COMPASS
PASSES hotkey MALLOC_ARENA_MAX
"""


def test_a_secret_is_known_by_the_words_of_its_name() -> None:
    assert [name for name in SECRETS.split() if not is_secret(name)] == []
    assert [name for name in OTHERS.split() if is_secret(name)] == []


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("./a --password=hunter2 -n 4", "./a --password=[redacted] -n 4"),
        ("./a --password hunter2 -n 4", "./a --password [redacted] -n 4"),
        ("./a --password 'hun ter2' x", "./a --password '[redacted]' x"),
        ("rater run --env API_KEY=xyz mini", "rater run --env API_KEY=[redacted] mini"),
        ("rater run --env=API_KEY=xyz mini", "rater run --env=API_KEY=[redacted] mini"),
        ("rater run --env 'API_KEY=x y' mini", "rater run --env 'API_KEY=[redacted]' mini"),
        ("run --env 'KEY=a'\"'\"'b c' mini", "run --env 'KEY=[redacted]' mini"),
        ("x 'a --token=y' --quiet sh -c 'b'", "x 'a --token=[redacted]' --quiet sh -c 'b'"),
        ("x 'it is --token=y", "x 'it is --token=[redacted]"),
        ("sh -c 'cd x; TOKEN=xyz ./a'", "sh -c 'cd x; TOKEN=[redacted] ./a'"),
        ("curl https://me:pw@host/x?a=1", "curl https://me:[redacted]@host/x?a=1"),
        ("curl https://host/x?token=abc", "curl https://host/x?token=[redacted]"),
        ("curl -H 'X-Api-Key: a b' u", "curl -H 'X-Api-Key: [redacted]' u"),
        ("./a 'key: 3' 'speed: 4'", "./a 'key: 3' 'speed: 4'"),
        ("sort --key 2 --parallel=4 < in > out", "sort --key 2 --parallel=4 < in > out"),
        ("./a --monkey=1 KEYBOARD=us", "./a --monkey=1 KEYBOARD=us"),
        ("a=" * 100_000, "[redacted]"),
        ("./a --token --fast", "./a --token --fast"),
    ],
)
def test_secrets_of_commands(command: str, shown: str) -> None:
    assert Redactor().text(command) == shown


def test_what_differs_still_differs_and_what_was_left_out_is_named() -> None:
    seen: dict[tuple[str, str], str] = {}
    first, second = Redactor(seen), Redactor(seen)
    assert [first.pair("API_KEY", it) for it in ("a", "b", "a")] == [
        "[redacted]",
        "[redacted 2]",
        "[redacted]",
    ]
    assert second.pair("API_KEY", "b") == "[redacted 2]"
    assert second.pair("URL", "http://me:pw@host") == "http://me:[redacted]@host"
    assert second.pair("A", "1") == "1"
    assert second.pair("API_KEY", "[redacted, they said") == "[redacted 3]"
    assert list(second.hidden) == ["API_KEY", "password of an address"]


def test_values_of_documents_are_words_of_commands_or_texts() -> None:
    asked = {"command": ["./a", "--token", "x y"], "prepare": "TOKEN=1 ./b", "copies": 2}
    shown = {"command": ["./a", "--token", "[redacted]"], "prepare": "TOKEN=[redacted] ./b"}
    assert Redactor().values(asked) == shown | {"copies": 2}
