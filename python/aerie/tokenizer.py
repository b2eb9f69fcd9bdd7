"""The model's tokenizer."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Union

from .prompts import Message, render_chat


class Tokenizer:
    """Text to token ids and back, with the method names of Hugging Face's tokenizers. Thread-safe."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._info = engine.info()

    def encode(self, text: str, add_special_tokens: bool = True, parse_special: bool = True) -> List[int]:
        """The ids of a text. add_special_tokens: BOS and EOS where the model asks for them. parse_special:
        "<|im_start|>" in the text becomes that token."""
        return self._engine.tokenize(text, add_special_tokens, parse_special)

    def decode(self, token_ids: Union[int, Sequence[int]]) -> str:
        """The text of token ids, as a reply has it: control tokens are left out."""
        ids = [token_ids] if isinstance(token_ids, int) else list(token_ids)
        return self._engine.detokenize(ids).decode("utf-8", "replace")

    def apply_chat_template(self, conversation: Sequence[Message], tools: Optional[Sequence[Dict[str, Any]]] = None,
                            tokenize: bool = True, add_generation_prompt: bool = False,
                            **variables: Any) -> Union[str, List[int]]:
        """The prompt that the model's template makes of messages, as ids or as text. variables: what else the
        template speaks of, such as enable_thinking. UnsupportedError or NotFoundError if there is no template that
        can be rendered, InvalidArgumentError if it refuses these."""
        text = render_chat(self._engine, conversation, add_generation_prompt, tools, **variables)
        return self.encode(text) if tokenize else text

    @property
    def bos_token_id(self) -> Optional[int]:
        return self._info.bos if self._info.bos >= 0 else None

    @property
    def eos_token_id(self) -> Optional[int]:
        return self._info.eos if self._info.eos >= 0 else None

    @property
    def vocab_size(self) -> int:
        return self._info.vocabulary

    def __len__(self) -> int:
        return self._info.vocabulary
