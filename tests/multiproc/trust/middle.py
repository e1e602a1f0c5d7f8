"""Somebody on the path: every TCP connection of this network namespace is turned to a relay, which
records what passes and may change it. Needs a namespace of its own, and nft."""

import asyncio
import shutil
import socket
import struct
import subprocess
import threading

import job as kit

MARK = 7  # of connections that are not turned aside
PORT = 19
RECORDED_BYTES = 1 << 20
SO_ORIGINAL_DST = 80


def available():
    return shutil.which("nft") is not None


def connect_aside(address):
    """A connection that does not pass the relay."""
    sock = socket.socket()
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, MARK)
        sock.connect(address)
    except OSError:
        sock.close()
        raise
    return sock


class Connection:
    """One that passed: what both sides sent (up: from who connected), and to where."""

    def __init__(self, target):
        self.target = target
        self.up = bytearray()
        self.down = bytearray()

    def claim(self):
        """(role, stream, from, to) of its Hello; None before it has come."""
        if len(self.up) < kit.HELLO_BYTES:
            return None
        _, _, role, stream, rank, to = struct.unpack_from("<IIIIii", self.up)
        return role, stream, rank, to

    def frames(self):
        """The whole frames that went up, behind Hello and proof."""
        found, at = [], kit.HELLO_BYTES + 32
        while at + 32 <= len(self.up):
            end = at + 32 + struct.unpack_from("<I", self.up, at)[0]
            if end > len(self.up):
                break
            found.append(bytes(self.up[at:end]))
            at = end
        return found


class Middle:
    """`change(connection, bytes)` gets all that goes up, piece by piece, before it is recorded, and
    returns what goes on instead."""

    def __init__(self, change=None):
        self.connections = []
        self.change = change or (lambda connection, data: data)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        asyncio.run_coroutine_threadsafe(self.listen(), self.loop).result(5)
        rules = ("table ip middle { chain out { type nat hook output priority -100; "
                 f"meta mark != {MARK} ip protocol tcp redirect to :{PORT}; }}; }}")
        subprocess.run(["nft", rules], check=True)
        return self

    def __exit__(self, *_):
        subprocess.run(["nft", "delete table ip middle"], check=True)
        asyncio.run_coroutine_threadsafe(self.stop(), self.loop).result(5)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    async def listen(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", PORT, backlog=1000)

    async def stop(self):
        self.server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def serve(self, reader, writer):
        raw = writer.get_extra_info("socket").getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16)
        port, packed = struct.unpack_from("!2xH4s", raw)
        connection = Connection((socket.inet_ntoa(packed), port))
        sock = socket.socket()
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, MARK)
            await self.loop.sock_connect(sock, connection.target)
            far_reader, far_writer = await asyncio.open_connection(sock=sock)
        except OSError:
            sock.close()
            writer.transport.abort()
            return
        self.connections.append(connection)

        async def relay(source, sink, record, change):
            try:
                while data := await source.read(1 << 16):
                    changed = change(connection, data)
                    if len(record) < RECORDED_BYTES:
                        record += data
                    sink.write(changed)
                    await sink.drain()
                sink.write_eof()
            except (OSError, asyncio.CancelledError):
                sink.transport.abort()

        await asyncio.gather(
            relay(reader, far_writer, connection.up, self.change),
            relay(far_reader, writer, connection.down, lambda _, data: data))
        writer.close()
        far_writer.close()

    def of_role(self, role):
        return [made for made in self.connections if made.claim() and made.claim()[0] == role]


def flip_at(role, offset, bit=0):
    """A change: one bit of the first connection of that role, `offset` bytes up its stream."""
    chosen = []

    def change(connection, data):
        begin = len(connection.up)
        if not begin <= offset < begin + len(data):
            return data
        head = (bytes(connection.up) + data)[:12]
        if len(head) < 12 or struct.unpack_from("<I", head, 8)[0] != role or chosen:
            return data
        chosen.append(connection)
        changed = bytearray(data)
        changed[offset - begin] ^= 1 << bit
        return bytes(changed)

    return change


def swap_frames(number):
    """A change: frames `number` and the next of the first control connection change places."""
    held = {"connection": None, "bytes": b"", "frames": 0, "kept": b"", "done": False}

    def change(connection, data):
        if held["connection"] is None:
            head = (bytes(connection.up) + data)[:12]
            if len(head) < 12 or struct.unpack_from("<I", head, 8)[0] != kit.CONTROL:
                return data
            held["connection"] = connection
        if connection is not held["connection"] or held["done"]:
            return data
        begin, out = len(connection.up), b""
        greeting = max(0, kit.HELLO_BYTES + 32 - begin)
        out, held["bytes"] = data[:greeting], held["bytes"] + data[greeting:]
        while len(held["bytes"]) >= 32 and not held["done"]:
            end = 32 + struct.unpack_from("<I", held["bytes"])[0]
            if len(held["bytes"]) < end:
                break
            frame, held["bytes"] = held["bytes"][:end], held["bytes"][end:]
            if held["frames"] == number:
                held["kept"] = frame
            elif held["frames"] == number + 1:
                out += frame + held["kept"] + held["bytes"]
                held["done"] = True
            else:
                out += frame
            held["frames"] += 1
        return out

    return change
