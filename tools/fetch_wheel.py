#!/usr/bin/env python3
"""Downloads one wheel from the Python package index, and checks that it is the one that is meant.

    python3 tools/fetch_wheel.py NAME VERSION SHA256 FOLDER

Prints the path of the wheel in FOLDER. One that is there already is taken. Where pip is installed it downloads, so
that its settings (an index of one's own, a proxy) count; without pip the file comes from https://pypi.org/simple, or
from the index that PIP_INDEX_URL names. Nothing is installed, and nothing in the wheel is run. Needs Python 3.8 or
later and nothing else.
SPDX-License-Identifier: Apache-2.0
"""
import hashlib
import html
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request

INDEX = "https://pypi.org/simple"


def digest(path):
    total = hashlib.sha256()
    with open(path, "rb") as file:
        for piece in iter(lambda: file.read(1 << 20), b""):
            total.update(piece)
    return total.hexdigest()


def found(folder, sha256):
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name.endswith(".whl") and digest(path) == sha256:
            return path
    return None


def has_pip():
    return subprocess.run([sys.executable, "-m", "pip", "--version"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode == 0


def with_pip(name, version, folder):
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest",
               folder, "%s==%s" % (name, version)]
    if subprocess.run(command, stdout=sys.stderr).returncode != 0:
        sys.exit("fetch_wheel: pip could not download %s %s" % (name, version))


def with_index(name, sha256, folder):
    """The index's page of a project is HTML: a link to each file, most with their hashes behind a '#'."""
    page = os.environ.get("PIP_INDEX_URL", INDEX).rstrip("/") + "/" + name + "/"
    with urllib.request.urlopen(page, timeout=60) as answer:
        links = re.findall(r'href="([^"]+)"', answer.read().decode("utf-8"))
        page = answer.geturl()
    urls = [urllib.parse.urljoin(page, html.unescape(link)) for link in links if "sha256=" + sha256 in link]
    if not urls:
        sys.exit("fetch_wheel: the index has no file of %s with SHA-256 %s" % (name, sha256))
    url = urllib.parse.urldefrag(urls[0]).url
    path = os.path.join(folder, urllib.parse.unquote(url.rsplit("/", 1)[1]))
    with urllib.request.urlopen(url, timeout=60) as answer, open(path + ".part", "wb") as file:
        shutil.copyfileobj(answer, file, 1 << 20)
    os.replace(path + ".part", path)


def main():
    if len(sys.argv) != 5:
        sys.exit("usage: fetch_wheel.py NAME VERSION SHA256 FOLDER")
    name, version, sha256, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    path = found(folder, sha256)
    if path is None:
        try:
            if has_pip():
                with_pip(name, version, folder)
            else:
                with_index(name, sha256, folder)
        except OSError as error:
            sys.exit("fetch_wheel: %s %s: %s" % (name, version, error))
        path = found(folder, sha256)
    if path is None:
        sys.exit("fetch_wheel: what came for %s %s is not the file with SHA-256 %s" % (name, version, sha256))
    print(path)


if __name__ == "__main__":
    main()
