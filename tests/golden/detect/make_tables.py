"""Makes small Parquet and Arrow files of images with boxes, and the same images as files beside COCO's annotations.

    python tests/golden/detect/make_tables.py

tables/files: images and train.json, validation.json. The same rows, by what writes them: train-columns.parquet (datasets,
a struct of lists), train-list.parquet (datasets, a list of structs), saved (its save_to_disk), train-packed.parquet (pyarrow:
Zstandard, images in a dictionary, boxes as corners), train-plain.arrow (pyarrow: an Arrow file, texts as categories).
odd.parquet: rows that are left out or refused. train-named.parquet, named.parquet: images without bytes, by their paths.
"""
import io
import json
import pathlib
import shutil

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

OUT = pathlib.Path(__file__).parent / "tables"
NAMES = ["bar", "cross", "disc"]  # in the order of their bytes
TRAIN, VALIDATION = 6, 3


def picture(seed):
    """An image of 48 x 64 or 64 x 48 with one or two rectangles, its boxes as COCO writes them, and their classes."""
    rng = np.random.default_rng(seed)
    height, width = (48, 64) if seed % 2 else (64, 48)
    pixels = np.full((height, width, 3), 90 + 10 * (seed % 5), np.uint8)
    boxes, classes = [], []
    for _ in range(1 + seed % 2):
        w, h = rng.integers(12, 30, 2).tolist()
        x, y = int(rng.integers(0, width - w)), int(rng.integers(0, height - h))
        label = int(rng.integers(0, 3))
        pixels[y:y + h, x:x + w] = np.eye(3, dtype=np.uint8)[label] * 200
        boxes.append([float(x), float(y), float(w), float(h)])
        classes.append(label)
    file = io.BytesIO()
    kind = "PNG" if seed % 3 == 0 else "JPEG"
    Image.fromarray(pixels).save(file, kind, **({} if kind == "PNG" else {"quality": 90}))
    return {"image_id": 100 + seed, "bytes": file.getvalue(), "path": f"p{seed}.{'png' if kind == 'PNG' else 'jpg'}",
            "bbox": boxes, "category": classes}


def coco(rows, path):
    boxes = [(row, *pair) for row in rows for pair in zip(row["bbox"], row["category"])]
    json.dump({"images": [{"id": r["image_id"], "file_name": r["path"]} for r in rows],
               "annotations": [{"id": i, "image_id": row["image_id"], "category_id": category, "bbox": box,
                                "area": box[2] * box[3], "iscrowd": 0} for i, (row, box, category) in enumerate(boxes, 1)],
               "categories": [{"id": i, "name": name} for i, name in enumerate(NAMES)]}, open(path, "w"))


def columns(rows):
    label = datasets.ClassLabel(names=NAMES)
    features = datasets.Features({"image_id": datasets.Value("int64"), "image": datasets.Image(),
                                  "objects": {"bbox": datasets.List(datasets.List(datasets.Value("float32"), length=4)),
                                              "category": datasets.List(label)}})
    return datasets.Dataset.from_list([{"image_id": r["image_id"], "image": {"bytes": r["bytes"], "path": r["path"]},
                                        "objects": {"bbox": r["bbox"], "category": r["category"]}} for r in rows],
                                      features=features)


def structs(rows):
    box = {"bbox": datasets.List(datasets.Value("float64")), "category": datasets.ClassLabel(names=NAMES)}
    features = datasets.Features({"image_id": datasets.Value("int64"), "image": datasets.Image(),
                                  "objects": datasets.List(box)})
    return datasets.Dataset.from_list([{"image_id": r["image_id"], "image": {"bytes": r["bytes"], "path": r["path"]},
                                        "objects": [{"bbox": b, "category": c} for b, c in zip(r["bbox"], r["category"])]}
                                       for r in rows], features=features)


