"""Children that begin where PyTorch has been imported and CUDA not yet used: to Spillway each is a new process.

The child runs a function, sends what it returned, and then ends as every Python program does, by the end of its main
module: whoever calls fork() must return to there.
"""

import json
import os
import select
import signal
import time


class Child:
    """What is known of a child that has ended."""

    def __init__(self, result, status, ending_seconds):
        self.result = result  # None: it sent nothing
        self.status = status  # exit status; negative: the signal
        self.ending_seconds = ending_seconds  # from what it sent to its end


def finish(pid, limit):
    """Waits for the end; a child that does not end within `limit` seconds is killed."""
    with open(os.pidfd_open(pid), "rb", buffering=0) as end:
        if not select.select([end], [], [], limit)[0]:
            os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def read_line(reader, limit):
    """The one line that the child sends; empty when none came in time."""
    text, deadline = b"", time.monotonic() + limit
    while not text.endswith(b"\n") and select.select([reader], [], [], max(0, deadline - time.monotonic()))[0]:
        piece = os.read(reader, 1 << 16)
        if not piece:
            break
        text += piece
    return text


def fork(function, *arguments, limit=60):
    """In the parent: the Child. In the child: None, once function has returned; it must go straight to its end."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        os.write(writer, json.dumps(function(*arguments)).encode() + b"\n")
        os.close(writer)
        return None
    os.close(writer)
    text = read_line(reader, limit)
    sent = time.monotonic()
    status = finish(pid, 30 if text else 0)
    os.close(reader)
    return Child(json.loads(text) if text else None, status, time.monotonic() - sent)
