"""Makes small Parquet files, and for each set of rows the JSON Lines that trimtab must read from all of its files.

    python tests/golden/parquet/make_parquet.py

<set>.jsonl is json.dumps(row, ensure_ascii=False) of pyarrow's to_pylist() of the file, read back; what JSON has not is
str() of Python's value (dates, times, UUIDs), decimals are numbers, maps are objects. <set>-<what>.parquet are the files.
chat-datasets.parquet is what datasets' to_parquet() writes; saved and saved_dict are folders of its save_to_disk(), and
<set>-<what>.arrow are Arrow streams and files of pyarrow.
"""
import datetime
import decimal
import json
import pathlib
import re
import uuid

import datasets
import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = pathlib.Path(__file__).parent
CALL = pa.struct([("name", pa.string()), ("arguments", pa.string())])
MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string()), ("tool_calls", pa.list_(CALL))])
CHAT = pa.schema([("messages", pa.list_(MESSAGE)), ("source", pa.string()), ("score", pa.float64()), ("n", pa.int64()),
                  ("tags", pa.list_(pa.list_(pa.string()))), ("good", pa.bool_())])


def chat_row(i):
    if i % 11 == 5:
        return {"messages": None, "source": None, "score": None, "n": None, "tags": None, "good": None}
    turns = [{"role": "user", "content": f"Question {i}: \"quotes\" \\ \n\t\r\b\f\x01\x7f é 漢字 😀", "tool_calls": None}]
    for k in range(i % 4):
        calls = [{"name": f"tool_{j}", "arguments": None if j == 1 else json.dumps({"x": j})} for j in range(k)]
        turns.append({"role": "assistant", "content": None if k == 2 else "Answer " * (i % 7), "tool_calls": calls})
    if i % 13 == 7:
        turns.append(None)
    return {"messages": [] if i % 9 == 4 else turns, "source": f"set {i % 3}", "score": i / 7, "n": i * i - 40,
            "tags": [["a", None], [], None, [f"t{i}"]][: i % 5], "good": i % 3 == 0}


CHAT_ROWS = [chat_row(i) for i in range(60)]
UTC = datetime.timezone.utc


def types_table():
    def times(*values):
        return [datetime.datetime(*v) if v else None for v in values]

    columns = {
        "i8": pa.array([-128, 127, None, 0], pa.int8()),
        "u8": pa.array([0, 255, None, 7], pa.uint8()),
        "i16": pa.array([-32768, 32767, None, 0], pa.int16()),
        "u32": pa.array([0, 2**32 - 1, None, 1], pa.uint32()),
        "i64": pa.array([-(2**63), 2**63 - 1, None, 0], pa.int64()),
        "u64": pa.array([0, 2**64 - 1, None, 1], pa.uint64()),
        "f16": pa.array([1.5, -65504.0, None, 6e-8], pa.float16()),
        "f32": pa.array([0.1, -3.4e38, None, 1e-40], pa.float32()),
        "f64": pa.array([0.1, float("inf"), None, float("nan")], pa.float64()),
        "whole": pa.array([1.0, -0.0, None, 1e16], pa.float64()),
        "flag": pa.array([True, False, None, True], pa.bool_()),
        "text": pa.array(["", "zwölf", None, "\u2028</s>"], pa.string()),
        "large": pa.array(["", "a" * 300, None, "b"], pa.large_string()),
        "bytes": pa.array([b"", b"abc", None, "ü".encode()], pa.binary()),
        "fixed": pa.array([b"abcd", b"efgh", None, b"    "], pa.binary(4)),
        "word": pa.array(["x", "y", None, "x"]).dictionary_encode(),
        "d9": pa.array([decimal.Decimal(v) if v else None for v in ("1.23", "-0.05", None, "0.00")], pa.decimal128(9, 2)),
        "d38": pa.array([decimal.Decimal(v) if v else None for v in ("9" * 38, "-" + "1" * 38, None, "0")],
                        pa.decimal128(38, 0)),
        "day": pa.array([datetime.date(1970, 1, 1), datetime.date(2024, 2, 29), None, datetime.date(1, 3, 1)], pa.date32()),
        "at_ms": pa.array(times((1969, 12, 31, 23, 59, 59, 999000), (2024, 12, 31), None, (2000, 2, 29, 1, 2, 3)),
                          pa.timestamp("ms")),
        "at_us": pa.array(times((1900, 3, 1, 0, 0, 0, 1), (9999, 12, 31), None, (2000, 1, 1)), pa.timestamp("us", "UTC")),
        "at_ns": pa.array([1, 1700000000123456789, None, 1700000000123456000], pa.timestamp("ns")),
        "clock_ms": pa.array([0, 86399999, None, 1500], pa.time32("ms")),
        "clock_us": pa.array([0, 86399999999, None, 1], pa.time64("us")),
        "id": pa.array([uuid.UUID(int=v).bytes if v is not None else None for v in (0, 2**128 - 1, None, 12345 << 40)],
                       pa.uuid()),
        "nothing": pa.array([None] * 4, pa.null()),
        "map": pa.array([[("a", 1), ("b", None)], [], None, [("", 3)]], pa.map_(pa.string(), pa.int32())),
        "nested": pa.array([[[[1], []], None], [], None, [[[None, 2, 3]]]], pa.list_(pa.list_(pa.list_(pa.int32())))),
        "struct": pa.array([{"a": {"b": [1]}}, {"a": {"b": None}}, None, {"a": None}],
                           pa.struct([("a", pa.struct([("b", pa.list_(pa.int8()))]))])),
        "naïve \"name\"": pa.array([1, 2, None, 3]),
    }
    return pa.table(columns)


