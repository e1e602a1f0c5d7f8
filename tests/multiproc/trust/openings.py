"""What strangers send on their first connection to a port."""

import itertools
import struct


def endless(draw):
    """HTTP, TLS, ssh, random bytes, and lengths that somebody might believe, in turns."""
    http = b"GET / HTTP/1.1\r\nHost: kolo\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n"
    tls = bytes.fromhex("1603010200010001fc0303") + draw.randbytes(506)
    for i in itertools.count():
        kind = i % 9
        if kind == 0:
            yield http
        elif kind == 1:
            yield tls
        elif kind == 2:
            yield b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n"
        elif kind == 3:
            yield draw.randbytes(draw.randrange(4097))
        elif kind == 4:
            yield draw.randbytes(draw.randrange(8))
        else:  # a length field, in both byte orders, with some bytes behind it
            length = (0, 2**31 - 1, 2**32 - 1, 2**63)[kind - 5]
            width = "Q" if length > 2**32 else "I"
            order = ("<", ">")[i % 2]
            yield struct.pack(order + width, length) + draw.randbytes(draw.randrange(64))
