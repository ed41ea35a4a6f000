"""Where suites are looked for, and what is shown of them."""

from pathlib import Path

import pytest

from rater.plan.suite_find import (
    find_suite,
    find_suites,
    load_selection,
    load_suite,
    split_selection,
    suite_folders,
    suite_names,
)
from rater.system.errors import InputError

OWN = """\
[suite]
format = 1
[benchmarks.a]
command = ["a"]
[benchmarks.a.sizes.test]
[benchmarks.b]
command = ["b"]
[benchmarks.b.sizes.test]
"""


@pytest.fixture(autouse=True)
def work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder where no suites of a user are found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("RATER_SUITES", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("./nowhere.toml", "no such file"),
        ("./nosuite", "no such file: ./nosuite"),
        ("/nope/suite", "no such file: /nope/suite"),
        ("n" * 300 + "/x", "File name too long"),
        ("/tmp/", "/tmp/ is a directory"),
        ("no-such-suite", "unknown suite 'no-such-suite'; "),
    ],
)
def test_a_suite_that_cannot_be_read_is_the_users_error(name: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        load_suite(name)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("selection", "parts"),
    [
        ("mini", ("mini", ())),
        ("mini/triad", ("mini", ("triad",))),
        ("mini/triad,gups", ("mini", ("triad", "gups"))),
        ("./own.toml", ("./own.toml", ())),
        ("./own.toml/triad", ("./own.toml", ("triad",))),
        ("/a/b/own.toml/x,y", ("/a/b/own.toml", ("x", "y"))),
        ("./nosuite", ("./nosuite", ())),
        ("../nosuite", ("../nosuite", ())),
        ("/nope/suite", ("/nope/suite", ())),
        ("nope/my/suite", ("nope/my/suite", ())),
        ("nope/triad", ("nope", ("triad",))),
    ],
)
def test_a_selection_is_suite_and_benchmarks(
    selection: str, parts: tuple[str, tuple[str, ...]]
) -> None:
    assert split_selection(selection) == parts


def test_an_existing_file_without_toml_in_its_name_is_a_suite_too(tmp_path: Path) -> None:
    path = tmp_path / "own"
    path.write_text(OWN)
    assert split_selection(str(path)) == (str(path), ())
    assert split_selection(f"{path}/b") == (str(path), ("b",))
    assert load_suite("own").path == path


def test_behind_a_path_toml_may_be_left_out(work_folder: Path) -> None:
    (work_folder / "perf").mkdir()
    (work_folder / "perf" / "mine.toml").write_text(OWN)
    assert split_selection("perf/mine") == ("perf/mine", ())
    assert split_selection("perf/mine/a,b") == ("perf/mine", ("a", "b"))
    assert split_selection("./perf/mine/b") == ("./perf/mine", ("b",))
    assert [benchmark.name for benchmark in load_selection("perf/mine/b").benchmarks] == ["b"]
    assert load_suite("perf/mine").path == work_folder / "perf" / "mine.toml"
    (work_folder / "mine.toml").write_text(OWN)
    assert [benchmark.name for benchmark in load_selection("./mine/b").benchmarks] == ["b"]


def test_a_name_with_a_benchmark_is_not_taken_for_a_path_but_what_lies_in_a_folder_is(
    work_folder: Path,
) -> None:
    for folder in ("mini", "mine"):
        (work_folder / folder).mkdir()
    (work_folder / "mini" / "triad.toml").write_text(OWN)
    assert split_selection("mini/triad") == ("mini", ("triad",))
    assert split_selection("mine/nosuite") == ("mine/nosuite", ())


def test_folders_of_suites_are_those_of_the_variable_else_one_of_the_user() -> None:
    assert suite_folders({"RATER_SUITES": "/a:/b::/a", "XDG_DATA_HOME": "/data"}) == (
        Path("/a"),
        Path("/b"),
    )
    assert suite_folders({"RATER_SUITES": "rel"}) == (Path("rel").absolute(),)
    assert suite_folders({"XDG_DATA_HOME": "/data"}) == (Path("/data/rater/suites"),)
    for unset in ({}, {"RATER_SUITES": "", "XDG_DATA_HOME": "relative"}):
        assert suite_folders(unset) == (Path.home() / ".local/share/rater/suites",)


def test_a_suite_in_such_a_folder_has_a_name(
    work_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = work_folder / "data" / "rater" / "suites"
    own.mkdir(parents=True)
    (own / "mine.toml").write_text(OWN)
    assert find_suite("mine") == own / "mine.toml"
    assert split_selection("mine/b") == ("mine", ("b",))
    (work_folder / "mine").mkdir()  # a name wins over a folder called like it
    assert [benchmark.name for benchmark in load_selection("mine/b").benchmarks] == ["b"]
    monkeypatch.setenv("RATER_SUITES", str(work_folder))
    with pytest.raises(InputError, match="unknown suite 'mine'"):
        find_suite("mine")


def test_of_two_with_one_name_the_first_is_meant_and_rater_comes_first(
    work_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = work_folder / "first", work_folder / "second"
    for folder in (first, second):
        folder.mkdir()
        for name in ("mini", "mine", "no name", "notes.txt"):
            (folder / f"{name}.toml").write_text("broken [")
        (folder / "folder.toml").mkdir()
    monkeypatch.setenv(
        "RATER_SUITES", f"{first}:{second}:{work_folder / 'none'}:{first / 'mine.toml'}"
    )
    found, troubles = find_suites()
    assert [s.name for s in found if s.folder is None] == suite_names()
    assert [(s.name, s.folder, s.instead) for s in found if s.folder and "." not in s.name] == [
        ("mine", first, None),
        ("mini", first, find_suite("mini")),
        ("mine", second, first / "mine.toml"),
        ("mini", second, find_suite("mini")),
    ]
    assert find_suite("mini").parent not in (first, second)
    assert troubles == [
        f"{work_folder}/none (of RATER_SUITES): no such folder",
        f"{first}/mine.toml: Not a directory",
    ]


def test_a_file_given_like_a_name_or_with_a_folder_beside_it_is_pointed_at(
    work_folder: Path,
) -> None:
    (work_folder / "mine.toml").write_text(OWN)
    with pytest.raises(InputError, match=r"unknown suite 'mine'; did you mean \./mine\.toml\?"):
        load_suite("mine")
    (work_folder / "foo").mkdir()
    (work_folder / "foo.toml").write_text(OWN)
    with pytest.raises(InputError) as caught:
        load_selection("foo/b")
    assert str(caught.value) == ("suite: no such file: foo/b - did you mean ./foo.toml/b?")
    assert [benchmark.name for benchmark in load_selection("./foo.toml/b").benchmarks] == ["b"]


def test_empty_words_name_no_folder_and_a_tilde_is_the_home(
    work_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(work_folder))
    assert suite_folders({"RATER_SUITES": "~/own:: "}) == (work_folder / "own",)
    assert suite_folders({"RATER_SUITES": "~no-such-user/x"}) == (
        work_folder / "~no-such-user" / "x",
    )
    data = {"XDG_DATA_HOME": str(work_folder / "nothing")}
    assert suite_folders(data | {"RATER_SUITES": ":"}) == (work_folder / "nothing/rater/suites",)
    assert find_suites(data | {"RATER_SUITES": ":"})[1] == []
