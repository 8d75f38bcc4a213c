#!/usr/bin/env python3
"""Makes small JPEG and PNG files of every kind, and images.json with their sizes and the CRC-64 of the pixels that PIL
reads (Image.open(path).convert("RGB"); of 16-bit grey the upper 8 bits, where PIL clips); transform.json with what torchvision's detectors make of two of them.

    python tests/golden/images/make_images.py
"""
import json
import pathlib

import numpy as np
import torch
from PIL import Image
from torchvision.models.detection.transform import GeneralizedRCNNTransform
from torchvision.transforms.functional import to_tensor

HERE = pathlib.Path(__file__).parent
POLYNOMIAL = 0xC96C5795D7870F42
TABLE = []
for byte in range(256):
    value = byte
    for _ in range(8):
        value = value >> 1 ^ (POLYNOMIAL if value & 1 else 0)
    TABLE.append(value)


def crc64(data):
    value = 0xFFFFFFFFFFFFFFFF
    for byte in data:
        value = TABLE[(value ^ byte) & 255] ^ value >> 8
    return f"{value ^ 0xFFFFFFFFFFFFFFFF:016x}"


def picture(height, width, channels=3, seed=0):
    """Smooth colours, edges and a little noise."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 100 * np.sin(x / (5 + c) + seed) * np.cos(y / (7 - c)) + 20 * ((x // 8 + y // 6) % 2) for c in range(channels)]
    data = np.stack(planes, -1) + random.normal(0, 4, (height, width, channels))
    return np.clip(data, 0, 255).astype(np.uint8)


def files():
    rgb, odd = Image.fromarray(picture(32, 48)), Image.fromarray(picture(37, 29, seed=1))
    yield "420.jpg", rgb, dict(quality=85, subsampling="4:2:0")
    yield "422.jpg", rgb, dict(quality=85, subsampling="4:2:2")
    yield "444.jpg", rgb, dict(quality=95, subsampling="4:4:4")
    yield "progressive.jpg", rgb, dict(quality=80, progressive=True)
    yield "grey.jpg", Image.fromarray(picture(32, 48, 1)[:, :, 0]), dict(quality=85)
    yield "odd.jpg", odd, dict(quality=75)
    yield "restart.jpg", odd, dict(quality=60, restart_marker_blocks=1)
    yield "cmyk.jpg", Image.fromarray(picture(20, 24, 4, seed=2), "CMYK"), dict(quality=90)
    exif = Image.Exif()
    exif[0x112] = 6
    yield "rotated.jpg", odd, dict(quality=80, exif=exif)
    yield "rgb.png", odd, {}
    yield "rgba.png", Image.fromarray(picture(13, 17, 4, seed=3), "RGBA"), {}
    yield "palette.png", odd.quantize(11), {}
    yield "transparent_palette.png", odd.quantize(7), dict(transparency=2)
    yield "grey.png", Image.fromarray(picture(13, 17, 1)[:, :, 0]), {}
    yield "grey_alpha.png", Image.fromarray(picture(13, 17, 2, seed=4), "LA"), {}
    yield "bits.png", Image.fromarray(picture(13, 19, 1)[:, :, 0]).convert("1"), {}
    yield "grey16.png", Image.fromarray(picture(9, 11, 1, seed=5)[:, :, 0].astype(np.uint16) * 257 + 3), {}


def rgb16(path):
    """PIL writes no RGB of 16 bits: made by hand, with two rows of filter 0."""
    import struct
    import zlib
    pixels = np.random.default_rng(6).integers(0, 65536, (5, 7, 3), dtype=np.uint16)

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 7, 5, 16, 2, 0, 0, 0)) +
                     chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def transformed(name, min_size, max_size):
    transform = GeneralizedRCNNTransform(min_size, max_size, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    image = to_tensor(Image.open(HERE / name).convert("RGB"))
    box = torch.tensor([[1.0, 2.0, 20.5, 25.25]])
    out, targets = transform([image], [{"boxes": box}])
    pixels, (height, width) = out.tensors[0], out.image_sizes[0]
    random = np.random.default_rng(7)
    places = [(int(random.integers(height)), int(random.integers(width)), int(random.integers(3))) for _ in range(300)]
    places += [(0, 0, 0), (height - 1, width - 1, 2), (0, width - 1, 1), (height - 1, 0, 0)]
    return {"file": name, "min_size": min_size, "max_size": max_size, "height": height, "width": width,
            "canvas": list(pixels.shape[1:]), "boxes": targets[0]["boxes"].tolist(),
            "values": [[y, x, c, float(pixels[c, y, x])] for y, x, c in places]}


def main():
    images = {}
    for name, image, options in files():
        image.save(HERE / name, **options)
    rgb16(HERE / "rgb16.png")
    for path in sorted(HERE.iterdir()):
        if path.suffix in (".jpg", ".png"):
            image = Image.open(path)
            pixels = np.asarray(image.convert("RGB"))
            if image.mode == "I;16":  # which convert() clips at 255; here the upper 8 bits, as of other images
                pixels = np.repeat((np.asarray(image) >> 8).astype(np.uint8)[:, :, None], 3, -1)
            images[path.name] = {"height": pixels.shape[0], "width": pixels.shape[1], "crc64": crc64(pixels.tobytes())}
    (HERE / "images.json").write_text(json.dumps(images, indent=1) + "\n")
    rows = [transformed("420.jpg", 80, 133), transformed("odd.jpg", 21, 35), transformed("odd.jpg", 29, 30), transformed("rgb.png", 100, 110)]
    sizes = []
    random = np.random.default_rng(8)
    for _ in range(300):
        h, w = int(random.integers(1, 3000)), int(random.integers(1, 3000))
        low, high = [(800, 1333), (320, 533), (480, 1333), (608, 1000)][int(random.integers(4))]
        if max(h, w) / min(h, w) > 50:
            continue
        transform = GeneralizedRCNNTransform(low, high, [0], [1])
        out, _ = transform.resize(torch.zeros(1, h, w), None)
        sizes.append([h, w, low, high, out.shape[1], out.shape[2]])
    (HERE / "transform.json").write_text(json.dumps({"images": rows, "sizes": sizes}) + "\n")


if __name__ == "__main__":
    main()
