"""Prompts in all the forms that are taken: texts, token ids, messages, and lists of these."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

Message = Dict[str, Any]
Prompt = Union[str, Sequence[int], Dict[str, Any], Sequence[Message]]


def _is_message(one: Any) -> bool:
    return isinstance(one, dict) and "role" in one


def is_single(prompts: Any) -> bool:
    """Whether this is one prompt rather than a list of them."""
    if isinstance(prompts, (str, dict)):
        return True
    first = next(iter(prompts), None)
    return isinstance(first, int) or _is_message(first)


def text_of_content(content: Any) -> str:
    """A message's content, which may be a list of text parts as OpenAI has it."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    texts = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and part.get("type", "text") == "text":
            texts.append(part.get("text", ""))
        else:
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise ValueError(f"content of type {kind!r}: a message holds text alone")
    return "".join(texts)


def _template_message(message: Any) -> Message:
    if not _is_message(message):
        raise TypeError(f"a message is a dict with role and content, not {message!r}")
    out = {**message, "content": text_of_content(message.get("content"))}
    if message.get("tool_calls"):
        out["tool_calls"] = [_template_call(call) for call in message["tool_calls"]]
    return out


def _template_call(call: Any) -> Any:
    """Templates go through the arguments of a call, which are a text in a reply."""
    try:
        arguments = json.loads(call["function"]["arguments"])
    except (TypeError, KeyError, ValueError):
        return call
    return {**call, "function": {**call["function"], "arguments": arguments}} if isinstance(arguments, dict) else call


def render_chat(engine: Any, messages: Sequence[Message], add_generation_prompt: bool = True,
                tools: Optional[Sequence[Dict[str, Any]]] = None, **variables: Any) -> str:
    """The prompt that the model's template makes of messages. TypeError or ValueError for what is no message with
    text, an AerieError where there is no template or it refuses them."""
    variables["messages"] = [_template_message(message) for message in messages]
    variables["add_generation_prompt"] = add_generation_prompt
    if tools is not None:
        variables["tools"] = list(tools)
    return engine.render_chat_template(json.dumps(variables, ensure_ascii=False))


def encode(engine: Any, prompt: Prompt) -> Tuple[Optional[str], List[int]]:
    """(text, token ids) of one prompt; the text is None where ids were given."""
    if isinstance(prompt, dict) and not _is_message(prompt):
        if "prompt_token_ids" in prompt:
            return prompt.get("prompt"), [int(one) for one in prompt["prompt_token_ids"]]
        if "prompt" not in prompt:
            raise ValueError(f"a prompt as a dict has prompt or prompt_token_ids, not {', '.join(prompt)}")
        prompt = prompt["prompt"]
    if isinstance(prompt, str):
        return prompt, engine.tokenize(prompt, True, True)
    if isinstance(prompt, dict):
        prompt = [prompt]
    items: List[Any] = list(prompt)
    if items and _is_message(items[0]):
        text = render_chat(engine, items)
        return text, engine.tokenize(text, True, True)
    if not all(isinstance(one, int) for one in items):
        raise TypeError("a prompt is a text, a list of token ids, or a list of messages")
    return None, items
