"""Accepted and refused input: rows.jsonl has, per row, the input, what Trimtab does and what the reference library does.

Readers: json (Python's json module), yaml (PyYAML's safe_load), safetensors (header of a file with 4 bytes of data).
`ours` is written here by hand; `reference` and the value are what the library did. For YAML `value` is repr() of what a key
`a` got: Trimtab keeps the text, which `ours_text` gives."""
import json
import os
import struct
import tempfile

import safetensors
import yaml

A, R = "accept", "refuse"
JSON = [
    # (class, input, ours)
    ("y structure", b"{}", A), ("y structure", b"[]", A), ("y structure", b' [1 , {"a" : null}]\r\n\t', A),
    ("y scalar at the top", b"true", A), ("y scalar at the top", b'"x"', A), ("y scalar at the top", b"-0", A),
    ("y number", b"[0, -1, 1.5, 1e5, 1E+5, 1e-5, -0.0, 123456789012345]", A),
    ("y string", rb'["\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"]', A), ("y string", '["é漢😀\u2028"]'.encode(), A),
    ("y string", b'["\x7f"]', A), ("y empty key", b'{"": 0}', A),
    ("n empty", b"", R), ("n empty", b"  ", R), ("n trailing comma", b"[1,]", R), ("n trailing comma", b'{"a":1,}', R),
    ("n missing comma", b"[1 2]", R), ("n missing colon", b'{"a" 1}', R), ("n double colon", b'{"a"::1}', R),
    ("n key without quotes", b"{a: 1}", R), ("n key that is a number", b"{1: 1}", R), ("n single quotes", b"['a']", R),
    ("n unclosed", b"[1", R), ("n unclosed", b'{"a":', R), ("n unclosed", b'["a', R), ("n closed twice", b"[1]]", R),
    ("n closed by the other", b"[1}", R), ("n text behind", b"{} x", R), ("n two values", b"1 2", R),
    ("n comment", b"[1] // no", R), ("n comment", b"/* no */ 1", R), ("n leading zero", b"[01]", R),
    ("n leading zero", b"[-01]", R), ("n plus", b"[+1]", R), ("n point", b"[.5]", R), ("n point", b"[1.]", R),
    ("n exponent", b"[1e]", R), ("n exponent", b"[1e+]", R), ("n minus", b"[-]", R), ("n hexadecimal", b"[0x10]", R),
    ("n word", b"[nul]", R), ("n word", b"[True]", R), ("n word", b"[nan]", R), ("n word", b"[inf]", R),
    ("n control character", b'["a\nb"]', R), ("n control character", b'["\x00"]', R), ("n control character", b'["\x1f"]', R),
    ("n zero byte between tokens", b"[1,\x002]", R), ("n zero byte behind", b"{}\x00", R), ("n form feed", b"[\x0c]", R),
    ("n escape", rb'["\x41"]', R), ("n escape", rb'["\u12"]', R), ("n escape", rb'["\u12G4"]', R), ("n escape", b'["\\', R),
    ("i NaN", b"[NaN]", A), ("i infinity", b"[Infinity, -Infinity]", A), ("n infinity", b"[-Infinit]", R),
    ("i integer beyond 64 bits", b"[1000000000000000019884624838656]", A), ("i large exponent", b"[1e999, -1e999]", A),
    ("i small exponent", b"[1e-999]", A), ("i many digits", b"[0." + b"1" * 400 + b"]", A),
    ("i duplicate keys", b'{"a": 1, "a": 2}', R), ("i lone surrogate", rb'["\ud800"]', R), ("i lone surrogate", rb'["\udc00"]', R),
    ("i lone surrogate", rb'["\ud800\u0041"]', R), ("i invalid UTF-8", b'["\xff"]', R), ("i overlong UTF-8", b'["\xc0\xaf"]', R),
    ("i surrogate as UTF-8", b'["\xed\xa0\x80"]', R), ("i byte order mark", b"\xef\xbb\xbf{}", R),
    ("i U+0000 in a key of a vocabulary", rb'{"\u0000": 5}', A), ("i U+0000 in a string of a row", rb'["a\u0000b"]', A),
    ("i depth 512", b"[" * 512 + b"]" * 512, A), ("i depth 513", b"[" * 513 + b"]" * 513, R),
    ("i depth 100000", b"[" * 100000, R),
]
YAML = [
    # (class, input, ours, the text that our tree has for the key a)
    ("plain", "a: word", A, "word"), ("single quotes", "a: 'it''s'", A, "it's"), ("double quotes", 'a: "t\\tx"', A, "t\tx"),
    ("literal", "a: |\n  x\n  y\n", A, "x\ny\n"), ("folded", "a: >\n  x\n  y\n", A, "x y\n"), ("comment", "a: 1 # one", A, "1"),
    ("flow", "{a: 1, b: [x, y]}", A, "1"), ("exponent without a point", "a: 1e-4", A, "1e-4"),
    ("exponent with a point", "a: 1.0e-04", A, "1.0e-04"), ("underscore", "a: 1_000", A, "1_000"),
    ("sexagesimal", "a: 12:30:45", A, "12:30:45"), ("yes", "a: yes", A, "yes"), ("off", "a: off", A, "off"),
    ("hexadecimal", "a: 0x10", A, "0x10"), ("date", "a: 2026-11-22", A, "2026-11-22"), ("null", "a: ~", A, "~"),
    ("empty", "a:", A, ""), ("octal", "a: 010", R, None), ("octal", "a: -017", R, None), ("leading zero, not octal", "a: 089", R, None),
    ("octal in quotes", "a: '010'", A, "010"), ("zero", "a: 0", A, "0"), ("zero and a point", "a: 0.5", A, "0.5"),
    ("alias", "b: &x word\na: *x", A, "word"), ("alias of a list", "b: &x [1, 2]\nc: *x\na: 3", A, "3"),
    ("anchor given anew", "b: &x 1\nc: &x 2\na: *x", A, "2"), ("merge key", "b: &x {a: 5}\n<<: *x", A, "5"),
    ("merge key and own value", "b: &x {a: 5}\n<<: *x\na: 6", A, "6"), ("own value before the merge key", "b: &x {a: 5}\na: 6\n<<: *x", A, "6"),
    ("merge of a list", "b: &x {a: 5}\nc: &y {a: 7}\n<<: [*x, *y]", A, "5"), ("merge of a mapping", "<<: {a: 8}", A, "8"),
    ("merge of a merge", "b: &x {a: 5}\nc: &y {<<: *x, d: 1}\n<<: *y", A, "5"), ("quoted <<", "'<<': 1\na: 2", A, "2"),
    ("merge of a scalar", "<<: 5\na: 1", R, None), ("merge of a list of scalars", "<<: [1]\na: 1", R, None),
    ("second merge key", "b: &x {a: 5}\nc: &y {a: 7}\n<<: *x\n<<: *y", R, None), ("alias without anchor", "a: *x", R, None),
    ("alias before its anchor", "a: *x\nb: &x 1", R, None), ("alias inside its anchor", "a: &x [*x]", R, None),
    ("alias as a key", "b: &x k\n*x : 1\na: 2", R, None), ("duplicate key", "a: 1\na: 2", R, None), ("tag !!str", "a: !!str 5", A, "5"),
    ("tag !!int", "a: !!int 5", R, None), ("tag of Python", "a: !!python/name:os.system", R, None), ("list as a key", "[1]: 2\na: 3", R, None),
    ("two documents", "a: 1\n---\na: 2", R, None), ("tab as indentation", "b:\n\tc: 1\na: 1", R, None), ("unclosed", "a: [1", R, None),
    ("billion laughs", "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"a{i}: &a{i} [{','.join([f'*a{i-1}'] * 9)}]\n" for i in range(1, 9)) + "a: 1", R, None),
    ("depth 33", "a: " + "[" * 33 + "]" * 33, R, None), ("document start", "---\na: 1\n...\n", A, "1"),
    ("version", "%YAML 1.1\n---\na: 1", A, "1"), ("other version", "%YAML 9.9\n---\na: 1", R, None), ("block list", "b:\n- 1\n- 2\na: x", A, "x"),
    ("text over lines", "a: one\n  two\n", A, "one two"), ("literal, stripped", "a: |-\n  x\n", A, "x"),
    ("literal, kept", "a: |+\n  x\n\n", A, "x\n\n"), ("folded, stripped", "a: >-\n  x\n  y\n", A, "x y"),
    ("line ends of Windows", "b: 1\r\na: 2\r\n", A, "2"), ("byte order mark", "\ufeffa: 1", A, "1"), ("letters beyond ASCII", "a: é漢😀", A, "é漢😀"),
    ("escape", 'a: "\\u00e9\\x41\\n"', A, "éA\n"), ("unknown escape", 'a: "\\q"', R, None), ("control character", "a: x\x01y", R, None),
    ("zero byte", "a: 1\0", R, None), ("explicit key", "? a\n: 1", A, "1"), ("null as a key", "~: 1\na: 2", A, "2"),
    ("scalar at the top, which settings refuse", "word", A, None), ("list at the top, which settings refuse", "- a\n- b", A, None), ("only a comment", "# nothing", A, None),
    ("no space behind the colon, which is text", "a:1", A, None), ("colon in the text", "a: b:c", A, "b:c"), ("hash in the text", "a: b#c", A, "b#c"),
    ("comma in flow", "{a: 1, }", A, "1"), ("percent", "a: 50%", A, "50%"), ("at sign", "a: @x", R, None), ("tab behind the colon", "a:\t1", A, "1"),
]
HEADER = b'{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}'


def two(first, second, a, b):
    return b'{"a":{"dtype":"U8","shape":[%d],"data_offsets":%s},"b":{"dtype":"U8","shape":[%d],"data_offsets":%s}}' % (a, first, b, second)


SAFETENSORS = [
    ("plain", HEADER, A), ("trailing spaces", HEADER + b"   ", A), ("trailing line end", HEADER + b"\n", A),
    ("leading spaces", b"   " + HEADER, A), ("leading white space", b"\n\r\t " + HEADER, A), ("trailing zero byte", HEADER + b"\0", R),
    ("byte order mark", b"\xef\xbb\xbf" + HEADER, R), ("list", b"[]", R), ("empty", b"", R), ("only spaces", b"    ", R),
    ("text behind", HEADER + b" x", R), ("metadata", b'{"__metadata__":{"k":"v"},' + HEADER[1:], A),
    ("metadata with a number", b'{"__metadata__":{"k":1},' + HEADER[1:], R), ("unknown type", HEADER.replace(b"U8", b"U9"), R),
    ("offsets beyond the file", HEADER.replace(b"[0,4]", b"[0,5]"), R), ("shape does not fit", HEADER.replace(b"[4]", b"[3]"), R),
    ("offsets reversed", HEADER.replace(b"[0,4]", b"[4,0]"), R), ("negative shape", HEADER.replace(b"[4]", b"[-4]"), R),
    ("fraction in the shape", HEADER.replace(b"[4]", b"[4.0]"), R), ("NaN", HEADER.replace(b"[4]", b"[NaN]"), R),
    ("overlap", two(b"[0,4]", b"[2,4]", 4, 2), R), ("two tensors", two(b"[0,2]", b"[2,4]", 2, 2), A),
    ("two tensors in the other order", two(b"[2,4]", b"[0,2]", 2, 2), A), ("hole between two", two(b"[0,1]", b"[2,4]", 1, 2), R),
    ("duplicate tensor", two(b"[0,2]", b"[2,4]", 2, 2).replace(b'"b"', b'"a"'), R), ("empty tensor", two(b"[0,4]", b"[4,4]", 4, 0), A),
    ("no type", HEADER.replace(b'"dtype":"U8",', b""), R), ("no shape", HEADER.replace(b'"shape":[4],', b""), R),
    ("no offsets", HEADER.replace(b',"data_offsets":[0,4]', b""), R), ("unknown member", HEADER.replace(b'"dtype"', b'"x":1,"dtype"'), A),
    ("three offsets", HEADER.replace(b"[0,4]", b"[0,4,4]"), R), ("one offset", HEADER.replace(b"[0,4]", b"[4]"), R),
    ("offset beyond 64 bits", HEADER.replace(b"[0,4]", b"[0,18446744073709551620]"), R), ("negative offset", HEADER.replace(b"[0,4]", b"[-4,0]"), R),
    ("shape that overflows", HEADER.replace(b"[4]", b"[4294967296,4294967296,4]"), R), ("scalar", HEADER.replace(b"U8", b"F32").replace(b"[4]", b"[]"), A),
    ("metadata null", b'{"__metadata__":null,' + HEADER[1:], R), ("tensor that is a list", b'{"a":[]}', R), ("invalid UTF-8", HEADER.replace(b'"a"', b'"\xff"'), R),
    ("escaped name", HEADER.replace(b'"a"', b'"\\u0061/"'), A), ("type in small letters", HEADER.replace(b"U8", b"u8"), R),
    ("hole", HEADER.replace(b"[0,4]", b"[1,4]").replace(b"[4]", b"[3]"), R), ("bytes that no tensor has", b"{}", R),
]


def reference_json(data):
    try:
        json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        return R
    return A


def reference_yaml(text):
    if text.count("*a7"):
        return A, "not tried"
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return R, None
    return A, repr(value.get("a", None)) if isinstance(value, dict) else None


def reference_safetensors(header):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.safetensors")
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header + b"\1\2\3\4")
        try:
            with safetensors.safe_open(path, "np") as file:
                file.keys()
        except safetensors.SafetensorError:
            return R
    return A


rows = [{"reader": "json", "class": c, "hex": d.hex(), "ours": o, "reference": reference_json(d)} for c, d, o in JSON]
for c, text, o, ours_text in YAML:
    verdict, value = reference_yaml(text)
    rows.append({"reader": "yaml", "class": c, "hex": text.encode().hex(), "ours": o, "ours_text": ours_text, "reference": verdict,
                 "value": value})
rows += [{"reader": "safetensors", "class": c, "hex": d.hex(), "ours": o, "reference": reference_safetensors(d)} for c, d, o in SAFETENSORS]
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "rows.jsonl"), "w") as out:
    for row in rows:
        if row["class"] != "i depth 100000":
            out.write(json.dumps(row) + "\n")
for row in rows:
    if row["ours"] != row["reference"]:
        print(row["reader"], "|", row["class"], "| ours:", row["ours"], "| reference:", row["reference"], row.get("value"))
