"""Answers as a broker would send them, by kio's writers."""

import io

from kio.serial import entity_writer


def framed(response) -> memoryview:
    """A response without its size, as the answer to request 7."""
    out = io.BytesIO()
    out.write((7).to_bytes(4, "big") + b"\0")  # correlation id, no tagged fields
    entity_writer(type(response))(out, response)
    return memoryview(out.getvalue())
