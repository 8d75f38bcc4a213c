#!/usr/bin/env python3
"""Makes names.json: the values of transformers' OptimizerNames and SchedulerType, read from the package's source.

    make_names.py FOLDER/transformers"""
import ast
import json
import os
import sys


def values_of(path, name):
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    names = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    return [node.value.value for node in names.body if isinstance(node, ast.Assign)]


def main():
    folder = sys.argv[1]
    with open(os.path.join(folder, "__init__.py"), encoding="utf-8") as file:
        version = next(line.split('"')[1] for line in file if line.startswith("__version__"))
    values = values_of(os.path.join(folder, "training_args.py"), "OptimizerNames")
    schedules = values_of(os.path.join(folder, "trainer_utils.py"), "SchedulerType")
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "names.json"), "w", encoding="utf-8") as file:
        json.dump({"transformers": version, "names": values, "schedules": schedules}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