def plain(value):
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, list):
        pairs = value and all(isinstance(v, tuple) for v in value)
        return {key: plain(v) for key, v in value} if pairs else [plain(v) for v in value]
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, decimal.Decimal):
        return f"@@{value}@@"
    return value if isinstance(value, (type(None), bool, int, float, str)) else str(value)


def lines(table):
    maps = {f.name for f in table.schema if pa.types.is_map(f.type)}
    for row in table.to_pylist():
        row = {key: {} if key in maps and value == [] else plain(value) for key, value in row.items()}
        yield re.sub(r'"@@(.*?)@@"', r"\1", json.dumps(row, ensure_ascii=False)) + "\n"


def write(kind, what, table, **options):
    pq.write_table(table, FOLDER / f"{kind}-{what}.parquet", **options)


def write_arrow(kind, what, table, batch=None, file=False):
    make = pa.ipc.new_file if file else pa.ipc.new_stream
    with make(FOLDER / f"{kind}-{what}.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=batch)


def main():
    chat = pa.Table.from_pylist(CHAT_ROWS, CHAT)
    write("chat", "snappy", chat)
    write("chat", "zstd-v2", chat, compression="zstd", data_page_version="2.0", row_group_size=23)
    write("chat", "gzip-pages", chat, compression="gzip", data_page_size=64, write_batch_size=3, write_page_checksum=True)
    write("chat", "lz4-plain", chat, compression="lz4", use_dictionary=False, row_group_size=40)
    write("chat", "none-v2-pages", chat, compression="none", data_page_version="2.0", data_page_size=64, write_batch_size=2,
          use_dictionary=False, write_page_checksum=True)
    leaves = ["messages.list.element.role", "messages.list.element.content",
              "messages.list.element.tool_calls.list.element.name",
              "messages.list.element.tool_calls.list.element.arguments", "source", "tags.list.element.list.element"]
    encodings = {leaf: ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY")[i % 2] for i, leaf in enumerate(leaves)}
    encodings |= {"n": "DELTA_BINARY_PACKED", "score": "BYTE_STREAM_SPLIT", "good": "RLE"}
    write("chat", "deltas", chat, use_dictionary=False, column_encoding=encodings, data_page_size=256, write_batch_size=7)
    write("chat", "old-names", chat, use_compliant_nested_type=False, version="1.0")
    datasets.Dataset(chat).to_parquet(FOLDER / "chat-datasets.parquet")
    (FOLDER / "chat.jsonl").write_text("".join(lines(chat)))

    types = types_table()
    write("types", "snappy", types)
    write("types", "plain-v2", types, compression="none", data_page_version="2.0", use_dictionary=False, row_group_size=3)
    split = {name: "BYTE_STREAM_SPLIT" for name in ("i8", "i64", "f16", "f32", "f64", "whole", "fixed", "d38", "id")}
    split |= {name: "DELTA_BINARY_PACKED" for name in ("u8", "u32", "u64", "day", "at_us")}
    split |= {name: "DELTA_BYTE_ARRAY" for name in ("large", "bytes")}
    write("types", "split", types, use_dictionary=False, column_encoding=split)
    (FOLDER / "types.jsonl").write_text("".join(lines(pq.read_table(FOLDER / "types-snappy.parquet"))))

    rows = [{"prompt": f"{i} + 1 =", "completion": f" {i + 1}"} for i in range(1, 21)]
    sums = pa.Table.from_pylist(rows)
    write("sums", "snappy", sums)
    write("sums", "0", sums.slice(0, 7), compression="zstd")
    write("sums", "1", sums.slice(7), row_group_size=5)
    (FOLDER / "sums.jsonl").write_text("".join(lines(sums)))

    parts = datasets.Dataset.from_list(rows)
    parts._fingerprint = "0123456789abcdef"
    parts.save_to_disk(FOLDER / "saved", num_shards=2)
    datasets.DatasetDict({"train": parts, "test": parts.select(range(3))}).save_to_disk(FOLDER / "saved_dict")
    write_arrow("sums", "stream", sums)
    write_arrow("chat", "batches", chat, batch=23)
    write_arrow("chat", "slice", chat.slice(0), file=True)
    arrow_types = types.drop(["word", "id"]).append_column("span", pa.array([[1, None], [3, 4], None, [5, 6]],
                                                                             pa.list_(pa.int16(), 2)))
    arrow_types = arrow_types.append_column("long", pa.array([["a"], [], None, ["b", "c"]], pa.large_list(pa.large_string())))
    arrow_types = arrow_types.append_column("day64", pa.array([0, -86400000, None, 951782400000], pa.date64()))
    arrow_types = arrow_types.append_column("at_s", pa.array([0, -1, None, 951782400], pa.timestamp("s", "UTC")))
    arrow_types = arrow_types.append_column("clock_s", pa.array([0, 86399, None, 1], pa.time32("s")))
    write_arrow("kinds", "stream", arrow_types)
    write_arrow("kinds", "file", arrow_types, batch=1, file=True)
    (FOLDER / "kinds.jsonl").write_text("".join(lines(arrow_types)))

    numbers = pa.table({"n": pa.array([i * i * (-1) ** i << i % 40 for i in range(300)], pa.int64()),
                        "at": pa.array([i * 10**15 - 10**17 for i in range(300)], pa.timestamp("ns"))})
    write("numbers", "deltas", numbers, use_dictionary=False, column_encoding={"n": "DELTA_BINARY_PACKED", "at": "PLAIN"})
    write("numbers", "int96", numbers, use_deprecated_int96_timestamps=True, compression="zstd")
    (FOLDER / "numbers.jsonl").write_text("".join(lines(numbers)))


if __name__ == "__main__":
    main()
