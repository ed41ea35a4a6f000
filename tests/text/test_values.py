"""Values in text: CPU sets, numbers, units, words of sentences, and secrets that are left out.

The long form of broken texts, a million of them, is `make torture`.
"""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from benchmarks.torture.readers import feed, readers
from rater.plan.placement.expression import parse_expression
from rater.store.observations import read_observations
from rater.system.errors import InputError
from rater.text import cpuset
from rater.text.cpuset import format_list, mask_of, parse_bitmap, parse_set
from rater.text.secrets import Redactor, Secrets, is_secret
from rater.text.values import (
    copies_text,
    count,
    duration_ms,
    duration_s,
    ending_text,
    parse_percent,
    percent,
    runs_text,
    signed_percent,
    size_bytes,
    truncate_list,
)
from tests.support.bitmaps import format_bitmap
from tests.support.observations import observed
from tests.support.suite_text import parse_suite


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0-3,8", (0, 1, 2, 3, 8)),
        ("", ()),
        ("\n", ()),
        ("0\n", (0,)),
        (" 0 - 2 ,  7 ", (0, 1, 2, 7)),
        ("8,0,1", (8, 0, 1)),
        ("3,3", (3, 3)),
        ("007", (7,)),
        ("65535", (65535,)),
    ],
)
def test_a_list_is_read_in_the_order_written(text: str, numbers: tuple[int, ...]) -> None:
    assert cpuset.parse_list(text) == numbers


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0-", "expected a number at character 3 of '0-', found the end"),
        ("0,,1", "expected a number at character 3 of '0,,1', found ','"),
        ("a", "expected a number at character 1 of 'a', found 'a'"),
        ("-1", "expected a number at character 1"),
        ("0 1", "unexpected '1' at character 3"),
        ("0-7:2/4", "unexpected ':' at character 4"),
        ("3-1", "the range 3-1 in '3-1' runs backwards"),
        ("0-4000000000", "at character 3 of '0-4000000000' is above 65535"),
        ("99999999999999999999999999", "at character 1"),
        ("0-65535,0-65535", "names more than 65536 numbers"),
        ("١", "expected a number"),
    ],
)
def test_a_wrong_list_is_an_error_with_its_position(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        cpuset.parse_list(text)


def test_a_set_is_a_list_without_order() -> None:
    assert cpuset.parse_set("5,1-2,1") == {1, 2, 5}


@pytest.mark.parametrize(
    ("numbers", "text"),
    [((), ""), ((5,), "5"), ((8, 0, 1, 3, 2), "0-3,8"), ((0, 2, 4), "0,2,4"), ((1, 1), "1")],
)
def test_numbers_are_printed_as_ranges(numbers: tuple[int, ...], text: str) -> None:
    assert cpuset.format_list(numbers) == text


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0x000000ff", (0, 1, 2, 3, 4, 5, 6, 7)),
        ("0x0", ()),
        ("0x00000001,,0x00000100", (8, 64)),
        ("0x80000000,,,0x0", (127,)),
        ("0xF", (0, 1, 2, 3)),
    ],
)
def test_a_bitmap_of_hwloc_is_read(text: str, numbers: tuple[int, ...]) -> None:
    assert cpuset.numbers_of(cpuset.parse_bitmap(text)) == numbers


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("0x1,", "ends with ','"),
        (",", "ends with ','"),
        ("0xf...f", "infinite"),
        ("0xf...f,0x00000003", "infinite"),
        ("0x1,0xg", "'0xg' at character 5 of the bitmap '0x1,0xg'"),
        ("0x123456789", "no word of up to 8 hex digits"),
        ("ff", "expected 0x..."),
        ("0x1, 0x1", "' 0x1' at character 5"),
        ("0x1" + "," * 2048 + "0x0", "names numbers above 65535"),
        ("0xffffffff," * 9000 + "0x0", "names numbers above 65535"),
    ],
)
def test_a_wrong_bitmap_is_an_error_with_its_position(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        cpuset.parse_bitmap(text)
    assert len(str(caught.value)) < 300


def test_bitmaps_and_lists_are_printed_as_they_are_read() -> None:
    for numbers in ((), (0,), (8, 64), (31, 32, 33), (65535,), tuple(range(0, 4096, 3))):
        mask = cpuset.mask_of(numbers)
        assert cpuset.parse_bitmap(format_bitmap(mask)) == mask
        assert cpuset.parse_list(cpuset.format_list(numbers)) == numbers
        assert cpuset.numbers_of(mask) == numbers


# Values that stand in our modules are tried as well: which, would hang on what else was imported.
providers._get_local_constants = lambda: providers._local_constants
FEW = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
CPUS = st.sets(st.integers(0, 4000), max_size=60)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
VALUES = st.recursive(
    LEAVES, lambda it: st.lists(it) | st.dictionaries(st.text(max_size=9), it), max_leaves=4
)
TOML = st.sampled_from(["[suite]", "format = 1", "[benchmarks.a]", "[[a]]", "a = {", "x = [1,"])
WORDS = st.sampled_from(["N", "S0", "M1", "E:", ":", "@", "0", "99999", "-", ",", "scatter", " "])


@FEW
@given(CPUS)
def test_a_list_and_a_bitmap_of_cpus_come_back_as_they_were_written(cpus: set[int]) -> None:
    assert parse_set(format_list(cpus)) == cpus
    assert parse_bitmap(format_bitmap(mask_of(cpus))) == mask_of(cpus)


@FEW
@given(st.lists(WORDS, max_size=12).map("".join))
def test_an_expression_is_read_or_refused_in_words(text: str) -> None:
    with suppress(InputError):
        assert parse_expression(text)


@FEW
@given(st.sampled_from(["uuid", "mode", "copies", "window_s", "windows", "started_at"]), VALUES)
def test_observations_with_any_value_in_their_head_are_read_or_refused(
    key: str, value: Any
) -> None:
    document = observed({}) | {"run": observed({})["run"] | {key: value}}
    with suppress(InputError):
        assert read_observations(json.dumps(document).encode(), "f").copies


@FEW
@given(st.sampled_from(["benchmark", "iteration", "copy", "cpu", "start_s", "elapsed_s"]), VALUES)
def test_observations_with_any_value_in_a_row_are_read_or_refused(key: str, value: Any) -> None:
    with suppress(InputError):
        assert read_observations(json.dumps(observed({key: value})).encode(), "f").copies


@FEW
@given(st.text(max_size=60) | st.lists(TOML, max_size=9).map("\n".join))
def test_a_suite_of_any_text_is_read_or_refused(text: str) -> None:
    with suppress(InputError):
        parse_suite(text, Path("s.toml"))


@pytest.mark.parametrize("name", readers())
def test_a_reader_survives_broken_texts(name: str) -> None:
    assert feed(name, "short", 5) == (name, 5, [])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("500ms", 0.5), ("1m30s", 90), ("1.5h", 5400), ("2min", 120)]
    + [(".5", 0.5), ("250us", 0.00025), ("1d", 86400)],
)
def test_durations_are_seconds_unless_they_have_a_unit(text: str, seconds: float) -> None:
    assert duration_s(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "ms"), [("6000", 6000), ("6s", 6000), ("500us", 0.5), ("1m", 60000)]
)
def test_a_stagger_is_milliseconds_unless_it_has_a_unit(text: str, ms: float) -> None:
    assert duration_ms(text) == pytest.approx(ms, rel=1e-12)


