"""What a link is like. `measure_link.py ADDRESS` answers there, `measure_link.py ADDRESS ask` asks it once.

Prints microseconds there and back of a small datagram, a median, and Gbit/s of a TCP connection once its window is
as large as it becomes.
"""

import socket
import statistics
import sys
import time

PORT = 4711
ROUNDS = 101
WARM_SECONDS, SECONDS = 0.8, 1.2


def answer(address):
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind((address, PORT))
    stream = socket.create_server((address, PORT))
    print("listening", flush=True)
    for _ in range(ROUNDS):
        packet, sender = datagrams.recvfrom(100)
        datagrams.sendto(packet, sender)
    connection = stream.accept()[0]
    memory = bytearray(1 << 20)
    begin, counted = time.monotonic(), None
    total = 0
    while got := connection.recv_into(memory):
        total += got
        now = time.monotonic()
        if counted is None and now - begin > WARM_SECONDS:
            counted = now, total
    connection.sendall(repr((total - counted[1]) * 8e-9 / (now - counted[0])).encode())


def ask(address):
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    taken = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        datagrams.sendto(bytes(56), (address, PORT))
        datagrams.recv(100)
        taken.append(time.perf_counter() - begin)
    connection = socket.create_connection((address, PORT))
    end = time.monotonic() + WARM_SECONDS + SECONDS
    while time.monotonic() < end:
        connection.sendall(bytes(1 << 20))
    connection.shutdown(socket.SHUT_WR)
    print(statistics.median(taken) * 1e6, connection.recv(100).decode())


if __name__ == "__main__":
    (ask if sys.argv[2:] else answer)(sys.argv[1])
