"""Feeds a tracker from the files of a training.

    python3 -I tracker.py TRACKER FOLDER SECONDS SHOWN [OUTPUT_DIR]

The training starts one such process for each tracker of report_to. It reads run.json, trackers/config.json,
metrics.jsonl and generations.jsonl of FOLDER and calls the library as the callback of transformers 5.24 does
(integrations/integration_utils.py). The end of standard input is the end of the training: from then on SECONDS are
left. FOLDER is the output_dir of the training; with OUTPUT_DIR, which is in an object store then, a copy of these files on
this machine, which the last of the followers removes where the training died. SHOWN: bytes of generations.jsonl that an earlier part of the run has written. Lines for people go to standard
output, each after 'I' (information) or 'W' (warning); all that the library prints is dropped. trackers/TRACKER.json
keeps the identity of the run there, so that a resumed run goes on in it.

Python 3.8 and later, standard library.
"""

import fcntl
import importlib
import json
import os
import re
import shutil
import signal
import sys
import threading

INTERVAL = 0.5  # seconds between two looks at the files
GRACE = 5  # seconds after those of the training, which ends this process itself unless it died
LINES_MAX = 40  # for people
TRUE_WORDS = {"1", "ON", "YES", "TRUE"}  # of transformers' environment variables
# Figures of a whole training, which are not points of a curve.
SINGLE = ("train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss", "total_flos")
COLUMNS = ["step", "prompt", "completion", "reference"]  # TRL's LogCompletionsCallback, and the reference


def prefixed(row):
    """eval_loss -> eval/loss, all others -> train/..., as transformers' rewrite_logs."""
    return {"eval/" + key[5:] if key.startswith("eval_") else "train/" + key: value for key, value in row.items()}


def split(row):
    """Without and with the figures of the whole training."""
    return ({key: value for key, value in row.items() if key not in SINGLE},
            {key: value for key, value in row.items() if key in SINGLE})


def is_true(variable):
    return os.environ.get(variable, "").upper() in TRUE_WORDS


def flatten(tree, prefix=""):
    flat = {}
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            flat.update(flatten(value, prefix + str(key) + "."))
        else:
            flat[prefix + str(key)] = value
    return flat