@pytest.mark.parametrize("text", ["", "m", "1x", "1m 30s", "s1", "1m30", "-1s", "1 s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected seconds or a number with a unit"):
        duration_s(text)


def test_sizes_are_powers_of_1024() -> None:
    assert [size_bytes(it) for it in ("4096", "2k", "1.5M", "2GiB")] == [
        *(4096, 2048, 1572864, 2147483648)
    ]
    with pytest.raises(ValueError, match="expected a size in bytes"):
        size_bytes("0")


def test_numbers_and_lists_read_as_people_say_them() -> None:
    assert (count(1, "run"), count(2, "run"), copies_text(3)) == ("1 run", "2 runs", "3 copies")
    assert truncate_list(["a", "b", "c"], 2) == "a, b and 1 more"
    assert (runs_text([7]), runs_text([7, 8, 9], 2)) == ("run 7", "runs 7, 8 and 1 more")


@pytest.mark.parametrize(
    ("share", "plain", "signed"),
    [(None, "-", "-"), (0.1234, "12.3", "+12.3"), (-0.05, "-5.0", "-5.0"), (-1e-9, "-0.0", "+0.0")],
)
def test_shares_are_written_in_per_cent(share: float | None, plain: str, signed: str) -> None:
    assert (percent(share), signed_percent(share)) == (plain, signed)


@pytest.mark.parametrize(
    ("text", "share"),
    [("1%", 0.01), (" 1.5 % ", 0.015), ("0", 0.0), ("100%", None), ("-1", None), ("nan", None)],
)
def test_per_cent_are_read(text: str, share: float | None) -> None:
    assert parse_percent(text) == (None if share is None else pytest.approx(share))


SECRETS = """
API_KEY apiKey AWS_ACCESS_KEY_ID GITHUB_TOKEN githubtoken MAX_TOKENS SECRET client-secret PGPASSWORD
MYSQL_PASSWD SMTP_PASS SSH_AUTH_SOCK CREDENTIALS passphrase OPENAI_APIKEY KEY2
MYSQL_PWD GITHUB_PAT SESSION_JWT env:API_KEY SSHPASS DB_PASS SLACK_WEBHOOK_URL WEBHOOK storepass
"""
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcDEF-_123"
GITHUB = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
OTHERS = """
KEYBOARD MONKEY OMP_NUM_THREADS PATH PWD OLDPWD AUTHOR TOKENIZERS_PARALLELISM COMPASS
PASSES hotkey MALLOC_ARENA_MAX PAT pattern PATH_MAX env:PATH
keyframes BYPASS lowpass SIGNATURE sigma
token-count PASSWORD_FILE KEY_SIZE cookie-file auth_mode
"""


def test_a_secret_is_known_by_the_words_of_its_name() -> None:
    assert [name for name in SECRETS.split() if not is_secret(name)] == []
    assert [name for name in OTHERS.split() if is_secret(name)] == []


PYTHON = """python -c 'connect(password='"'"'[redacted]'"'"', host='"'"'h'"'"')'"""
PYTHON_APART = """python -c 'login("me", passwd = "[redacted]", n=3)'"""
MOUNTED = "mount -t cifs -o user=me,password=[redacted],vers=3 //h/s"
COOKIE_IN_SHELL = """sh -c 'curl -H '"'"'Cookie: [redacted]'"'"' h'"""


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
        ("a=" * 100_000, "a=" * 100_000),
        ("curl -" + "u" * 100_000, "curl -" + "u" * 100_000),
        ("eyJ-" * 50_000, "eyJ-" * 50_000),
        ("sk-" * 50_000, "sk-" * 50_000),
        ("a:" * 50_000, "a:" * 50_000),
        ("./a --token --fast", "./a --token --fast"),
        ("sweep --axis env:API_KEY=a,b", "sweep --axis env:API_KEY=[redacted]"),
        ("curl -u me:p:w https://h/x", "curl -u me:[redacted] https://h/x"),
        ("curl -sume:pw https://h/x", "curl -sume:[redacted] https://h/x"),
        ("env A=1 /usr/bin/curl --user me:pw h", "env A=1 /usr/bin/curl --user me:[redacted] h"),
        ("sh -c 'x; curl -u me:pw h'", "sh -c 'x; curl -u me:[redacted] h'"),
        ("curl -H Authorization:abc u", "curl -H Authorization:[redacted] u"),
        ("mysql -ume -phunter2 db", "mysql -ume -p[redacted] db"),
        ("mysqldump -p'hun ter' db", "mysqldump '-p[redacted]' db"),
        ("sshpass -p hunter2 ssh -p 22 h", "sshpass -p [redacted] ssh -p 22 h"),
        ("openssl enc -pass pass:x -in a", "openssl enc -pass pass:[redacted] -in a"),
        ("git clone me:pw@host/x", "git clone me:[redacted]@host/x"),
        (f"./a {JWT}", "./a [redacted]"),
        (f"./a --url=https://h/?x={JWT} 2", "./a --url=https://h/?x=[redacted] 2"),
        (f"./a 'say {GITHUB} twice {GITHUB}'", "./a 'say [redacted] twice [redacted]'"),
        ("./a AKIAIOSFODNN7EXAMPLE", "./a [redacted]"),
        ("./a sk-proj-abcdefghijklmnop1234_x", "./a [redacted]"),
        ("python -c \"connect(password='X', host='h')\"", PYTHON),
        ('python -c \'login("me", passwd = "X", n=3)\'', PYTHON_APART),
        (
            """perl -e 'f(password => "X", a => 1)'""",
            """perl -e 'f(password => "[redacted]", a => 1)'""",
        ),
        (
            """sh -c 'python -c "f(token=\\"X\\")"'""",
            """sh -c 'python -c "f(token=[redacted])"'""",
        ),
        (
            """curl -d '{"password": "X y", "n": 3}' h""",
            """curl -d '{"password": "[redacted]", "n": 3}' h""",
        ),
        ("""curl -d "{\\"api_key\\":\\"X\\"}" h""", """curl -d '{"api_key":"[redacted]"}' h"""),
        ("""curl -d '{"auth":"X"}' h""", """curl -d '{"auth":"[redacted]"}' h"""),
        ("""./a '["--password", "X"]'""", """./a '["--password", "[redacted]"]'"""),
        ("./a '{password: X, count: 3}'", "./a '{password: [redacted], count: 3}'"),
        (
            "curl 'https://h/b?se=2026&sig=X%3D&sp=r'",
            "curl 'https://h/b?se=2026&sig=[redacted]&sp=r'",
        ),
        (
            "wget https://h/o?X-Amz-Signature=ab12&x=1",
            "wget https://h/o?X-Amz-Signature=[redacted]&x=1",
        ),
        ("mount -t cifs -o user=me,password=X,vers=3 //h/s", MOUNTED),
        ("mount -o password=X //h/s /mnt", "mount -o password=[redacted] //h/s /mnt"),
        ("sshfs -opassword=X me@h: /mnt", "sshfs -opassword=[redacted] me@h: /mnt"),
        ("SSHPASS=X sshpass -e ssh h", "SSHPASS=[redacted] sshpass -e ssh h"),
        ("curl -b 'sid=X; a=b' h", "curl -b '[redacted]' h"),
        ("curl -H 'Cookie: sid=X; a=b' h", "curl -H 'Cookie: [redacted]' h"),
        ("wget '--header=Authorization: Basic X' h", "wget '--header=Authorization: [redacted]' h"),
        ("sh -c \"curl -H 'Cookie: sid=X; a=b' h\"", COOKIE_IN_SHELL),
        (
            "curl https://hooks.slack.com/services/T0/B0/X",
            "curl https://hooks.slack.com/[redacted]",
        ),
        (
            "curl https://discord.com/api/webhooks/1/X",
            "curl https://discord.com/api/webhooks/[redacted]",
        ),
        ("keytool -storepass X -alias a", "keytool -storepass [redacted] -alias a"),
        ("zip -P X a.zip b", "zip -P [redacted] a.zip b"),
        ("./a 'Server=h;Uid=me;Pwd=X;'", "./a 'Server=h;Uid=me;Pwd=[redacted];'"),
        (
            "./a 'AccountName=me;AccountKey=X==;S=t'",
            "./a 'AccountName=me;AccountKey=[redacted];S=t'",
        ),
        ("password = X", "password = [redacted]"),
        ("./a --token=[redacted] --key=[redacted 2]", "./a --token=[redacted] --key=[redacted 2]"),
        (
            "PuTTY-User-Key-File-2: ssh-rsa\nEncryption: none\nPublic-Lines: 1\nAAAAB3NzaC1yc2E=\n"
            "Private-Lines: 2\nAAAAgQCpsl7mAbCdEfGh0123456789+/\nabcd==\nPrivate-MAC: " + 20 * "0a",
            "PuTTY-User-Key-File-2: ssh-rsa\nEncryption: none\nPublic-Lines: 1\nAAAAB3NzaC1yc2E=\n"
            "Private-Lines: 2\n[redacted]\nPrivate-MAC: [redacted 2]",
        ),
        ("Private-Lines: 1\n" + 44 * "A", "Private-Lines: 1\n[redacted]"),
        ("db.example.com:5432:main:me:hun\\:ter2", "db.example.com:5432:main:me:[redacted]"),
        (
            "*:*:*:me:x1\n10.0.0.1:5433:*:me:x2\n",
            "*:*:*:me:[redacted]\n10.0.0.1:5433:*:me:[redacted 2]\n",
        ),
        ("echo 'h:5432:db:u:swordfish' > f", "echo 'h:5432:db:u:[redacted]' > f"),
        ("the passphrase is correct horse staple\nrun", "the passphrase is [redacted]\nrun"),
        ("echo my password is x1 && ./a -n 2", "echo my password is [redacted] && ./a -n 2"),
        ("Password is: 'open sesame'.", "Password is: '[redacted]'."),
        ("Password:\n  swordfish\n./a", "Password:\n  [redacted]\n./a"),
        ("password: |-\n  hunter2\nother: 1", "password: |-\n  [redacted]\nother: 1"),
        ("Enter passphrase for key '/k': hunter2", "Enter passphrase for key '/k': [redacted]"),
        ("The password for root is x1", "The password for root is [redacted]"),
        ("CREATE USER me IDENTIFIED BY 'a b'", "CREATE USER me IDENTIFIED BY '[redacted]'"),
        ("ssh-keygen -t rsa -N 'a b' -f k", "ssh-keygen -t rsa -N '[redacted]' -f k"),
        ("x AGE-SECRET-KEY-1" + 58 * "Q", "x [redacted]"),
        ("root passphrase:\r\nx:1\r\n", "root passphrase:\r\n[redacted]\r\n"),
        ("./a '-----BEGIN RSA PRIVATE KEY-----\nMIIE\n'", "./a '[redacted]'"),
        (
            "it said\n-----BEGIN PRIVATE KEY-----\nX\nY\n-----END PRIVATE KEY-----\n1",
            "it said\n[redacted]\n1",
        ),
        ("machine h login me password X port 1", "machine h login me password [redacted] port 1"),
        ("./a 'login me\n  password X'", "./a 'login me\n  password [redacted]'"),
        ("./a '<db:password>X</db:password>'", "./a '<db:password>[redacted]</db:password>'"),
        ("git clone https://0123456789abcdef0123@h/x", "git clone https://[redacted]@h/x"),
        ("git clone ssh://git@h/x", "git clone ssh://git@h/x"),
        ("./a hvs.CAESIabcdefghijklmnop", "./a [redacted]"),
    ],
)
def test_secrets_of_commands(command: str, shown: str) -> None:
    assert Redactor().redact(command) == shown


