"""The Ray Serve application: replicas that run `aerie serve` each, and the front that hands requests on to them.

The front chooses a replica by what it has read (prefix_router.py) and asks another one if that ends before it
has said anything. Ray counts what runs and waits, and adds and takes away replicas by that.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from typing import Any, AsyncIterator, Dict, List, Mapping, Optional, Tuple

import aiohttp
import yarl
from ray import serve
from ray.exceptions import RayActorError
from ray.serve.config import AutoscalingConfig, RequestRouterConfig
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from .fleet_metrics import merged_metrics
from .handles import ROUTERS
from .local_server import LocalServer
from .prefix_router import PrefixRouter, path_of
from .settings import Settings, read_settings

Call = Dict[str, Any]  # what a replica is asked
Head = Dict[str, Any]  # "status" and "headers" of its answer

_LOG = logging.getLogger("ray.serve")

# Of one connection, not of what is said over it.
_HOP_BY_HOP = {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
_ASKED = _HOP_BY_HOP | {"content-length", "expect", "x-forwarded-for"}
_ANSWERED = _HOP_BY_HOP | {"date", "server", "x-request-id"}  # Ray adds its own, which the server took over
_STREAMS = ("text/event-stream", "application/x-ndjson")


class ReplicaLost(Exception):
    """The server of a replica ended in the middle of an answer."""


class Engine:
    """A replica: `aerie serve` on a loopback port of its node, and requests to it."""

    def __init__(self, settings: Settings):
        self._drain_seconds = settings.drain_seconds
        command = [settings.program, "serve", "-m", settings.model, "--threads", str(settings.threads),
                   "--trust-proxy", "127.0.0.1", *settings.flags]
        self._server = LocalServer(command, settings.start_seconds, self._on_server_end)
        self._session: Optional[aiohttp.ClientSession] = None

    @staticmethod
    def _on_server_end(what: str) -> None:
        # So that Ray knows at once, sends nothing more here and starts another.
        _LOG.error("%s", what)
        os._exit(1)

    async def answer(self, call: Call) -> AsyncIterator[Any]:
        """A Head, then the body in pieces as they come. Leaving it early ends the request."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None), connector=aiohttp.TCPConnector(limit=0),
                auto_decompress=False, skip_auto_headers=("User-Agent", "Accept-Encoding", "Content-Type"))
        try:
            async with self._session.request(call["method"], yarl.URL(self._server.url + call["target"], encoded=True),
                                             data=call["body"] or None, headers=call["headers"],
                                             allow_redirects=False) as answer:
                yield {"status": answer.status, "headers": list(answer.headers.items())}
                async for piece in answer.content.iter_any():
                    yield piece
        except aiohttp.ClientError as error:
            raise ReplicaLost(f"{type(error).__name__}: {error}") from None

    def check_health(self) -> None:
        if not self._server.alive():
            raise RuntimeError("aerie serve has ended")

    def __del__(self) -> None:
        server = getattr(self, "_server", None)
        if server:
            server.stop(self._drain_seconds)


def _failure_event(path: str, message: str) -> bytes:
    """How a stream that goes no further says so, in the form that the API at this path has for it."""
    error = {"message": message, "type": "server_error", "code": "replica_lost", "param": None}
    if path.startswith("/v1/messages"):
        said = {"type": "error", "error": {"type": "api_error", "message": message}}
        return f"event: error\ndata: {json.dumps(said)}\n\n".encode()
    if path.startswith("/v1/responses"):
        return f"event: error\ndata: {json.dumps({'type': 'error', **error})}\n\n".encode()
    if path.startswith("/api/"):
        return json.dumps({"error": message}).encode() + b"\n"
    return f"data: {json.dumps({'error': error})}\n\n".encode()


def _headers(given: List[Tuple[str, str]], without: set) -> List[Tuple[str, str]]:
    return [(name, value) for name, value in given if name.lower() not in without]