class Run:
    """What the files of a run say besides its rows."""

    def __init__(self, folder, is_copy):
        self.folder = folder
        self.is_copy = is_copy  # weights and checkpoints lie elsewhere
        record = self.record()
        with open(os.path.join(folder, "trackers", "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        self.name = record.get("name")
        self.is_restarted = record.get("restarts", 0) > 0
        self.first = record.get("steps", {}).get("first", 0)
        self.parameters = record.get("parameters", {}).get("all")
        self.trainable = record.get("parameters", {}).get("trainable")
        self.args = config.get("args", {})
        self.model = config.get("model_config", {})
        self.adapter = config.get("peft_config")
        self.unsent = None  # a variable that asks for files that are not here
        self.earlier = None  # the identity that an earlier part of the run had

    def record(self):
        with open(os.path.join(self.folder, "run.json"), encoding="utf-8") as file:
            return json.load(file)

    def state(self):
        """ended, stopped, failed; running: it died."""
        return self.record().get("state")

    def config(self):
        """The settings over the model's configuration, and that of the adapter."""
        adapter = {"peft_config": {"default": self.adapter}} if self.adapter else {}
        return {**adapter, **self.model, **self.args}

    def files_wanted(self, variable, wanted, none):
        """What the variable asks for; `none` where the files are in an object store, which a warning says."""
        if not self.is_copy or wanted == none:
            return wanted
        self.unsent = variable
        return none

    def result_files(self):
        names = sorted(os.listdir(self.folder))
        keep = (".safetensors", ".json", ".jinja", ".model", ".txt", ".bin")
        return [os.path.join(self.folder, name) for name in names
                if name.endswith(keep) and os.path.isfile(os.path.join(self.folder, name))]


class Tracker:
    """One library. `begin` makes the run, or goes on with run.earlier, and returns its identity."""

    def __init__(self, run, library):
        self.run = run
        self.library = library

    def begin(self):
        raise NotImplementedError

    def row(self, step, row):
        raise NotImplementedError

    def texts(self, step, table, new):
        """Completions of an evaluation: all so far, and those of this step; rows of COLUMNS."""

    def saved(self, step, folder):
        """A checkpoint is complete."""

    def end(self, state):
        raise NotImplementedError

    def url(self):
        return None


class Wandb(Tracker):
    def begin(self):
        wandb, run = self.library, self.run
        words = {"project": os.environ.get("WANDB_PROJECT", "huggingface")}
        if run.name is not None:
            words["name"] = run.name
        if run.earlier and "WANDB_RUN_ID" not in os.environ:
            words.update(id=run.earlier, resume="allow")
        self.board = wandb.init(**words)
        wandb.config.update(run.config(), allow_val_change=True)
        wandb.define_metric("train/global_step")
        wandb.define_metric("*", step_metric="train/global_step", step_sync=True)
        if run.parameters is not None:
            wandb.config.update({"model/num_parameters": run.parameters}, allow_val_change=True)
        self.uploads = run.files_wanted("WANDB_LOG_MODEL", os.environ.get("WANDB_LOG_MODEL", "false").lower(), "false")
        return self.board.id

    def row(self, step, row):
        points, totals = split(row)
        for key, value in totals.items():
            self.board.summary[key] = value
        self.library.log({**prefixed(points), "train/global_step": step})

    def texts(self, step, table, new):
        board = self.library.Table(columns=COLUMNS, data=[list(row) for row in table])
        self.library.log({"completions": board, "train/global_step": step})

    def artifact(self):
        run = self.run
        named = run.name is not None and run.name != run.args.get("output_dir")
        return self.library.Artifact(name="model-%s" % (self.board.name if named else self.board.id), type="model")

    def saved(self, step, folder):
        if self.uploads != "checkpoint":
            return
        artifact = self.artifact()
        artifact.add_dir(folder)
        self.library.log_artifact(artifact, aliases=["checkpoint_global_step_%d" % step])

    def end(self, state):
        if self.uploads in ("checkpoint", "end") and state == "ended":
            artifact = self.artifact()
            for path in self.run.result_files():
                artifact.add_file(path)
            self.library.log_artifact(artifact, aliases=["final_model"])
        self.library.finish(exit_code=0 if state == "ended" else 1)

    def url(self):
        return getattr(self.board, "url", None)


class MLflow(Tracker):
    def begin(self):
        mlflow, run = self.library, self.run
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        if uri and not mlflow.is_tracking_uri_set():
            mlflow.set_tracking_uri(uri)
        if os.environ.get("MLFLOW_EXPERIMENT_NAME"):
            mlflow.set_experiment(os.environ["MLFLOW_EXPERIMENT_NAME"])
        words = {"run_name": run.name, "nested": is_true("MLFLOW_NESTED_RUN")}
        if run.earlier and "MLFLOW_RUN_ID" not in os.environ:
            words["run_id"] = run.earlier
        active = mlflow.start_run(**words)
        self.parameters(set(active.data.params))
        tags = os.environ.get("MLFLOW_TAGS")
        if tags:
            mlflow.set_tags(json.loads(tags))
        self.uploads = run.files_wanted("HF_MLFLOW_LOG_ARTIFACTS", is_true("HF_MLFLOW_LOG_ARTIFACTS"), False)
        return active.info.run_id

    def parameters(self, known):
        """Those of a run that goes on stay what they were: MLflow refuses other values."""
        limits = importlib.import_module("mlflow.utils.validation")
        config = {**self.run.model, **self.run.args}
        config = flatten(config) if is_true("MLFLOW_FLATTEN_PARAMS") else config
        items = [(key, value) for key, value in config.items()
                 if len(str(value)) <= limits.MAX_PARAM_VAL_LENGTH and key not in known]
        most = os.environ.get("MLFLOW_MAX_LOG_PARAMS", "")
        items = items[:int(most)] if most.isdigit() else items
        for at in range(0, len(items), limits.MAX_PARAMS_TAGS_PER_BATCH):
            self.library.log_params(dict(items[at:at + limits.MAX_PARAMS_TAGS_PER_BATCH]))

    def row(self, step, row):
        named = {re.sub(r"[^0-9A-Za-z_\-\.\ :/]", "_", key): value for key, value in row.items()}
        self.library.log_metrics(named, step=step)

    def texts(self, step, table, new):
        self.library.log_dict({"columns": COLUMNS, "data": [list(row) for row in table]}, "completions.json")

    def saved(self, step, folder):
        if self.uploads:
            pyfunc = importlib.import_module("mlflow.pyfunc")
            pyfunc.log_model("checkpoint-%d" % step, artifacts={"model_path": folder}, python_model=pyfunc.PythonModel())

    def end(self, state):
        self.library.end_run(status={"ended": "FINISHED", "stopped": "KILLED"}.get(state, "FAILED"))


class Trackio(Tracker):
    def begin(self):
        trackio, run = self.library, self.run
        words = {"project": run.args.get("project") or os.environ.get("TRACKIO_PROJECT") or "huggingface",
                 "name": run.earlier or run.name, "space_id": run.args.get("trackio_space_id"), "resume": "allow"}
        if run.args.get("trackio_bucket_id"):
            words["bucket_id"] = run.args["trackio_bucket_id"]
        self.board = trackio.init(**words)
        config = run.config()
        if run.parameters is not None:
            config["model/num_parameters"] = run.parameters
        trackio.config.update(config, allow_val_change=True)
        return self.board.name

    def row(self, step, row):
        points, _ = split(row)
        self.library.log({**prefixed(points), "train/global_step": step})

    def texts(self, step, table, new):
        pandas = importlib.import_module("pandas")
        board = self.library.Table(dataframe=pandas.DataFrame(columns=COLUMNS, data=[list(row) for row in table]))
        self.library.log({"completions": board, "train/global_step": step})

    def end(self, state):
        self.library.finish()


class Comet(Tracker):
    def begin(self):
        comet, run = self.library, self.run
        mode = os.environ.get("COMET_MODE", "").lower() or None
        if mode not in (None, "get", "get_or_create", "create"):
            raise ValueError("COMET_MODE is not get, get_or_create or create")
        words = {"mode": mode, "experiment_config": comet.ExperimentConfig(name=run.name)}
        if run.earlier and "COMET_EXPERIMENT_KEY" not in os.environ:
            words["experiment_key"] = run.earlier
        self.board = comet.start(**words)
        parameters = {"args": run.args, "config": run.model}
        if run.adapter:
            parameters["peft_config"] = {"default": run.adapter}
        self.board.log_parameters(flatten(parameters))
        self.uploads = run.files_wanted("COMET_LOG_ASSETS", is_true("COMET_LOG_ASSETS"), False)
        return self.board.get_key()

    def row(self, step, row):
        self.board.log_metrics(prefixed(row), step=step, epoch=row.get("epoch"))

    def texts(self, step, table, new):
        self.board.log_table("completions.csv", tabular_data=[list(row) for row in table], headers=COLUMNS)

    def end(self, state):
        if self.uploads:
            self.board.log_asset_folder(self.run.folder, recursive=True, log_file_name=True)
        self.board.end()

    def url(self):
        return getattr(self.board, "url", None)


class SwanLab(Tracker):
    def begin(self):
        swanlab, run = self.library, self.run
        words = {"project": os.environ.get("SWANLAB_PROJECT")}
        if run.name is not None:
            words["experiment_name"] = run.name
        identity = os.environ.get("SWANLAB_RUN_ID") or run.earlier
        if identity:
            words.update(id=identity, resume=os.environ.get("SWANLAB_RESUME", "allow"))
        self.board = swanlab.init(**words)
        swanlab.config.update(run.config())
        if run.parameters is not None:
            swanlab.config.update({"model_num_parameters": run.parameters})
        if run.adapter:
            swanlab.config.update({"peft_model_trainable_params": run.trainable,
                                   "peft_model_all_param": run.parameters})
        return identity or getattr(self.board, "id", None)

    def row(self, step, row):
        points, totals = split(row)
        for key, value in totals.items():
            self.library.log({"single_value/" + key: value}, step=step)
        self.library.log({**prefixed(points), "train/global_step": step}, step=step)

    def texts(self, step, table, new):
        shown = [self.library.Text("%s\n\n%s" % (prompt, completion), caption=reference)
                 for _, prompt, completion, reference in new]
        self.library.log({"completions": shown}, step=step)

    def end(self, state):
        if state == "ended":
            self.library.finish()
        else:
            self.library.finish(state="crashed", error=state)


TRACKERS = {
    "wandb": Wandb,
    "mlflow": MLflow,
    "trackio": Trackio,
    "comet_ml": Comet,
    "swanlab": SwanLab,
}


class Lines:
    """New whole lines of a file of JSON objects that grows."""

    def __init__(self, path, at=0):
        self.path = path
        self.at = at

    def read(self):
        try:
            with open(self.path, "rb") as file:
                file.seek(self.at)
                data = file.read()
        except FileNotFoundError:
            return
        data = data[:data.rfind(b"\n") + 1]
        self.at += len(data)
        for line in data.splitlines():
            try:
                row = json.loads(line.decode("utf-8"))
            except ValueError:
                continue
            if isinstance(row, dict):
                yield row


class Speaker:
    """Lines for people, without secrets: values of variables whose names say so, and passwords in addresses."""

    def __init__(self, descriptor):
        self.descriptor = descriptor
        self.lines = 0
        kinds = re.compile("KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH", re.IGNORECASE)
        values = {value for name, value in os.environ.items() if kinds.search(name)}
        self.secrets = sorted((value for value in values if len(value) > 5), key=len, reverse=True)

    def hide(self, text):
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return re.sub(r"://[^/\s@]+@", "://***@", text)

    def say(self, kind, text):
        self.lines += 1
        if self.lines > LINES_MAX:
            return
        line = kind + self.hide(" ".join(text.split()))[:600] + "\n"
        try:
            os.write(self.descriptor, line.encode("utf-8", "replace"))
        except OSError:
            pass

    def describe(self, error):
        """The kind of an error and what it says; words as long as a key are left out, whoever made them."""
        text = self.hide("%s: %s" % (type(error).__name__, error))
        return re.sub(r"[0-9A-Za-z_\-]{32,}", "***", text)[:400]


class Follower:
    def __init__(self, name, folder, seconds, shown, speaker, is_copy):
        self.name, self.folder, self.seconds, self.shown, self.speaker = name, folder, seconds, shown, speaker
        self.is_copy = is_copy
        self.ended = threading.Event()
        self.lost = 0
        self.table = []

    def watch(self):
        """Waits for the end of the training; a library that hangs after it ends this process."""
        while os.read(0, 1024):
            pass
        signal.alarm(self.seconds + GRACE)
        self.ended.set()

    def identity_path(self):
        return os.path.join(self.folder, "trackers", self.name + ".json")

    def earlier(self):
        try:
            with open(self.identity_path(), encoding="utf-8") as file:
                return json.load(file).get("id")
        except (OSError, ValueError, AttributeError):
            return None

    def remember(self, identity, url):
        path = self.identity_path()
        keep = {"id": identity} if url is None else {"id": identity, "url": self.speaker.hide(url)}
        with open(path + ".tmp", "w", encoding="utf-8") as file:
            json.dump(keep, file)
        os.replace(path + ".tmp", path)

    def call(self, function, *words):
        """A row that the library refuses is lost there, the next may not be."""
        try:
            function(*words)
        except Exception as error:  # of a library: it may be anything
            self.lost += 1
            if self.lost == 1:
                self.speaker.say("W", "a call failed: %s; metrics.jsonl has all rows" % self.speaker.describe(error))

    def send_rows(self, tracker, rows):
        for row in rows.read():
            step = row.pop("step", 0)
            event = row.pop("event", None)
            if event == "resume":
                self.skips = False
            elif event == "save" and not self.skips:
                self.call(tracker.saved, step, row.get("folder", ""))
            elif event is None and not self.skips:
                # null is a number that is none
                values = {key: float("nan") if value is None else value for key, value in row.items()
                          if value is None or isinstance(value, (int, float))}
                self.call(tracker.row, step, values)

    def send_texts(self, tracker, texts):
        steps = {}
        for text in texts.read():
            row = tuple(text.get(key, "") for key in COLUMNS)
            steps.setdefault(row[0], []).append(row)
        for step, new in steps.items():
            self.table.extend(new)
            self.call(tracker.texts, step, self.table, new)

    def follow(self, library):
        run = Run(self.folder, self.is_copy)
        run.earlier = self.earlier() if run.is_restarted else None
        # What an earlier part of the run has sent stands in the files again.
        self.skips = run.earlier is not None and run.first > 0
        tracker = TRACKERS[self.name](run, library)
        identity = tracker.begin()
        url = tracker.url()
        self.remember(identity, url)
        self.speaker.say("I", "%s run %s%s" % ("goes on with" if run.earlier else "began", identity,
                                             ", " + url if url else ""))
        if run.unsent:
            self.speaker.say("W", "%s has no effect: the files of this run are in an object store" % run.unsent)
        rows = Lines(os.path.join(self.folder, "metrics.jsonl"))
        texts = Lines(os.path.join(self.folder, "generations.jsonl"), self.shown if self.skips else 0)
        ended = False
        while not ended:
            ended = self.ended.wait(INTERVAL)
            self.send_rows(tracker, rows)
            self.send_texts(tracker, texts)
        self.call(tracker.end, run.state())
        if self.lost > 1:
            self.speaker.say("W", "%d calls failed" % self.lost)


class Copy:
    """The folder of a run that is not on a disk. Its followers hold it; the training removes it, or the last of them."""

    def __init__(self, folder):
        self.folder, self.parent = folder, os.getppid()
        self.held = open(os.path.join(folder, "trackers", "config.json"), "rb")
        fcntl.flock(self.held, fcntl.LOCK_SH)

    def leave(self):
        if os.getppid() == self.parent:
            return
        try:
            fcntl.flock(self.held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        shutil.rmtree(self.folder, ignore_errors=True)


def main():
    name, folder, seconds, shown = sys.argv[1], os.path.abspath(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    speaker = Speaker(os.dup(1))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.environ.pop("TRIMTAB_JOB_SECRET", None)  # of the ranks alone
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    copy = Copy(folder) if len(sys.argv) > 5 else None
    follower = Follower(name, folder, seconds, shown, speaker, copy is not None)
    threading.Thread(target=follower.watch, daemon=True).start()
    try:
        library = importlib.import_module(name)
        follower.follow(library)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        speaker.say("W", "Python's package %s is not installed for %s: training continues without it" %
                    (name, sys.executable))
    finally:
        if copy is not None:
            copy.leave()


def guarded():
    try:
        main()
    except BaseException as error:  # a library may also raise SystemExit
        try:
            Speaker(REPORT).say("W", Speaker(REPORT).describe(error) + "; training continues without it")
        finally:
            os._exit(0)


REPORT = os.dup(1)
guarded()