@pytest.mark.parametrize(
    "command",
    """
    curl -sSfL -o upload:1.txt https://me@host:8080/x?page=2
    curl -u me -U x https://h/
    mysql -u root -p db
    mysql -P 3306 --port=3306 -e 'select 1' db
    ssh -p 22 me@host uptime
    mkdir -p a/b && cp -p a b && tar -xzpf a.tgz
    make -j8 -pfoo CFLAGS=-O3
    docker run -u 1000:1000 -p 8080:80 -v /a:/b:ro me/image:1.2@sha256:0123abcd ./a
    docker run -u me:staff image
    rsync -a me@host:dir/a@b .
    scp host:dir/logo@2x.png .
    git clone git@host:me/x.git
    git clone ssh://git@host:22/me/x.git
    npm i react@npm:preact@10
    chown me:staff file
    perf stat -p 123 -e cycles:u -u 2
    openssl speed -evp aes-128-gcm -multi 2
    openssl enc -aes-256-cbc -pass file:key.pem
    redis-benchmark -a -n 1000 -t set,get
    numactl --membind=0 --cpunodebind=0 ./a
    mpirun --map-by core:PE=2 --host a:2,b:2 ./a
    ./xz_r -T1 cpu2006docs.tar.xz 250 055ce243071129412e9dd0b3b69a21654033a9b7
    ./mcf_r inp.in -path x --pattern y --path=/x PATH=/bin --pat z
    ./a sk-learn_benchmark ghp_short hf_model_weights_large_version_2 AKIAK eyJustAName.py
    ./a hf_internal-testing_tiny-random-model-v2 task-0123456789abcdefghij
    ./a 2M@64M-128M spread:50% heap:huge;mmap:base
    java -Xmx4g -cp a.jar:b.jar -Duser=me -Dmode:x=3 Main key:3 pass:2
    python -c 'print(d["key"], a[1:2], f(x)@g)'
    awk -F: '{print $1}' /etc/passwd
    sort -k 2 -t : --key 2 in
    ./a --keyframes=3 --token-count 5 --max-tokens 4096 MAX_TOKENS=131072 --keys=1000 --num-keys 1,5
    x264 --pass 2 --key=2 --pass=1 --auth=none && ffmpeg -pass 1 -x264-params keyint=60:pass=2
    redis-benchmark -n 1000000 --threads 4 -d 256 -P 16 -r 10000
    python -c 'assert d == {"key": "name", "count": 3} and len(tokens) == 4 and x["a", "b"]'
    python train.py --optimizer.sig=3 --sigma=0.5 tokenizer=bpe tokens_per_batch:1024
    ./a --password-file=/run/secret --key-size 4096 'key: value' --bandpass=3 -P 5 -b 5 -b a=1
    curl -b cookies.txt -o out https://h/x?signal=1&design=2&page=3
    [ $TOKEN = x ]
    """.strip().splitlines(),
)
def test_what_people_run_stays_as_it_is(command: str) -> None:
    assert Redactor().redact(command.strip()) == command.strip()


