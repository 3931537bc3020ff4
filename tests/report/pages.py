"""Reads the data of a page, as the page's script does."""

import base64
import json
import re
import zlib

_BLOCK = re.compile(r'<script type="application/octet-stream" id="data-(\d+)">([A-Za-z0-9+/=]*)</script>')


def blocks_of(page: str) -> list:
    """Return the data of a page: what it shows at once, then what it opens on demand."""
    found = _BLOCK.findall(page)
    assert [int(number) for number, _ in found] == list(range(len(found)))
    return [json.loads(zlib.decompress(base64.b64decode(content))) for _, content in found]


def data_of(page: str) -> dict:
    """Return what a page shows at once."""
    return blocks_of(page)[0]
