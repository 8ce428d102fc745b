"""Whether a page of another site is behind a request that changes something.

Browsers send such requests for any page, with the credentials that their user once gave, and from inside the network.
They say where the page is from; curl, scripts and Connect's clients say nothing of the kind and are not concerned.
"""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import urlsplit

from heliograph.http.message import Refused, Request

HARMLESS = ("GET", "HEAD", "OPTIONS")
OWN_SITES = ("same-origin", "none")  # a page of ours, or a person who typed the address


def require_own(request: Request) -> None:
    """Raises Refused. What a proxy changed it must say (X-Forwarded-Host): no page of another site can."""
    if request.method in HARMLESS:
        return
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        own = site.lower() in OWN_SITES
    else:
        named = f"{request.headers.get('host', '')},{request.headers.get('x-forwarded-host', '')}"
        own = origin is None or _netloc(origin) in {one.strip().lower() for one in named.split(",") if one.strip()}
    if not own:
        why = "a page of another site may change nothing here; a proxy in between must hand on Host or X-Forwarded-Host"
        raise Refused(HTTPStatus.FORBIDDEN, why)


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()  # "" of `null`, which is any page in a sandbox
    except ValueError:
        return ""