@pytest.mark.parametrize(
    "text",
    [
        "PuTTY-User-Key-File-2: ssh-rsa\nPublic-Lines: 1\nAAAAB3NzaC1yc2EAAAADAQABAAAB\n",
        "Private-Lines: 14 are in it\nand nothing else",
        "the password is wrong",
        "Password is required; the passphrase is not set, your password is at least 8 letters",
        "Password:\n",
        "Enter passphrase for key '/k': ",
        "password for host: unknown",
        "secret: |\n  - a\n",
        "password:\n  length: 12\n  kind: plain\n",
        "secret:\n  - name: a\n",
        "Password:\n\nLast login: today\n",
        "root:x:0:0:root:/root:/bin/bash",
        "a.c:1234:5: warning: unused",
        "main.c:120:f:g:h",
        "at 12:30:45:me:you",
        "pack:16:2:4:8 10.0.0.1:8080:80 h:5432",
        "fe80::1234:db:user:host",
        "PATH=/a:/b:1234:c:d:e",
    ],
)
def test_texts_that_tell_no_secret_stay_as_they_are(text: str) -> None:
    assert Redactor().redact(text) == text


def test_a_word_that_was_left_out_by_a_guess_keeps_no_bundle_from_being_written() -> None:
    redactor = Redactor()
    redactor.redact("Password:\nAccepted\nthe password is hunter2")
    assert redactor.values == {"hunter2"}


