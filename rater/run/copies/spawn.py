"""posix_spawn(3) that lets the other threads go on.

`os.posix_spawn` keeps the interpreter's lock until the child has executed its program, and on a
full machine the child first waits for a CPU: that long no end of another copy could be stamped.
"""

from __future__ import annotations

import ctypes
import os
import signal
from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate

type Action = (
    tuple[int, int, int] | tuple[int, int, str, int, int]
)  # as of `os.posix_spawn`: dup2 or open

_DEFAULT_SIGNALS = (int(signal.SIGPIPE), int(signal.SIGXFSZ))  # Python ignores these two
# spawn.h, glibc and musl
_SET_GROUP, _SET_DEFAULT_SIGNALS, _SET_MASK, _SET_SESSION = 0x02, 0x04, 0x08, 0x80
# Of libc's opaque types (glibc: 80 and 336 bytes on 64 bits) and of a set of signals (128).
_ROOM_BYTES = 1024

_libc = ctypes.CDLL(None)  # not PyDLL: the interpreter's lock is free during a call


def _checked(error: int, program: str) -> None:
    if error:
        raise OSError(error, os.strerror(error), program)


def _attributes(of_its_own: int) -> ctypes.Array[ctypes.c_char]:
    """Return those of a process with a group or session, and signals as a shell hands them on."""
    attributes = ctypes.create_string_buffer(_ROOM_BYTES)
    defaults, none = (ctypes.create_string_buffer(_ROOM_BYTES) for _ in range(2))
    _libc.sigemptyset(none)
    _libc.sigemptyset(defaults)
    for number in _DEFAULT_SIGNALS:
        _libc.sigaddset(defaults, number)
    _checked(_libc.posix_spawnattr_init(attributes), "")
    _checked(_libc.posix_spawnattr_setpgroup(attributes, 0), "")
    _checked(_libc.posix_spawnattr_setsigmask(attributes, none), "")
    _checked(_libc.posix_spawnattr_setsigdefault(attributes, defaults), "")
    flags = of_its_own | _SET_DEFAULT_SIGNALS | _SET_MASK
    _checked(_libc.posix_spawnattr_setflags(attributes, ctypes.c_short(flags)), "")
    return attributes


_GROUP, _SESSION = map(_attributes, (_SET_GROUP, _SET_SESSION))


def _strings(texts: Sequence[bytes]) -> tuple[object, array[int], ctypes.c_void_p]:
    """Return an array of pointers to strings as C has it, last; the rest holds its memory."""
    joined = b"\0".join(texts) + b"\0"
    if joined.count(b"\0") != max(len(texts), 1):  # one would end early without a word
        raise ValueError("embedded null byte")
    memory = ctypes.create_string_buffer(joined, len(joined))
    starts = accumulate(map((1).__add__, map(len, texts)), initial=ctypes.addressof(memory))
    pointers = array("L", starts)  # as wide as a pointer wherever Linux runs
    pointers[-1] = 0
    return memory, pointers, ctypes.c_void_p(pointers.buffer_info()[0])


def spawn(
    program: str,
    argv: Sequence[str],
    environment: Mapping[bytes, bytes],
    actions: Sequence[Action],
    *,
    session: bool = False,
) -> int:
    """Spawn a process in a group (or session) of its own, with signals as a shell hands them on.

    Return its number; raises OSError as `os.posix_spawn` does.
    """
    pid = ctypes.c_int()
    arguments = _strings(list(map(os.fsencode, argv)))
    variables = _strings(list(map(b"=".join, environment.items())))
    files = ctypes.create_string_buffer(_ROOM_BYTES)
    _checked(_libc.posix_spawn_file_actions_init(files), program)
    try:
        for action in actions:
            if len(action) == 3:
                error = _libc.posix_spawn_file_actions_adddup2(files, *action[1:])
            else:
                _, fd, path, flags, mode = action
                error = _libc.posix_spawn_file_actions_addopen(
                    files, fd, os.fsencode(path), flags, mode
                )
            _checked(error, program)
        error = _libc.posix_spawn(
            ctypes.byref(pid),
            os.fsencode(program),
            files,
            _SESSION if session else _GROUP,
            arguments[-1],
            variables[-1],
        )
    finally:
        _libc.posix_spawn_file_actions_destroy(files)
    _checked(error, program)
    return pid.value


def spawn_alone(
    program: str,
    argv: tuple[str, ...],
    environment: Mapping[bytes, bytes],
    actions: Sequence[Action],
) -> int:
    """Do the same where no other thread has anything to do: for less CPU time (30 us)."""
    return os.posix_spawn(
        program,
        argv,
        environment,
        file_actions=actions,
        setpgroup=0,
        setsigmask=(),
        setsigdef=_DEFAULT_SIGNALS,
    )
