"""Renders every chat template found in wheels or folders with Jinja2 in transformers' environment and with ours, and
compares: the same bytes, or both refuse.

    python tests/golden/jinja/compare_templates.py --program build/tests/render_jinja FOLDER...

A folder holds *.whl files, or files of templates (*.jinja, *.jinja2), or JSON with members "chat_template", or Python
sources and JSON whose texts look like templates. Equal texts count once. Prints a line for each template that differs,
and the sums; exit code 1 where one differs.
"""
import argparse
import ast
import io
import json
import pathlib
import subprocess
import sys
import zipfile

from conversations import conversations
from reference import render


def looks_like_template(text):
    return "message" in text and ("{%" in text) and ("{{" in text) and len(text) < 1 << 20


def texts_of_json(value):
    if isinstance(value, str):
        if looks_like_template(value):
            yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from texts_of_json(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts_of_json(each)


def texts_of_python(source):
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and looks_like_template(node.value):
            yield node.value


def texts_of_file(name, data):
    suffix = pathlib.PurePath(name).suffix
    try:
        text = data.decode()
        if suffix in (".jinja", ".jinja2", ".j2"):
            yield text
        elif suffix == ".json":
            yield from texts_of_json(json.loads(text))
        elif suffix == ".py":
            yield from texts_of_python(text)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        return


def files_of(path):
    for each in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if each.suffix == ".whl":
            with zipfile.ZipFile(io.BytesIO(each.read_bytes())) as wheel:
                for name in sorted(wheel.namelist()):
                    if name.endswith((".jinja", ".jinja2", ".j2", ".json", ".py")):
                        yield f"{each.name}:{name}", wheel.read(name)
        elif each.is_file() and each.suffix in (".jinja", ".jinja2", ".j2", ".json", ".py"):
            yield str(each.relative_to(path)) if path.is_dir() else each.name, each.read_bytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    templates = {}
    for folder in arguments.folders:
        for name, data in files_of(folder):
            for text in texts_of_file(name, data):
                templates.setdefault(" ".join(text.split()), (name, text))
    sets = conversations()
    lines, wanted = [], []
    for name, template in templates.values():
        for index, (label, values) in enumerate(sets.items()):
            lines.append(json.dumps({"variables": values, **({"template": template} if index == 0 else {})}))
            wanted.append((name, label, render(template, values)))
    done = subprocess.run([arguments.program], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(wanted)
    counts = {"equal": 0, "both refuse": 0, "only ours refuses": 0, "only the reference refuses": 0, "differ": 0}
    bad, rendered = {}, set()
    for (name, label, reference), ours in zip(wanted, results):
        if "error" in reference:
            kind = "both refuse" if "error" in ours else "only the reference refuses"
        elif "error" in ours:
            kind = "only ours refuses"
        else:
            kind = "equal" if (ours["output"], ours["generation"]) == (reference["output"], reference["generation"]) else "differ"
        counts[kind] += 1
        if kind == "equal":
            rendered.add(name)
        if kind in ("only ours refuses", "only the reference refuses", "differ"):
            bad.setdefault(name, (kind, label, ours.get("error", ours.get("output", ""))[:300], reference.get("error", reference.get("output", ""))[:300]))
    for name, (kind, label, ours, reference) in sorted(bad.items()):
        print(f"{name}, {label}: {kind}\n  ours:      {ours!r}\n  reference: {reference!r}")
    print(f"{len(templates)} distinct templates, {len(sets)} conversations, {len(wanted)} renderings")
    print(", ".join(f"{kind} {count}" for kind, count in counts.items()))
    print(f"{len(templates) - len(bad)} templates with every rendering equal or refused by both")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
