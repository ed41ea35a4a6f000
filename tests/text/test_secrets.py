"""Secrets are known by the words of their names, and left out wherever they are written."""

import pytest

from rater.text.secrets import Redactor, is_secret

SECRETS = """
API_KEY apiKey AWS_ACCESS_KEY_ID GITHUB_TOKEN githubtoken MAX_TOKENS SECRET client-secret PGPASSWORD
MYSQL_PASSWD SMTP_PASS SSH_AUTH_SOCK CREDENTIALS passphrase OPENAI_APIKEY KEY2
MYSQL_PWD GITHUB_PAT SESSION_JWT env:API_KEY
"""
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcDEF-_123"
GITHUB = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
OTHERS = """
KEYBOARD MONKEY OMP_NUM_THREADS PATH PWD OLDPWD AUTHOR TOKENIZERS_PARALLELISM COMPASS
PASSES hotkey MALLOC_ARENA_MAX PAT pattern PATH_MAX env:PATH
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
        ("./a '-----BEGIN RSA PRIVATE KEY-----\nMIIE\n'", "./a '[redacted]'"),
    ],
)
def test_secrets_of_commands(command: str, shown: str) -> None:
    assert Redactor().text(command) == shown


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
    """.strip().splitlines(),
)
def test_what_people_run_stays_as_it_is(command: str) -> None:
    assert Redactor().text(command.strip()) == command.strip()


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
