"""The router as a process: a listening socket, uvicorn on uvloop, and a stop that loses nothing."""

import asyncio
import socket

import uvicorn
from starlette.types import ASGIApp

BACKLOG = 2048
KEEP_ALIVE_SECONDS = 30


def open_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes any that is free.

    TCP_NODELAY is inherited by every accepted connection: without it a small chunk waits up to 40 ms for
    the acknowledgement of the one before.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((host, port))
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def build_server(application: ASGIApp, stop_seconds: float) -> uvicorn.Server:
    """Return a server that on SIGTERM takes no more, waits for what is in flight, then ends."""
    config = uvicorn.Config(
        application,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="on",
        access_log=False,
        log_level="warning",
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(stop_seconds)),
    )
    return uvicorn.Server(config)


def run_server(application: ASGIApp, listener: socket.socket, stop_seconds: float) -> None:
    """Serve until SIGTERM or SIGINT."""
    server = build_server(application, stop_seconds)
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(server.serve(sockets=[listener]))
