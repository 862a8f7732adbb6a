"""The inside of the sandbox: gives up what it can, then runs the program from stdin.

Started by `sandbox.run_program` as a script; imports nothing of ours.
Arguments: seconds, bytes of memory, number of processes.
"""

import ctypes
import os
import resource
import signal
import sys

_NEW_USER, _NEW_PID, _NEW_NET = 0x10000000, 0x20000000, 0x40000000
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def main() -> None:
    """See the module."""
    seconds, memory, processes = (int(value) for value in sys.argv[1:4])
    word, _, program = sys.stdin.buffer.read().decode("utf-8").partition("\n")
    answers = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    if _alone():
        # The first process of a PID namespace is deaf to signals from inside: a second one
        # runs the program, and all are gone once the first one ends.
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
                os.write(answers, b" time")
            os._exit(0)
    for limit, value in (
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, processes),
    ):
        resource.setrlimit(limit, (value, value))
    try:
        exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
    except MemoryError:
        os.write(answers, b" memory")
    except BaseException:
        pass
    else:
        os.write(answers, word.encode())
    os._exit(0)  # no destructor, thread or exit handler of the program's comes after


def _alone() -> bool:
    """Go on in namespaces of its own, as their first process, if Linux allows it."""
    library = ctypes.CDLL(None, use_errno=True)
    unshare = getattr(library, "unshare", None)
    if unshare is None or unshare(_NEW_USER | _NEW_PID | _NEW_NET) != 0:
        return False
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os._exit(0)
    library.prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    return True


main()
