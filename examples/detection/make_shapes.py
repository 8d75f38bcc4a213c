#!/usr/bin/env python3
"""Writes a small data set for object detection: circles, squares and triangles on noise.

    make_shapes.py FOLDER [--train 96] [--validation 32] [--size 160] [--mixed] [--seed 0]

FOLDER gets the layout of Open Images, and the same boxes as COCO's JSON:

    images/train/<ImageID>.jpg, images/validation/<ImageID>.jpg     every fourth one is a .png
    oidv6-train-annotations-bbox.csv, validation-annotations-bbox.csv, class-descriptions-boxable.csv
    coco/train.json, coco/validation.json

The same arguments give the same bytes. Python's standard library is all it needs: JPEG is written by the encoder below
(baseline, no subsampling), PNG with zlib.
"""
import argparse
import concurrent.futures
import json
import math
import pathlib
import random
import struct
import zlib

CLASSES = [("/m/shape01", "Circle"), ("/m/shape02", "Square"), ("/m/shape03", "Triangle")]
CIRCLE, SQUARE, TRIANGLE = range(3)
COLUMNS = ("ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,IsDepiction,"
           "IsInside")
NOISE = 0x1F  # bits of each value that are random


# ---- Scenes ----

def overlap(a, b):
    """Intersection over the smaller area of two boxes (x0, y0, x1, y1)."""
    wide = min(a[2], b[2]) - max(a[0], b[0])
    high = min(a[3], b[3]) - max(a[1], b[1])
    if wide <= 0 or high <= 0:
        return 0.0
    return wide * high / min((a[2] - a[0]) * (a[3] - a[1]), (b[2] - b[0]) * (b[3] - b[1]))


def pick(rng, low, high):
    """A whole number from low to high."""
    return low + int(rng.random() * (high - low + 1))


