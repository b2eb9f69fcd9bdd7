"""Which replica a request goes to: one that read the same beginning, unless it has too much to do."""

from __future__ import annotations

import collections
import hashlib
import json
import random
from typing import Any, List, Mapping, Optional, Sequence

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from . import handles

# Bytes of a request's text that are one step of its path; a page of the engine's cache is 64 tokens.
BLOCK = 256
MOST_BLOCKS = 256
# What of a request comes first in its prompt, in this order.
PARTS = ("cache_salt", "tools", "system", "instructions", "prompt", "messages", "input")


def path_of(body: bytes, tenant: str = "") -> List[bytes]:
    """A hash for each block of what a request's prompt is made of, that of all before it included.

    Requests of other tenants have other paths from the first: servers keep their caches apart.
    """
    try:
        request = json.loads(body)
    except ValueError:
        return []
    if not isinstance(request, dict):
        return []
    text = json.dumps([request[part] for part in PARTS if request.get(part)]).encode()[:-1]
    hashed = hashlib.blake2b(tenant.encode(), digest_size=8)
    path = []
    for at in range(0, min(len(text) - BLOCK + 1, BLOCK * MOST_BLOCKS), BLOCK):
        hashed.update(text[at:at + BLOCK])
        path.append(hashed.copy().digest())
    return path


class PrefixTable:
    """Who was sent what: for each block of a path the replica that read it last."""

    def __init__(self, most_blocks: int = 200_000):
        self._most = most_blocks
        self._replica_of: "collections.OrderedDict[bytes, Any]" = collections.OrderedDict()

    def find(self, path: Sequence[bytes], live: Mapping[Any, Any]) -> Optional[Any]:
        """The live replica that has read most of it; None if there is none."""
        for block in reversed(path):
            replica = self._replica_of.get(block)
            if replica is not None and replica in live:
                return replica
        return None

    def add(self, path: Sequence[bytes], replica: Any) -> None:
        for block in reversed(path):  # beginnings are the last to go
            self._replica_of[block] = replica
            self._replica_of.move_to_end(block)
        while len(self._replica_of) > self._most:
            self._replica_of.popitem(last=False)

    def remove(self, replica: Any) -> None:
        for block in [block for block, there in self._replica_of.items() if there == replica]:
            del self._replica_of[block]


class PrefixRouter(RequestRouter):
    """For Ray Serve's `request_router_class`. Requests bring their path_of() as the key `path` of their argument.

    One that is new, or whose replica has `most_ahead` requests more than another, goes to who has the least to do;
    without `by_prefix` all do.
    """

    def initialize_state(self, most_ahead: float = 8, by_prefix: bool = True, **_: Any) -> None:
        self.table = PrefixTable()
        self.most_ahead = most_ahead
        self.by_prefix = by_prefix
        handles.ROUTERS[self._deployment_id.name] = self

    def _load(self, replica_id: ReplicaID) -> int:
        return self._replica_queue_len_cache.get(replica_id) or 0

    async def choose_replicas(self, candidate_replicas: List[RunningReplica],
                              pending_request: Optional[PendingRequest] = None) -> List[List[RunningReplica]]:
        if pending_request is None or not candidate_replicas:
            return [candidate_replicas] if candidate_replicas else []
        pending_request.routing_context.should_backoff = True
        live = {replica.replica_id: replica for replica in candidate_replicas}
        call = pending_request.args[0] if pending_request.args else {}
        wanted = call.get("replica")
        if wanted:  # that one or none
            return [[one] for one in candidate_replicas if one.replica_id.unique_id == wanted]
        by_load = sorted(candidate_replicas, key=lambda one: (self._load(one.replica_id), random.random()))
        known = self.table.find(call.get("path") or [], live)
        if known is not None and self._load(known) - self._load(by_load[0].replica_id) <= self.most_ahead:
            by_load = [live[known], *(one for one in by_load if one.replica_id != known)]
        # One after another: of several at once the least busy would be taken.
        return [[one] for one in by_load]

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        call = pending_request.args[0] if pending_request.args else {}
        if self.by_prefix and call.get("path"):
            self.table.add(call["path"], replica_id)

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        super().on_replica_actor_died(replica_id)
        self.table.remove(replica_id)
