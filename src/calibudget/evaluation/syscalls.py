"""The system calls that generated code has no use for, refused by a seccomp filter.

The namespaces and limits of the sandbox hold without it. It closes what they leave open: shared memory and
anonymous files that no memory limit counts, socket families without a namespace, and the parts of the kernel
where most escapes were found.
"""

from __future__ import annotations

import errno
import platform
import socket
import struct
from typing import Final

from calibudget.errors import DependencyError

#: Audit names of the machines, as in linux/audit.h.
_ARCHITECTURES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

#: name: (number on x86_64, number on aarch64)
_REFUSED: Final = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_setup": (425, 425),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "mq_open": (240, 180),
    "msgget": (68, 186),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "semget": (64, 190),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "shmget": (29, 194),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
}
_SOCKET: Final = (41, 198)
#: Its flags lie in memory where no filter can read them; told that it is missing, libraries fall back to clone.
_CLONE3: Final = (435, 435)
#: Numbers from here on belong to the x32 interface, which has its own numbers for every call.
_X32: Final = 0x40000000

_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_AT_LEAST: Final = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_RETURN: Final = 0x06  # BPF_RET | BPF_K
_KILL: Final = 0x80000000
_ALLOW: Final = 0x7FFF0000
_ERROR: Final = 0x00050000
_NUMBER_AT: Final = 0
_ARCHITECTURE_AT: Final = 4
_FIRST_ARGUMENT_AT: Final = 16


def seccomp_filter(machine: str | None = None) -> bytes:
    """The filter as classic BPF, for `bwrap --seccomp`: refused calls fail with EPERM, other ABIs kill.

    Raises:
        DependencyError: no table of numbers is known for this machine.
    """
    machine = machine or platform.machine()
    if machine not in _ARCHITECTURES:
        raise DependencyError(
            f"the sandbox for generated code knows {', '.join(_ARCHITECTURES)}, not {machine}; "
            "judge the code tasks on such a machine"
        )
    column, architecture = _ARCHITECTURES[machine]
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _KILL),
        (_EQUAL, 0, 1, _CLONE3[column]),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
    ]
    for numbers in _REFUSED.values():
        steps += [(_EQUAL, 0, 1, numbers[column]), (_RETURN, 0, 0, _ERROR | errno.EPERM)]
    steps += [
        (_EQUAL, 0, 3, _SOCKET[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        (_EQUAL, 1, 0, socket.AF_UNIX),
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