def make_scene(rng, size, mixed):
    """(width, height, grey of the ground, [(class, box, (y, cb, cr))]). Shapes are a quarter to half as wide as `size`."""
    wide, high = size, size
    if mixed:
        wide, high = [(size, size), (size, size * 3 // 4), (size * 3 // 4, size)][pick(rng, 0, 2)]
    ground, shapes, wanted = pick(rng, 60, 110), [], pick(rng, 1, 3)
    for _ in range(40):
        if len(shapes) == wanted:
            break
        side = pick(rng, size // 4, size // 2)
        x, y = pick(rng, 1, wide - side - 1), pick(rng, 1, high - side - 1)
        box = (x, y, x + side, y + side)
        if all(overlap(box, other) < 0.1 for _, other, _ in shapes):
            color = (pick(rng, 160, 215), pick(rng, 70, 186), pick(rng, 70, 186))
            shapes.append((pick(rng, 0, 2), box, color))
    return wide, high, ground, shapes


def span(kind, box, row):
    """First and last column + 1 of a shape in a row of pixels; the shape touches all four sides of its box."""
    x0, y0, x1, y1 = box
    side, middle = x1 - x0, (x0 + x1) / 2
    if kind == SQUARE:
        return x0, x1
    at = (row + 0.5 - y0) / side
    half = math.sqrt(max(0.0, 0.25 - (at - 0.5) ** 2)) * side if kind == CIRCLE else at * side / 2
    return round(middle - half), round(middle + half)


def paint(scene, channel_values, ground_value):
    """One plane: a list of bytearrays, a row each. channel_values: the value of each shape."""
    wide, high, _, shapes = scene
    rows = [bytearray(bytes([ground_value]) * wide) for _ in range(high)]
    for (kind, box, _), value in zip(shapes, channel_values):
        for row in range(box[1], box[3]):
            first, end = span(kind, box, row)
            rows[row][first:end] = bytes([value]) * (end - first)
    return rows


def add_noise(rng, rows):
    """Flips the low bits of every value."""
    for row in rows:
        count = len(row)
        noise = rng.getrandbits(8 * count) & int.from_bytes(bytes([NOISE]) * count, "big")
        row[:] = (int.from_bytes(row, "big") ^ noise).to_bytes(count, "big")


# ---- PNG ----

def to_rgb(color):
    y, cb, cr = color
    values = (y + 1.402 * (cr - 128), y - 0.344136 * (cb - 128) - 0.714136 * (cr - 128), y + 1.772 * (cb - 128))
    return [min(255, max(0, round(value))) for value in values]


def encode_png(rng, scene):
    wide, high, ground, shapes = scene
    colors = [to_rgb(color) for _, _, color in shapes]
    planes = [paint(scene, [color[channel] for color in colors], ground) for channel in range(3)]
    data = bytearray()
    for row in range(high):
        line = bytearray(3 * wide)
        for channel in range(3):
            line[channel::3] = planes[channel][row]
        add_noise(rng, [line])
        data += b"\0" + line
    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
    header = struct.pack(">IIBBBBB", wide, high, 8, 2, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(data), 1)) +
            chunk(b"IEND", b""))


# ---- JPEG (ITU T.81, baseline). Its Huffman codes all have one length, which the format allows: 4 bits for sizes of DC
# differences, 8 for (run, size) of AC coefficients; the code of a symbol is its place in the table. ----

ZIGZAG = [y * 8 + x for _, x, y in sorted(
    ((x + y) * 8 + (y if (x + y) % 2 else x), x, y) for y in range(8) for x in range(8))]
QUANTUM = 6  # of every coefficient
DC_SYMBOLS = list(range(12))
AC_SYMBOLS = [0x00, 0xF0] + [run << 4 | size for run in range(16) for size in range(1, 11)]
DC_CODES = {symbol: format(i, "04b") for i, symbol in enumerate(DC_SYMBOLS)}
AC_CODES = {symbol: format(i, "08b") for i, symbol in enumerate(AC_SYMBOLS)}
C1, C2, C3, C4, C5, C6, C7 = (math.cos(k * math.pi / 16) / 2 for k in range(1, 8))


def dct(a, b, c, d, e, f, g, h):
    """Eight values to their cosine transform, which is orthonormal."""
    s0, s1, s2, s3, d0, d1, d2, d3 = a + h, b + g, c + f, d + e, a - h, b - g, c - f, d - e
    even0, even1, odd0, odd1 = s0 + s3, s1 + s2, s0 - s3, s1 - s2
    return ((even0 + even1) * C4, d0 * C1 + d1 * C3 + d2 * C5 + d3 * C7, odd0 * C2 + odd1 * C6,
            d0 * C3 - d1 * C7 - d2 * C1 - d3 * C5, (even0 - even1) * C4, d0 * C5 - d1 * C1 + d2 * C7 + d3 * C3,
            odd0 * C6 - odd1 * C2, d0 * C7 - d1 * C5 + d2 * C3 - d3 * C1)


def signed_bits(value):
    """(size, bits) of a coefficient: negative ones as value + 2^size - 1."""
    size = abs(value).bit_length()
    return size, format(value if value > 0 else value + (1 << size) - 1, f"0{size}b") if size else ""


def encode_block(rows, previous, bits):
    """Appends eight rows of eight values; returns the DC coefficient for the next block."""
    first = rows[0][0]
    if all(row == rows[0] for row in rows) and rows[0].count(first) == 8:
        quantized = [round((first - 128) * 8 / QUANTUM)]
    else:
        columns = zip(*(dct(*row) for row in rows))
        flat = [value for column in zip(*(dct(*column) for column in columns)) for value in column]
        flat[0] -= 8 * 128
        quantized = [round(flat[place] / QUANTUM) for place in ZIGZAG]
    size, text = signed_bits(quantized[0] - previous)
    bits.append(DC_CODES[size] + text)
    run = 0
    for value in quantized[1:]:
        if value == 0:
            run += 1
            continue
        while run > 15:
            bits.append(AC_CODES[0xF0])
            run -= 16
        size, text = signed_bits(value)
        bits.append(AC_CODES[run << 4 | size] + text)
        run = 0
    if run or len(quantized) == 1:
        bits.append(AC_CODES[0x00])
    return quantized[0]


def encode_jpeg(rng, scene):
    wide, high, ground, shapes = scene
    planes = [paint(scene, [color[channel] for _, _, color in shapes], ground if channel == 0 else 128)
              for channel in range(3)]
    add_noise(rng, planes[0])
    for plane in planes:  # whole blocks: the last column and row again
        for row in plane:
            row += row[-1:] * (-wide % 8)
        plane += [plane[-1]] * (-high % 8)
    bits, previous = [], [0, 0, 0]
    for y in range(0, high, 8):
        for x in range(0, wide, 8):
            for channel, plane in enumerate(planes):
                block = [bytes(row[x:x + 8]) for row in plane[y:y + 8]]
                previous[channel] = encode_block(block, previous[channel], bits)
    text = "".join(bits)
    text += "1" * (-len(text) % 8)
    scan = int(text, 2).to_bytes(len(text) // 8, "big").replace(b"\xff", b"\xff\0")

    def segment(marker, content):
        return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content

    def table(place, symbols, length):
        counts = [len(symbols) if n == length else 0 for n in range(1, 17)]
        return bytes([place] + counts + symbols)
    frame = struct.pack(">BHHB", 8, high, wide, 3) + b"".join(bytes([c, 0x11, 0]) for c in (1, 2, 3))
    start = bytes([3]) + b"".join(bytes([c, 0x00]) for c in (1, 2, 3)) + bytes([0, 63, 0])
    return (b"\xff\xd8" + segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0") + segment(0xDB, bytes([0] + [QUANTUM] * 64)) +
            segment(0xC0, frame) + segment(0xC4, table(0x00, DC_SYMBOLS, 4)) +
            segment(0xC4, table(0x10, AC_SYMBOLS, 8)) + segment(0xDA, start) + scan + b"\xff\xd9")


# ---- The data set ----

def fraction(value, whole):
    return format(value / whole, ".6f")


def write_image(target, split, index, args):
    """Returns the file's name and what it shows. Images depend on their own seed alone, so processes can share them."""
    rng = random.Random(f"shapes {args.seed} {split} {index}")
    name, scene = format(rng.getrandbits(64), "016x"), make_scene(rng, args.size, args.mixed)
    png = index % 4 == 3
    file = name + (".png" if png else ".jpg")
    (target / file).write_bytes((encode_png if png else encode_jpeg)(rng, scene))
    return name, file, scene


def write_split(folder, split, csv_name, count, args):
    rows, images, annotations = [COLUMNS], [], []
    target = folder / "images" / split
    target.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ProcessPoolExecutor() as pool:
        written = pool.map(write_image, *zip(*((target, split, index, args) for index in range(count))))
    for index, (name, file, scene) in enumerate(written):
        wide, high, _, shapes = scene
        images.append({"id": index + 1, "file_name": file, "width": wide, "height": high})
        for kind, (x0, y0, x1, y1), _ in shapes:
            rows.append(",".join([name, "xclick", CLASSES[kind][0], "1", fraction(x0, wide), fraction(x1, wide),
                                  fraction(y0, high), fraction(y1, high), "0", "0", "0", "0", "0"]))
            annotations.append({"id": len(annotations) + 1, "image_id": index + 1, "category_id": kind + 1,
                                "bbox": [x0, y0, x1 - x0, y1 - y0], "area": (x1 - x0) * (y1 - y0), "iscrowd": 0})
    (folder / csv_name).write_text("\n".join(rows) + "\n", encoding="ascii")
    coco = {"images": images, "annotations": annotations,
            "categories": [{"id": i + 1, "name": name} for i, (_, name) in enumerate(CLASSES)]}
    (folder / "coco").mkdir(exist_ok=True)
    (folder / "coco" / f"{split}.json").write_text(json.dumps(coco) + "\n", encoding="ascii")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--train", type=int, default=96, help="images")
    parser.add_argument("--validation", type=int, default=32, help="images")
    parser.add_argument("--size", type=int, default=160, help="longest side in pixels")
    parser.add_argument("--mixed", action="store_true", help="also images that are wider or higher")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    write_split(args.folder, "train", "oidv6-train-annotations-bbox.csv", args.train, args)
    write_split(args.folder, "validation", "validation-annotations-bbox.csv", args.validation, args)
    classes = "".join(f"{key},{name}\n" for key, name in CLASSES)
    (args.folder / "class-descriptions-boxable.csv").write_text(classes, encoding="ascii")


if __name__ == "__main__":
    main()
