"""A library of a tracker that only records: installed under its names, it appends each call to $RECORD/NAME.jsonl.

$FAKE_TRACKER: what `log` and its kin do besides: hang, raise, die, fill (write until the disk is full, then raise).
"""

import json
import os
import signal
import sys
import time

count = 0


def record(name, path, words, named):
    line = json.dumps({"call": path, "words": words, "named": named}, default=str)
    with open(os.path.join(os.environ["RECORD"], name + ".jsonl"), "a") as file:
        file.write(line + "\n")
    if path in ("log", "log_metrics", "start().log_metrics"):
        misbehave(os.environ.get("FAKE_TRACKER"))


def misbehave(how):
    if how == "hang":
        time.sleep(1000)
    if how == "raise":
        raise RuntimeError("no entry for key " + os.environ["WANDB_API_KEY"] + " at https://me:hunter2@host/x")
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "fill":
        with open("/dev/full", "w") as file:
            file.write("x" * 100000)


class Call:
    """An attribute of the library, and the result of a call: its attributes and calls are recorded too."""

    def __init__(self, name, path, identity=None):
        self.__dict__.update(_name=name, _path=path, id=identity, name=identity, run_id=identity, params={})

    def __getattr__(self, key):
        if key == "url":
            return "https://me:hunter2@host/" + str(self.id)
        return Call(self._name, (self._path + "." if self._path else "") + key, self.id)

    def __call__(self, *words, **named):
        global count
        record(self._name, self._path, words, named)
        count += 1
        keys = ["name"] if self._name == "trackio" else ["id", "run_id", "experiment_key"]
        given = [named[key] for key in keys if named.get(key)]
        if self._path.endswith("get_key"):
            return self.id
        return Call(self._name, self._path + "()", str(given[0] if given else "made-%d-%d" % (os.getpid(), count)))

    def __setitem__(self, key, value):
        record(self._name, self._path + "[]", [key, value], {})

    def __str__(self):
        return self._path


def install(name):
    module = sys.modules[name]
    module.__getattr__ = lambda key: getattr(Call(name, ""), key)
