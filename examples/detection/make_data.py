#!/usr/bin/env python3
"""Pictures to learn to find things in: circles, squares and triangles on noise, in the layout of Open Images.

usage: make_data.py FOLDER [--train 48] [--val 16] [--size 128] [--seed 1]

Writes FOLDER/images/*.png, FOLDER/train-annotations-bbox.csv, FOLDER/validation-annotations-bbox.csv and
FOLDER/class-descriptions-boxable.csv. Needs nothing but Python.
"""
import argparse
import os
import random
import struct
import zlib

CLASSES = [("/m/circle", "Circle"), ("/m/square", "Square"), ("/m/triangle", "Triangle")]


def png(width, height, rows):
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    data = b"".join(b"\0" + bytes(row) for row in rows)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(data, 1)) + chunk(b"IEND", b""))


def covers(kind, x, y, side):
    """Whether the shape of this kind, in a square of `side`, covers the pixel (x, y)."""
    if kind == 0:
        return (2 * x + 1 - side) ** 2 + (2 * y + 1 - side) ** 2 <= side * side
    if kind == 1:
        return True
    return abs(2 * x + 1 - side) <= y + 1


def overlaps(box, others):
    return any(box[0] < o[0] + o[2] and o[0] < box[0] + box[2] and box[1] < o[1] + o[2] and o[1] < box[1] + box[2]
               for o in others)


def picture(rng, size):
    """Rows of pixels, and boxes of (kind, x, y, side)."""
    width, height = size + rng.randrange(0, size // 4), size + rng.randrange(0, size // 4)
    rows = [bytearray(value % 96 for value in rng.randbytes(3 * width)) for _ in range(height)]
    boxes, places = [], []
    for _ in range(rng.randrange(1, 4)):
        side = rng.randrange(size // 5, size // 2)
        x, y, kind = rng.randrange(width - side), rng.randrange(height - side), rng.randrange(3)
        if overlaps((x, y, side), places):
            continue
        places.append((x, y, side))
        boxes.append((kind, x, y, side))
        colour = bytes(rng.randrange(128, 256) for _ in range(3))
        for dy in range(side):
            for dx in range(side):
                if covers(kind, dx, dy, side):
                    at = 3 * (x + dx)
                    rows[y + dy][at:at + 3] = colour
    return width, height, rows, boxes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--train", type=int, default=48)
    parser.add_argument("--val", type=int, default=16)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    os.makedirs(os.path.join(args.folder, "images"), exist_ok=True)
    with open(os.path.join(args.folder, "class-descriptions-boxable.csv"), "w") as file:
        file.writelines(f"{key},{name}\n" for key, name in CLASSES)
    for split, count in (("train", args.train), ("validation", args.val)):
        with open(os.path.join(args.folder, f"{split}-annotations-bbox.csv"), "w") as file:
            file.write("ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsGroupOf\n")
            for i in range(count):
                width, height, rows, boxes = picture(rng, args.size)
                name = f"{split}{i:04d}"
                with open(os.path.join(args.folder, "images", name + ".png"), "wb") as image:
                    image.write(png(width, height, rows))
                for kind, x, y, side in boxes:
                    file.write(f"{name},xclick,{CLASSES[kind][0]},1,{x / width:.6f},{(x + side) / width:.6f},"
                               f"{y / height:.6f},{(y + side) / height:.6f},0\n")


main()
