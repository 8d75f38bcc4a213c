"""A server of a test ends with the test: end_with_parent asks Linux for SIGKILL when the process that started this one has
ended, however it ended (prctl(2), PR_SET_PDEATHSIG)."""
import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1


def end_with_parent():
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:  # it ended before the request
        os._exit(1)
