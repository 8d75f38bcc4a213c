"""Writes a wheel from a folder: metadata, RECORD, and a zip file whose bytes depend on the contents only."""

import argparse
import base64
import hashlib
import pathlib
import time
import zipfile

METADATA = """Metadata-Version: 2.1
Name: trimtab
Version: {version}
Summary: Fine-tunes large language models with sharded LoRA, in one native program
License: Apache-2.0
Keywords: LoRA,QLoRA,FSDP,fine-tuning
Classifier: Environment :: Console
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C
Requires-Python: >=3.8
{extras}Description-Content-Type: text/markdown

{readme}"""

# NVIDIA's wheels for a major version of CUDA. From 13 on, cuBLAS and NVRTC have no suffix.
EXTRAS = {
    "13": ["nvidia-cublas >=13,<14", "nvidia-cuda-nvrtc >=13,<14", "nvidia-cudnn-cu13 >=9.18.1", "nvidia-nccl-cu13 >=2.18"],
    "12": ["nvidia-cublas-cu12", "nvidia-cuda-nvrtc-cu12", "nvidia-cudnn-cu12 >=9.18.1", "nvidia-nccl-cu12 >=2.18"],
}


def extras(major):
    if not major:
        return ""
    lines = [f'Requires-Dist: {need}; extra == "cuda"\n' for need in EXTRAS[major]]
    return "Provides-Extra: cuda\n" + "".join(lines)


def collect(words):
    """Names in the wheel -> (bytes, whether it is a program)."""
    files = {}
    folder = pathlib.Path(words.folder)
    for path in folder.rglob("*"):
        if path.is_file():
            files[path.relative_to(folder).as_posix()] = (path.read_bytes(), path.stat().st_mode & 0o100 != 0)
    info = f"trimtab-{words.version}.dist-info/"
    for path in pathlib.Path(words.licenses).iterdir():
        files[f"{info}licenses/{path.name}"] = (path.read_bytes(), False)
    readme = pathlib.Path(words.readme).read_text(encoding="utf-8")
    metadata = METADATA.format(version=words.version, extras=extras(words.cuda), readme=readme)
    wheel = f"Wheel-Version: 1.0\nGenerator: trimtab\nRoot-Is-Purelib: false\nTag: {words.tag}\n"
    files[info + "METADATA"] = (metadata.encode(), False)
    files[info + "WHEEL"] = (wheel.encode(), False)
    files[info + "entry_points.txt"] = (b"[console_scripts]\ntrimtab = trimtab.__main__:main\n", False)
    record = ""
    for name in sorted(files):
        digest = base64.urlsafe_b64encode(hashlib.sha256(files[name][0]).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(files[name][0])}\n"
    files[info + "RECORD"] = ((record + info + "RECORD,,\n").encode(), False)
    return files


def main():
    parser = argparse.ArgumentParser()
    for name in ("folder", "licenses", "out", "version", "tag", "time", "readme"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--cuda", default="")
    words = parser.parse_args()
    files = collect(words)
    moment = time.gmtime(max(int(words.time), 315532800))[:6]
    path = pathlib.Path(words.out, f"trimtab-{words.version}-{words.tag}.whl")
    # RECORD comes last, as its readers expect; a name sorts the same in every locale.
    names = sorted(files, key=lambda name: (name.endswith("/RECORD"), name))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in names:
            data, is_program = files[name]
            entry = zipfile.ZipInfo(name, moment)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if is_program else 0o100644) << 16
            archive.writestr(entry, data)
    print(f"{path} {path.stat().st_size} bytes, {sum(len(data) for data, _ in files.values())} unpacked")


main()
