"""What the browser loads. It ships in the package, needs no build step and no other host."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

STATIC = Path(__file__).parent / "static"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types dompurify",
    ]
)
"""Text that a model wrote can't bring a script, a style, a frame or an image along; and no code
of the page's own can turn a string into markup unless it went through the sanitiser."""
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class File:
    plain: bytes
    packed: bytes
    kind: str
    tag: str


@cache
def shipped() -> dict[str, File]:
    """Every file of the page by its path, read and compressed once."""
    found: dict[str, File] = {}
    for path in sorted(STATIC.rglob("*")):
        if path.suffix in TYPES:
            body = path.read_bytes()
            tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
            packed = gzip.compress(body, 6, mtime=0)
            name = path.relative_to(STATIC).as_posix()
            found[name] = File(body, packed, TYPES[path.suffix], tag)
    return found


async def serve_file(request: Request) -> Response:
    file = shipped().get(request.path_params.get("path", "index.html"))
    if file is None:
        return Response("not found", 404, HEADERS, "text/plain")
    headers = {**HEADERS, "etag": file.tag, "vary": "accept-encoding"}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["content-encoding"] = "gzip"
        return Response(file.packed, 200, headers, file.kind)
    return Response(file.plain, 200, headers, file.kind)
