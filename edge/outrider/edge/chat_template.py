"""From messages to prompt ids with the target's own chat template. Text that a user typed never becomes a control id,
whatever it spells; ids are otherwise those of tokenizing the rendered text as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.sandbox

from outrider.edge.tokenizer import ControlSplitter, PlainTokenizer
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.text import is_text
from outrider.shared.vocabulary import Vocabulary

Message = Mapping[str, str]
ROLES = ("system", "user", "assistant", "tool")
# Names under which templates expect the text of a control token; a prompt that silently lacks one is another prompt.
_TOKEN_NAMES = frozenset({"bos_token", "eos_token", "pad_token", "unk_token"})
# More characters than any context has tokens.
_PRIVATE_USE = (*range(0xE000, 0xF8FF), *range(0xF0000, 0xFFFFE), *range(0x100000, 0x10FFFE))


class ChatTemplate:
    """Renders conversations for one tokenizer. Without a template messages are refused, plain prompts are not."""

    def __init__(self, tokenizer: PlainTokenizer, template: str) -> None:
        """Raises MODEL_UNSUPPORTED for a template that is no valid Jinja."""
        self._tokenizer = tokenizer
        self._splitter = ControlSplitter(tokenizer.vocabulary)
        self._template: jinja2.Template | None = None
        self._unknown_names: list[str] = []
        if template:
            environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
                trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
            )
            environment.filters["tojson"] = _to_json
            environment.globals |= {"raise_exception": _raise, "strftime_now": _strftime_now}
            environment.globals |= _token_texts(tokenizer.vocabulary)
            try:
                self._template = environment.from_string(template)
                names = jinja2.meta.find_undeclared_variables(environment.parse(template))
                self._unknown_names = sorted((names & _TOKEN_NAMES) - environment.globals.keys())
            except jinja2.TemplateError as error:
                raise OutriderError(Reason.MODEL_UNSUPPORTED, f"the chat template is not valid: {error}.") from None

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """Prompt ids of a conversation that ends with the turn to be answered.

        Raises USAGE for an unknown role or a missing text, MODEL_UNSUPPORTED where the template refuses.
        """
        checked = [_check_message(message) for message in messages]
        marker = _unused_character(message["content"] for message in checked)
        defused = [{**message, "content": self._splitter.defuse(message["content"], marker)} for message in checked]
        return self._encode(self._render(defused), marker)

    def plain_ids(self, text: str) -> list[int]:
        """Prompt ids of `text` as it is, without a template; the one control id is BOS, for models that expect it."""
        _check_text(text)
        vocabulary = self._tokenizer.vocabulary
        begin = [vocabulary.bos_id] if vocabulary.adds_bos and vocabulary.bos_id is not None else []
        return [*begin, *self._tokenizer.encode(text)]

    def _render(self, messages: list[dict[str, str]]) -> str:
        if self._template is None:
            raise OutriderError(Reason.MODEL_UNSUPPORTED, "the target has no chat template; give a plain prompt.")
        if self._unknown_names:
            names = ", ".join(self._unknown_names)
            raise OutriderError(Reason.MODEL_UNSUPPORTED, f"the chat template needs {names}, which the target lacks.")
        try:
            return self._template.render(messages=messages, add_generation_prompt=True, tools=None)
        except Exception as error:
            # A template is a program from elsewhere: besides Jinja's own errors it can raise any other.
            raise OutriderError(Reason.MODEL_UNSUPPORTED, f"the chat template refuses this: {error}.") from None

    def _encode(self, rendered: str, marker: str) -> list[int]:
        ids: list[int] = []
        for part in self._splitter.split(rendered):
            control = self._splitter.id_of_text.get(part)
            if control is not None:
                ids.append(control)
            else:
                ids.extend(self._tokenizer.encode(part.replace(marker, "")))
        return ids


def _token_texts(vocabulary: Vocabulary) -> dict[str, str]:
    """What templates call `bos_token` and `eos_token`; one that the model lacks stays out."""
    ids = {"bos_token": vocabulary.bos_id, "eos_token": vocabulary.eos_id}
    return {name: vocabulary.pieces[i].decode("utf-8", "replace") for name, i in ids.items() if i is not None}


def _check_message(message: Message) -> dict[str, str]:
    fields = message if isinstance(message, Mapping) else {}
    role, content = fields.get("role"), fields.get("content")
    if role not in ROLES or not isinstance(content, str):
        raise OutriderError(Reason.USAGE, f"a message needs a role out of {', '.join(ROLES)} and a text; got {role!r}.")
    _check_text(content)
    return {"role": role, "content": content}


def _check_text(text: str) -> None:
    if not is_text(text):
        raise OutriderError(Reason.USAGE, "the prompt is not valid Unicode text (UTF-8).")


def _unused_character(texts: Any) -> str:
    used = set().union(*texts)
    return next(chr(code) for code in _PRIVATE_USE if chr(code) not in used)


def _to_json(value: object, ensure_ascii: bool = False, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(layout: str) -> str:
    return datetime.now().strftime(layout)
