"""A GGUF file with more metadata than another (the format: docs/formats.md names its source)."""

import struct

U32, F32, STRING = 4, 6, 8
ALIGNMENT = 32  # of the tensors' values, where the file says nothing else


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key, value):
    if isinstance(value, str):
        return text(key) + struct.pack("<I", STRING) + text(value)
    if isinstance(value, float):
        return text(key) + struct.pack("<If", F32, value)
    return text(key) + struct.pack("<II", U32, value)


def with_metadata(source, target, more):
    """Writes `source` to `target` with the entries of `more`, which it must not have yet. What is added is
    a multiple of the alignment long, so the tensors' values stay aligned."""
    data = source.read_bytes()
    magic, version, tensors, count = struct.unpack_from("<4sIQQ", data)
    assert (magic, version) == (b"GGUF", 3)
    added = b"".join(entry(key, value) for key, value in more.items())
    empty = len(entry("test.padding", ""))
    added += entry("test.padding", "x" * (-(len(added) + empty) % ALIGNMENT))
    target.write_bytes(struct.pack("<4sIQQ", magic, version, tensors, count + len(more) + 1) + added + data[24:])
    return target
