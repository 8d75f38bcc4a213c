#!/usr/bin/env python3
"""Cuts large pictures with boxes into tiles, and writes the tiles in Open Images' layout.

    tile.py FOLDER ANNOTATIONS... [--tile 400] [--visible 0.5] [--holdout 0.25] [--classes Tree]

Annotations are PASCAL VOC's .xml, beside the picture of the same name, or a .csv with the columns image_path, xmin, ymin,
xmax, ymax and label, in pixels, beside its pictures. A tile keeps a box that is visible in it for at least the part `visible` of its area, cut at the borders of the
tile; a box that is visible for less is marked as a group, so that it neither trains nor counts by COCO's rules. The right part `holdout` of
each picture has the tiles that validate: no pixel is in both splits. Tiles at the right and lower border are moved inwards
within their split, so pictures are covered as a whole. Tiles without a box are left out.

It needs Pillow.
"""
import argparse
import csv
import pathlib
import xml.etree.ElementTree

from PIL import Image

COLUMNS = "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside"


def read_voc(path):
    """(picture, (x0, y0, x1, y1, label)) of each box."""
    picture = next(p for ending in (".png", ".jpg", ".jpeg", ".tif") if (p := path.with_suffix(ending)).exists())
    for found in xml.etree.ElementTree.parse(path).iter("object"):
        sides = [float(found.findtext(f"bndbox/{name}")) for name in ("xmin", "ymin", "xmax", "ymax")]
        yield picture, (*sides, found.findtext("name"))


def read_csv(path):
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            sides = [float(row[name]) for name in ("xmin", "ymin", "xmax", "ymax")]
            yield path.parent / row["image_path"], (*sides, row["label"])


def read_boxes(paths):
    """Boxes of each picture."""
    boxes = {}
    for path in map(pathlib.Path, paths):
        for picture, box in read_voc(path) if path.suffix == ".xml" else read_csv(path):
            boxes.setdefault(picture, []).append(box)
    return boxes


def starts(first, last, tile):
    """Where tiles begin that cover first..last."""
    if last - first <= tile:
        return [first]
    places = list(range(first, last - tile + 1, tile))
    return places if places[-1] + tile == last else places + [last - tile]


def cut(boxes, x0, y0, x1, y1, visible):
    """Boxes within a tile, in its own pixels, each with its label and whether too little of it is visible."""
    kept = []
    for left, top, right, bottom, label in boxes:
        inside = (max(left, x0), max(top, y0), min(right, x1), min(bottom, y1))
        area = (right - left) * (bottom - top)
        wide, high = inside[2] - inside[0], inside[3] - inside[1]
        if wide <= 1 or high <= 1 or area <= 0:
            continue
        kept.append((inside[0] - x0, inside[1] - y0, inside[2] - x0, inside[3] - y0, label, wide * high < visible * area))
    return kept


def tiles(width, height, args):
    """(split, x0, y0, x1, y1) of a picture."""
    border = width - round(width * args.holdout)
    for split, first, last in (("train", 0, border), ("validation", border, width)):
        for x in starts(first, last, args.tile) if last > first else []:
            for y in starts(0, height, args.tile):
                yield split, x, y, min(x + args.tile, last), min(y + args.tile, height)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("annotations", nargs="+")
    parser.add_argument("--tile", type=int, default=400)
    parser.add_argument("--visible", type=float, default=0.5)
    parser.add_argument("--holdout", type=float, default=0.25)
    parser.add_argument("--classes", nargs="+", help="only boxes with these labels")
    args = parser.parse_args()
    pictures = read_boxes(args.annotations)
    names, rows, counts = {}, {"train": [], "validation": []}, {"train": 0, "validation": 0}
    for path, boxes in sorted(pictures.items()):
        boxes = [b for b in boxes if args.classes is None or b[4] in args.classes]
        picture = Image.open(path).convert("RGB")
        for split, x0, y0, x1, y1 in tiles(*picture.size, args):
            mine = cut(boxes, x0, y0, x1, y1, args.visible)
            if all(group for *_, group in mine):
                continue
            name = f"{path.stem}-{x0}-{y0}"
            folder = args.folder / "images" / split
            folder.mkdir(parents=True, exist_ok=True)
            picture.crop((x0, y0, x1, y1)).save(folder / f"{name}.png")
            wide, high = x1 - x0, y1 - y0
            for left, top, right, bottom, label, group in mine:
                key = names.setdefault(label, f"/m/class{len(names) + 1:02}")
                rows[split].append(f"{name},xclick,{key},1,{left / wide:.6f},{right / wide:.6f},{top / high:.6f},"
                                   f"{bottom / high:.6f},0,{int(group)},{int(group)},0,0")
            counts[split] += 1
    for split, prefix in (("train", "oidv6-train"), ("validation", "validation")):
        (args.folder / f"{prefix}-annotations-bbox.csv").write_text("\n".join([COLUMNS, *rows[split]]) + "\n")
        groups = sum(row.endswith(",1,1,0,0") for row in rows[split])
        print(f"{split}: {counts[split]} tiles, {len(rows[split]) - groups} boxes, {groups} of which too little is visible")
    (args.folder / "class-descriptions-boxable.csv").write_text("".join(f"{key},{name}\n" for name, key in names.items()))


main()