class Front:
    """What Ray's proxy asks: hands each request on to a replica, and to another if that is lost."""

    def __init__(self, engine: Any, retries: int):
        self._engine = engine.options(stream=True)
        self._retries = retries

    async def __call__(self, request: Request) -> Response:
        path = request.url.path
        root = request.scope.get("root_path", "")
        if root and path.startswith(root):
            path = path[len(root):] or "/"
        call = await self._call_of(request, path)
        return await (self._metrics(call) if path == "/metrics" else self._hand_on(path, call))

    @staticmethod
    async def _call_of(request: Request, path: str) -> Call:
        peer = request.client.host if request.client else ""
        through = request.headers.get("x-forwarded-for")
        headers = _headers([(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw],
                           _ASKED)
        headers.append(("X-Forwarded-For", ", ".join(filter(None, [through, peer]))))
        body = await request.body()
        key = request.headers.get("authorization") or request.headers.get("x-api-key")
        tenant = "\n".join([key or peer, request.headers.get("x-aerie-tenant", "")])
        query = request.url.query
        return {"method": request.method, "target": path + (f"?{query}" if query else ""), "headers": headers,
                "body": body, "path": path_of(body, tenant) if request.method == "POST" else []}

    async def _begin(self, call: Call) -> Tuple[Any, Head, bytes]:
        """An answer that has begun: of a stream the first piece is there, of others all of it."""
        last: Optional[Exception] = None
        for attempt in range(self._retries + 1):
            answer = self._engine.answer.remote(call)
            try:
                head = await answer.__anext__()
                is_stream = any(name.lower() == "content-type" and value.startswith(_STREAMS)
                                for name, value in head["headers"])
                pieces = []
                async for piece in answer:
                    pieces.append(piece)
                    if is_stream:
                        break
                return (answer if is_stream else None), head, b"".join(pieces)
            except (RayActorError, ReplicaLost) as error:
                last = error
                _LOG.warning("a replica was lost with a request of which nothing was said yet (try %d): %s",
                             attempt + 1, type(error).__name__)
                await asyncio.sleep(0.05 * attempt)
            except asyncio.CancelledError:
                answer.cancel()
                raise
        raise ReplicaLost(f"{self._retries + 1} replicas were lost with this request: {last}")

    async def _hand_on(self, path: str, call: Call) -> Response:
        try:
            answer, head, body = await self._begin(call)
        except ReplicaLost as error:
            said = {"error": {"message": str(error), "type": "server_error", "code": "replica_lost", "param": None}}
            return Response(json.dumps(said), 502, media_type="application/json")
        if answer is None:
            made = Response(body, head["status"])
            without = _ANSWERED | {"content-length"}
        else:
            made = StreamingResponse(self._stream(path, answer, body), head["status"])
            without = _ANSWERED
        kept = [(name.lower().encode("latin-1"), value.encode("latin-1"))
                for name, value in _headers(head["headers"], without)]
        made.raw_headers = kept + [one for one in made.raw_headers if one[0] == b"content-length"]
        return made

    @staticmethod
    async def _stream(path: str, answer: Any, first: bytes) -> AsyncIterator[bytes]:
        yield first
        try:
            async for piece in answer:
                yield piece
        except (RayActorError, ReplicaLost) as error:
            _LOG.warning("a replica was lost in the middle of a stream: %s", type(error).__name__)
            yield _failure_event(path, "the replica that wrote this was lost: what came before stands, and is not all")
        except (asyncio.CancelledError, GeneratorExit):
            answer.cancel()
            raise

    async def _metrics(self, call: Call) -> Response:
        """Those of all replicas, told apart by the label `replica`."""
        _, head, body = await self._begin(call)
        if head["status"] != 200:
            return Response(body, head["status"], media_type="application/json")

        async def page_of(replica: str) -> Optional[Tuple[str, str]]:
            try:
                _, of_one, page = await asyncio.wait_for(self._begin({**call, "replica": replica}), 10)
            except (ReplicaLost, asyncio.TimeoutError):
                return None  # it has just ended
            return (replica, page.decode()) if of_one["status"] == 200 else None

        router = ROUTERS[self._engine.deployment_name]
        replicas = sorted(replica.unique_id for replica in list(router.curr_replicas))
        # One after another: Ray tells the calls of one request that wait for a replica not apart.
        pages = [await page_of(replica) for replica in replicas]
        return Response(merged_metrics([page for page in pages if page]), media_type="text/plain; version=0.0.4")


def _application(settings: Settings) -> serve.Application:
    routing = RequestRouterConfig(
        request_router_class=PrefixRouter,
        request_router_kwargs={"most_ahead": settings.target_requests, "by_prefix": settings.routing == "prefix"})
    scaling = AutoscalingConfig(
        min_replicas=settings.min_replicas, max_replicas=settings.max_replicas,
        target_ongoing_requests=settings.target_requests, upscale_delay_s=settings.upscale_seconds,
        downscale_delay_s=settings.downscale_seconds, look_back_period_s=max(1, min(30, settings.upscale_seconds)))
    draining = {"graceful_shutdown_timeout_s": settings.drain_seconds, "graceful_shutdown_wait_loop_s": 1}
    engine = serve.deployment(
        name="Engine", autoscaling_config=scaling, max_ongoing_requests=settings.requests_at_once(),
        request_router_config=routing, ray_actor_options={"num_cpus": settings.threads}, health_check_period_s=5,
        **draining)(Engine)
    # With the head, whose loss is the cluster's anyhow: what ran on a machine that is lost can be asked for again
    # only by a front that is not lost with it.
    front = serve.deployment(
        name="Aerie", num_replicas=settings.fronts, max_ongoing_requests=10_000,
        ray_actor_options={"num_cpus": 0, "resources": {"node:__internal_head__": 0.001}}, **draining)(Front)
    return front.bind(engine.bind(settings), settings.retries)


def build(**settings: Any) -> serve.Application:
    """For serve.run(), by the names of Settings; what is not given is taken from the environment.

    Raises ValueError, which names what is wrong.
    """
    return _application(read_settings(settings))


def app(args: Mapping[str, Any]) -> serve.Application:
    """For `serve run aerie.ray:app NAME=VALUE...` and the `args` of a YAML file."""
    return _application(read_settings(args))