def table(rows, corners=False, texts=False):
    def sides(box):
        return [box[0], box[1], box[0] + box[2], box[1] + box[3]] if corners else box

    category = pa.string() if texts else pa.int64()
    kind = pa.schema([("image_id", pa.int64()), ("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
                      ("objects", pa.struct([("bbox", pa.list_(pa.list_(pa.float32()))), ("label", pa.list_(category))]))])
    return pa.Table.from_pylist([{"image_id": r["image_id"], "image": {"bytes": r["bytes"], "path": r["path"]},
                                  "objects": {"bbox": [sides(b) for b in r["bbox"]],
                                              "label": [NAMES[c] if texts else c for c in r["category"]]}} for r in rows],
                                schema=kind)


def odd():
    """One row of each kind: a class beyond the names; no image; a path outside; a cut JPEG; no boxes; a box outside; a
    crowd."""
    made = [picture(i) for i in range(7)]
    rows = [{"image": {"bytes": r["bytes"], "path": r["path"]},
             "objects": {"bbox": r["bbox"], "category_id": r["category"], "iscrowd": [False] * len(r["bbox"])}} for r in made]
    rows[0]["objects"]["category_id"][0] = 3
    rows[1]["image"] = None
    rows[2]["image"] = {"bytes": None, "path": "../p2.jpg"}
    rows[3]["image"]["bytes"] = made[1]["bytes"][:100]
    rows[4]["objects"] = None
    rows[5]["objects"]["bbox"].append([500.0, 10.0, 4.0, 4.0])
    rows[5]["objects"]["category_id"].append(1)
    rows[5]["objects"]["iscrowd"].append(None)
    rows[6]["objects"]["iscrowd"][0] = True
    label = {"feature": {"names": NAMES, "_type": "ClassLabel"}, "_type": "List"}
    note = {"info": {"features": {"image": {"_type": "Image"}, "objects": {"category_id": label}}}}
    schema = pa.schema([("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
                        ("objects", pa.struct([("bbox", pa.list_(pa.list_(pa.float64()))),
                                               ("category_id", pa.list_(pa.int64())), ("iscrowd", pa.list_(pa.bool_()))]))],
                       metadata={"huggingface": json.dumps(note)})
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), OUT / "odd.parquet")


PLACE = "/absolute" + "-" * 190  # the test puts a folder of its own there


def named(train):
    """Paths below the folder of files, and paths of every kind below that of the table: there, with folders that go up
    inside and outside, a folder, absolute, none, absent."""
    bare = [{**row, "bytes": None} for row in train]
    pq.write_table(table(bare, texts=True), OUT / "train-named.parquet", compression="none")
    paths = ["files/p0.png", "files/./p1.jpg", "../tables/files/p2.jpg", "files/../files/p3.png", "..", "files/..",
             PLACE + "/files/p4.jpg", "", "files/gone.jpg", "files"]
    rows = [{**picture(i % TRAIN), "image_id": i, "bytes": None, "path": path} for i, path in enumerate(paths)]
    pq.write_table(table(rows, texts=True), OUT / "named.parquet", compression="none", use_dictionary=False,
                   write_statistics=False)


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    (OUT / "files").mkdir(parents=True)
    rows = [picture(i) for i in range(TRAIN + VALIDATION)]
    train, validation = rows[:TRAIN], rows[TRAIN:]
    for row in rows:
        (OUT / "files" / row["path"]).write_bytes(row["bytes"])
    coco(train, OUT / "files/train.json")
    coco(validation, OUT / "files/validation.json")
    columns(train).to_parquet(OUT / "train-columns.parquet")
    columns(validation).to_parquet(OUT / "validation-columns.parquet")
    structs(train).to_parquet(OUT / "train-list.parquet")
    datasets.DatasetDict({"train": columns(train), "validation": columns(validation)}).save_to_disk(OUT / "saved")
    pq.write_table(table(train, corners=True), OUT / "train-packed.parquet", compression="zstd")
    with pa.OSFile(str(OUT / "train-plain.arrow"), "wb") as file, pa.ipc.new_file(file, table(train, texts=True).schema) as out:
        out.write_table(table(train, texts=True))
    odd()
    named(train)


main()