def test_a_megabyte_of_quotes_and_names_is_read_once() -> None:
    """127 kB made `rater rerun` and `compare` spin for minutes: time goes with the length."""
    pieces = [
        "'a ",
        '"',
        "\\",
        "TOKEN=x ",
        "'TOKEN: ",
        "[redacted 2] ",
        "me:pw@host ",
        "\\'",
        "'\"'\"",
        "a=",
        "password is ",
        "h:5432:d:",
        "Private-Lines: 1 AAAAAAAAAAAAAAAAAAAAAAAA",
        "Password:\n ",
    ]
    for piece in pieces:
        for quote in ("", "'", '"'):
            text = quote + piece * (20_000 // len(piece)) + quote
            start = time.process_time()
            Redactor().redact(text)
            assert time.process_time() - start < 2, piece  # 0.02 s; the square of it is a minute


def test_what_differs_still_differs_and_what_was_left_out_is_named() -> None:
    secrets = Secrets()
    first, second = Redactor(secrets), Redactor(secrets)
    assert [first.redact_value("API_KEY", it) for it in ("a", "b", "a")] == [
        "[redacted]",
        "[redacted 2]",
        "[redacted]",
    ]
    assert second.redact_value("API_KEY", "b") == "[redacted 2]"
    assert second.redact_value("URL", "http://me:pw@host") == "http://me:[redacted]@host"
    assert second.redact_value("A", "1") == "1"
    assert second.redact_value("API_KEY", "[redacted, they said") == "[redacted 3]"
    assert list(second.hidden) == ["API_KEY", "password of an address"]


def test_values_of_documents_are_words_of_commands_or_texts() -> None:
    asked = {"command": ["./a", "--token", "x y"], "prepare": "TOKEN=x1 ./b", "copies": 2}
    shown = {"command": ["./a", "--token", "[redacted]"], "prepare": "TOKEN=[redacted] ./b"}
    assert Redactor().redact_json(asked) == shown | {"copies": 2}


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (3, "ended with status 3"),
        (-9, "was killed by SIGKILL"),
        (-40, "was killed by signal 40"),
    ],
)
def test_an_end_is_told_by_its_status_or_its_signal(status: int, text: str) -> None:
    assert ending_text(status) == text
