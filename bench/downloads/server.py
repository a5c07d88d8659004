"""A file server on loopback for bench/downloads/run: healthy, flaky as networks are, or with one fault for each file.
Knows ranges and entity tags.

    server.py FOLDER healthy|flaky|faults

Prints its port. GET /_stats answers with what it has sent and been asked since the last GET /_reset.
"""

import asyncio
import json
import os
import random
import socket
import sys

FOLDER, MODE = sys.argv[1], sys.argv[2]
# A piece of this size is handed to the kernel at once; while it is on its way, others get theirs.
PIECE = 256 * 1024
# A network: so many bytes a second for one connection of the flaky server.
FLAKY_RATE = 24 * 1024 * 1024

stats = {}
asked = {}
dice = random.Random(7)


def reset():
    stats.update(sent=0, requests=0, cut=0, refused=0, stalled=0)
    asked.clear()
    dice.seed(7)


def fate(n):
    """What happens to the n-th request for a file."""
    if MODE == "healthy":
        return "well"
    if n % 10 == 9:
        return "refused"
    if n % 25 == 12:
        return "stalled"
    return "cut" if n % 3 == 1 else "well"


async def read_request(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
    return lines[0].split(" ")[1], headers


async def serve(reader, writer):
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        while await answer(*await read_request(reader), writer):
            pass
    except (asyncio.IncompleteReadError, ConnectionError, OSError):
        pass
    except RuntimeError:
        # How asyncio says that whom it is sending a file to has gone.
        if not writer.transport.is_closing():
            raise
    writer.close()


async def answer(path, headers, writer):
    if path in ("/_stats", "/_reset"):
        if path == "/_reset":
            reset()
        body = json.dumps(stats).encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        return True
    n = stats["requests"]
    stats["requests"] += 1
    if MODE == "faults":
        return await answer_with_fault(path.strip("/"), headers, writer)
    what = fate(n)
    if what == "refused":
        stats["refused"] += 1
        writer.write(b"HTTP/1.1 503 Busy\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        return True
    with open(os.path.join(FOLDER, path.strip("/")), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        return await send_file(file, size, headers, what, writer)


async def send_file(file, size, headers, what, writer):
    tag = f'"{size:x}"'
    start = 0
    if "range" in headers and headers.get("if-range", tag) == tag:
        start = int(headers["range"].removeprefix("bytes=").split("-")[0])
    status = "206 Partial" if start else "200 OK"
    head = f"HTTP/1.1 {status}\r\netag: {tag}\r\naccept-ranges: bytes\r\ncontent-length: {size - start}\r\n"
    if start:
        head += f"content-range: bytes {start}-{size - 1}/{size}\r\n"
    writer.write((head + "\r\n").encode())
    await writer.drain()
    end = size
    if what != "well":
        stats[what] += 1
        end = start + int((size - start) * dice.uniform(0.2, 0.9))
    loop = asyncio.get_running_loop()
    while start < end:
        piece = min(PIECE, end - start)
        began = loop.time()
        sent = await loop.sendfile(writer.transport, file, start, piece)
        stats["sent"] += sent
        start += sent
        if MODE == "flaky":
            await asyncio.sleep(max(0, piece / FLAKY_RATE - (loop.time() - began)))
    if what == "stalled":
        await asyncio.sleep(60)
    return what == "well"


async def answer_with_fault(name, headers, writer):
    """What the name of the file begins with happens to its first request, or to its first continuation."""
    fault = name.split("-")[0]
    n = asked[name] = asked.get(name, -1) + 1
    with open(os.path.join(FOLDER, name), "rb") as file:
        content = file.read()
    size, tag = len(content), '"2"' if fault == "changed" and n else '"1"'
    start, end, announced = 0, size, size
    if "range" in headers and headers.get("if-range", tag) == tag:
        start = int(headers["range"].removeprefix("bytes=").split("-")[0])
    if start >= size:
        writer.write(b"HTTP/1.1 416 Beyond\r\ncontent-range: bytes */%d\r\ncontent-length: 0\r\n\r\n" % size)
        await writer.drain()
        return True
    if n == 0 and fault == "dropped":
        return False
    if n == 0 and fault == "busy":
        writer.write(b"HTTP/1.1 503 Busy\r\nretry-after: 2\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        return True
    if n == 0 and fault == "long":
        announced = size + 1000
    elif n == 0 and fault != "well":
        end = size // 2
        if fault == "changed":
            content = bytes(size)
    elif n == 1 and start and fault == "shifted":
        start -= 1 << 20
    await send_bytes(content, start, end, announced, tag, n == 0 and fault == "unended", writer)
    if n == 0 and fault == "stalled":
        await asyncio.sleep(60)
    return end == announced


async def send_bytes(content, start, end, announced, tag, is_chunked, writer):
    head = f"HTTP/1.1 {'206 Partial' if start else '200 OK'}\r\netag: {tag}\r\naccept-ranges: bytes\r\n"
    head += "transfer-encoding: chunked\r\n" if is_chunked else f"content-length: {announced - start}\r\n"
    if start:
        head += f"content-range: bytes {start}-{announced - 1}/{announced}\r\n"
    writer.write((head + "\r\n").encode())
    for at in range(start, end, PIECE):
        piece = content[at:min(at + PIECE, end)]
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if is_chunked else piece)
        await writer.drain()
        stats["sent"] += len(piece)
        await asyncio.sleep(len(piece) / FLAKY_RATE)


async def main():
    reset()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


asyncio.run(main())
