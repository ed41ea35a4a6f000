"""What another user leaves where rater looks for its files is neither followed nor written."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from rater.run.host.admission import machine_lock
from rater.run.programs.compile import cache_root
from rater.settings import journal as journals
from rater.settings.journal import DamagedJournalError, Journal, this_owner
from rater.settings.restore import find_leftovers, restore_leftovers
from rater.settings.tuner import SettingsSession
from rater.store.store import open_store
from rater.system.errors import InputError
from rater.system.files import (
    UntrustedError,
    make_private_folder,
    open_file,
    replace_file,
    resolve_trusted_folder,
)
from tests.support.settings_tree import make_tree
from tests.support.strangers import STRANGER, give, needs_root, stranger_does, stranger_holds

pytestmark = needs_root
ROOT = Path("/")
SECRET = "only root may write this\n"
EMPTY = Journal(this_owner(ROOT, "rater sweep mini"), ())


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of root's that others would like to see damaged."""
    file = tmp_path / "secret"
    file.write_text(SECRET)
    file.chmod(0o600)
    return file


def lock(path: Path) -> None:
    with machine_lock(path, "root was here"):
        pass


def save(path: Path) -> None:
    journals.save(path, EMPTY)


def hold(path: Path) -> None:
    with journals.lock_journal(path, ROOT):
        pass


# `protected_symlinks` of the kernel holds in folders with the sticky bit alone: these have none.
@pytest.mark.parametrize(
    ("use", "name"), [(lock, "it"), (save, "it.new"), (hold, "it.held"), (save, "it")]
)
@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_never_leads_to_another_file(
    use: Callable[[Path], None],
    name: str,
    link: Callable[[Path, Path], None],
    secret: Path,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "place"
    folder.mkdir()
    link(secret, folder / name)
    if link is os.symlink:
        give(folder / name)
    if use is save:  # puts its own in the place of whatever there is
        use(folder / "it")
        assert [file.name for file in folder.iterdir()] == ["it"]
        assert journals.load(folder / "it") == EMPTY
    else:
        with pytest.raises(InputError, match=r"symbolic link|2 hard links"):
            use(folder / "it")
    assert secret.read_text() == SECRET
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


@pytest.mark.parametrize(("use", "name"), [(lock, "it"), (save, "it.new"), (hold, "it.held")])
def test_nothing_is_made_where_a_dangling_link_leads(
    use: Callable[[Path], None], name: str, tmp_path: Path
) -> None:
    folder, aim = tmp_path / "place", tmp_path / "cron.d"
    folder.mkdir()
    (folder / name).symlink_to(aim)
    give(folder / name)
    if use is save:
        use(folder / "it")
    else:
        with pytest.raises(InputError, match="a symbolic link, expected a file"):
            use(folder / "it")
    assert not aim.exists()


@pytest.mark.parametrize("use", [lock, hold])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("mkdir evil && ln -s /root evil/in", "belongs to user 1234"),
        ("ln -s /root evil", "a symbolic link of user 1234"),
        ("mkdir -m 777 evil", "belongs to user 1234"),
    ],
)
def test_a_folder_that_another_user_leads_to_is_refused(
    use: Callable[[Path], None], change: str, said: str, shared: Path
) -> None:
    stranger_does(change, shared)
    with pytest.raises(InputError, match=said):
        use(shared / "evil" / "in" / "rater-attack-test")
    assert not Path("/root/rater-attack-test").exists()


@pytest.mark.parametrize("use", [lock, hold])
def test_a_folder_in_which_everybody_can_swap_files_is_refused(
    use: Callable[[Path], None], shared: Path
) -> None:
    shared.chmod(0o777)
    with pytest.raises(InputError, match="everybody may remove files of others from this folder"):
        use(shared / "it")
    assert list(shared.iterdir()) == []


def test_a_lock_that_another_user_made_is_taken_and_not_written(shared: Path) -> None:
    stranger_does("echo mine > rater.lock; chmod 666 rater.lock", shared)
    path = shared / "rater.lock"
    with machine_lock(path, "root was here"):
        assert path.read_text() == "mine\n"
        with pytest.raises(InputError, match="another run holds this machine"):
            lock(path)


def test_others_can_take_the_lock_of_root_and_cannot_write_into_it(shared: Path) -> None:
    path = shared / "rater.lock"
    umask = os.umask(0)
    try:
        lock(path)
    finally:
        os.umask(umask)
    stranger_does("flock --nonblock rater.lock true; ! sh -c 'echo x >> rater.lock'", shared)
    assert path.read_text() == "root was here\n"


