"""OpenAI's shapes of replies, as llama-cpp-python gives them."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from .outputs import CompletionOutput, Logprob, RequestOutput, StreamChunk

Tokens = Optional[List[Dict[int, Logprob]]]


def _usage(output: RequestOutput) -> Dict[str, int]:
    prompt, generated = len(output.prompt_token_ids), len(output.outputs[0].token_ids)
    return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}


def _speculation(output: CompletionOutput) -> Dict[str, Any]:
    stats = output.speculation
    return {"drafted_tokens": stats.drafted_tokens, "accepted_tokens": stats.accepted_tokens,
            "mean_accepted_length": stats.mean_accepted_length}


def _completion_logprobs(tokens: Tokens, offset: int) -> Optional[Dict[str, List[Any]]]:
    if tokens is None:
        return None
    out: Dict[str, List[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for entry in tokens:
        chosen = next(iter(entry.values()))
        out["tokens"].append(chosen.decoded_token)
        out["token_logprobs"].append(chosen.logprob)
        out["top_logprobs"].append({one.decoded_token: one.logprob for one in entry.values()})
        out["text_offset"].append(offset)
        offset += len(chosen.decoded_token or "")
    return out


def _chat_logprobs(tokens: Tokens) -> Optional[Dict[str, Any]]:
    if tokens is None:
        return None

    def shown(one: Logprob) -> Dict[str, Any]:
        text = one.decoded_token or ""
        return {"token": text, "logprob": one.logprob, "bytes": list(text.encode())}

    content = []
    for entry in tokens:
        chosen = next(iter(entry.values()))
        tops = [shown(one) for one in entry.values() if one.rank is not None]
        content.append({**shown(chosen), "top_logprobs": tops})
    return {"content": content, "refusal": None}


def completion_reply(head: Dict[str, Any], output: RequestOutput, echo: str) -> Dict[str, Any]:
    reply = output.outputs[0]
    choice = {"text": echo + reply.text, "index": 0, "logprobs": _completion_logprobs(reply.logprobs, len(echo)),
              "finish_reason": reply.finish_reason}
    return {**head, "choices": [choice], "usage": _usage(output), "speculation": _speculation(reply)}


def completion_chunk(head: Dict[str, Any], chunk: StreamChunk, echo: str) -> Dict[str, Any]:
    choice = {"text": echo + chunk.text, "index": 0, "logprobs": _completion_logprobs(chunk.logprobs, 0),
              "finish_reason": chunk.finish_reason}
    return {**head, "choices": [choice]}


def chat_reply(head: Dict[str, Any], output: RequestOutput) -> Dict[str, Any]:
    reply = output.outputs[0]
    message = {"role": "assistant", "content": reply.content}
    if reply.reasoning_content:
        message["reasoning_content"] = reply.reasoning_content
    choice = {"index": 0, "message": message,
              "logprobs": _chat_logprobs(reply.logprobs), "finish_reason": reply.finish_reason}
    return {**head, "choices": [choice], "usage": _usage(output), "speculation": _speculation(reply)}


def chat_chunk(head: Dict[str, Any], chunk: Optional[StreamChunk]) -> Dict[str, Any]:
    """The first one, with the role alone, where `chunk` is None."""
    if chunk is None:
        choice: Dict[str, Any] = {"index": 0, "delta": {"role": "assistant"}, "logprobs": None, "finish_reason": None}
    else:
        delta = {"content": chunk.text} if chunk.text or chunk.finish_reason is None else {}
        choice = {"index": 0, "delta": delta, "logprobs": _chat_logprobs(chunk.logprobs),
                  "finish_reason": chunk.finish_reason}
    return {**head, "choices": [choice]}
