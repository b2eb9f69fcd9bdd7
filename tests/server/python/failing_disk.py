"""A folder with one file whose disk can be made to fail: a FUSE file system in this process.

The kernel's protocol, as far as one file that is read needs it (linux/fuse.h). Root alone may mount it.
"""

import ctypes
import errno
import os
import struct
import threading

FORGET, BATCH_FORGET, INIT, LOOKUP, GETATTR, OPEN, READ, OPENDIR = 2, 42, 26, 1, 3, 14, 15, 27
ENDINGS = (18, 25, 29)  # of files, of descriptors, of folders
ROOT, FILE = 1, 2
DETACH = 2
NOSUID_NODEV = 6


class FailingDisk:
    """`path` reads like `source` until `fail_from` is a number: from that byte on, reads fail."""

    def __init__(self, folder, source):
        self.folder, self.fail_from = str(folder), None
        self.path = os.path.join(self.folder, "model.gguf")
        self._data = open(source, "rb")
        self._size = os.path.getsize(source)
        self._device = os.open("/dev/fuse", os.O_RDWR)
        self._libc = ctypes.CDLL(None, use_errno=True)
        options = f"fd={self._device},rootmode=40000,user_id=0,group_id=0"
        if self._libc.mount(b"aerie", self.folder.encode(), b"fuse", NOSUID_NODEV, options.encode()):
            error = ctypes.get_errno()
            self._end()
            raise OSError(error, os.strerror(error))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self):
        self._libc.umount2(self.folder.encode(), DETACH)
        self._thread.join(10)
        self._end()

    def _end(self):
        os.close(self._device)
        self._data.close()

    def _serve(self):
        while True:
            try:
                message = os.read(self._device, 1 << 20)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT):
                    continue
                return  # ENODEV: it is no longer mounted
            _, code, unique, node = struct.unpack_from("<IIQQ", message)
            if code in (FORGET, BATCH_FORGET):
                continue
            try:
                error, body = 0, self._answer(code, node, message[40:])
            except OSError as failure:
                error, body = -failure.errno, b""
            try:
                os.write(self._device, struct.pack("<IiQ", 16 + len(body), error, unique) + body)
            except OSError:
                continue  # who asked has gone

    def _attributes(self, node):
        mode, size = (0o100644, self._size) if node == FILE else (0o040755, 0)
        return struct.pack("<6Q10I", node, size, size // 512, 1, 1, 1, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def _answer(self, code, node, body):
        if code == INIT:
            return struct.pack("<IIIIHHIIHHI7I", 7, 31, 1 << 17, 0, 16, 12, 1 << 17, 1, 0, 0, 0, *[0] * 7)
        if code == LOOKUP:
            if body.rstrip(b"\0") != b"model.gguf":
                raise OSError(errno.ENOENT, "")
            return struct.pack("<QQQQII", FILE, 0, 60, 60, 0, 0) + self._attributes(FILE)
        if code == GETATTR:
            return struct.pack("<QII", 60, 0, 0) + self._attributes(node)
        if code in (OPEN, OPENDIR):
            return struct.pack("<QII", 0, 0, 0)
        if code == READ:
            offset, size = struct.unpack_from("<QI", body, 8)
            if self.fail_from is not None and offset + size > self.fail_from:
                raise OSError(errno.EIO, "")
            return os.pread(self._data.fileno(), size, offset)
        if code in ENDINGS:
            return b""
        raise OSError(errno.ENOSYS, "")
