#!/usr/bin/env python3
"""Makes names.json: the values of transformers' OptimizerNames, read from the package's source.

    make_names.py FOLDER/transformers"""
import ast
import json
import os
import sys


def main():
    folder = sys.argv[1]
    with open(os.path.join(folder, "training_args.py"), encoding="utf-8") as file:
        tree = ast.parse(file.read())
    with open(os.path.join(folder, "__init__.py"), encoding="utf-8") as file:
        version = next(line.split('"')[1] for line in file if line.startswith("__version__"))
    names = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "OptimizerNames")
    values = [node.value.value for node in names.body if isinstance(node, ast.Assign)]
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "names.json"), "w", encoding="utf-8") as file:
        json.dump({"transformers": version, "names": values}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