def test_who_is_gone_is_not_said_to_hold_a_lock(shared: Path) -> None:
    path = shared / "rater.lock"
    stranger_does("echo 'rater run 1, process 999999999, user eve' > rater.lock", shared)
    with (
        machine_lock(path, "root"),
        pytest.raises(InputError, match="machine: another user's rater"),
    ):
        lock(path)


@pytest.mark.parametrize("make", ["mkfifo it", "mkdir it", "ln -s it it"])
def test_what_is_no_file_is_refused_and_never_waited_for(make: str, shared: Path) -> None:
    stranger_does(make, shared)
    with pytest.raises(InputError, match=r"not a regular file but|Is a directory|a symbolic link"):
        lock(shared / "it")


def test_a_journal_that_another_user_wrote_is_not_acted_on(shared: Path) -> None:
    save(shared / "it")
    give(shared / "it")
    with pytest.raises(DamagedJournalError, match="a file of user 1234"):
        journals.load(shared / "it")


def test_settings_are_put_back_whatever_another_user_holds(shared: Path) -> None:
    root = make_tree(shared / "machine")
    swappiness = root / "proc/sys/vm/swappiness"
    before = swappiness.read_text()
    shared.chmod(0o755)
    path = shared / "settings.json"
    (shared / "settings.json.lock").touch(0o644)  # of an earlier rater
    tuner = SettingsSession(root, path, "rater sweep mini")
    tuner.set({"swappiness": "10"})
    tuner._stack.close()  # as if it were killed
    document = path.read_text().replace(f'"pid": {os.getpid()}', '"pid": 999999999')
    replace_file(path, document.encode(), mode=0o644)
    held = [stranger_holds(file) for file in sorted(shared.glob("settings.json*"))]
    assert len(held) == 3
    with held[0], held[1], held[2]:
        assert find_leftovers(root, path) is not None
        assert restore_leftovers(root, path, lambda _: None)
    assert swappiness.read_text() == before


def test_a_file_of_another_user_is_not_opened_for_what_is_ours(shared: Path) -> None:
    stranger_does("echo data > it", shared)
    with pytest.raises(UntrustedError, match="a file of user 1234"):
        open_file(shared / "it", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    assert (shared / "it").read_text() == "data\n"


def test_a_new_file_is_ours_alone_and_never_an_old_one(shared: Path) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    os.close(open_file(shared / "it", flags))
    assert stat.S_IMODE((shared / "it").stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        open_file(shared / "it", flags)


def test_who_called_sudo_is_root_already(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stranger_does("mkdir home", shared)
    monkeypatch.setenv("SUDO_UID", str(STRANGER))
    lock(shared / "home" / "rater.lock")
    monkeypatch.setenv("SUDO_UID", "1235")
    with pytest.raises(InputError, match="the folder belongs to user 1234"):
        lock(shared / "home" / "rater.lock")


def test_what_root_makes_by_sudo_in_the_callers_home_is_the_callers(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With HOME kept, `rater list` of the user then failed on a database of root's."""
    stranger_does("mkdir home", shared)
    home = shared / "home"
    monkeypatch.setenv("SUDO_UID", str(STRANGER))
    monkeypatch.setenv("HOME", str(home))
    database = home / ".local" / "share" / "rater" / "rater.db"
    with open_store(database):
        made = [*home.rglob("*")]
        assert {path.name for path in made} >= {".local", "share", "rater", "rater.db"}
        assert {path.stat().st_uid for path in made} == {STRANGER}
    stranger_does(f"echo >> {database}", shared)
    assert cache_root({"SUDO_UID": str(STRANGER)}) == Path("/root/.cache/rater")
    monkeypatch.delenv("SUDO_UID")
    assert cache_root({}) == home / ".cache" / "rater"


def test_ways_are_followed_as_the_kernel_does(tmp_path: Path) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "there").symlink_to("real/deep")
    (tmp_path / "round").symlink_to("round")
    assert resolve_trusted_folder(tmp_path / "there" / ".." / "deep") == tmp_path / "real" / "deep"
    assert resolve_trusted_folder(tmp_path / "new" / "er", make=True) == tmp_path / "new" / "er"
    with pytest.raises(FileNotFoundError):
        resolve_trusted_folder(tmp_path / "missing")
    with pytest.raises(OSError, match="Too many levels"):
        resolve_trusted_folder(tmp_path / "round")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        resolve_trusted_folder(tmp_path / "file" / "in")


def test_a_private_folder_is_written_by_nobody_else(shared: Path) -> None:
    assert make_private_folder(shared / "mine") == shared / "mine"
    with pytest.raises(UntrustedError, match="everybody may write into it"):
        make_private_folder(shared)
