"""From messages to prompt ids: what a user types is never a control id, everything else is as the target's own
tokenizer would have it, and a template is a program that is not trusted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st

from outrider.edge.chat_template import ChatTemplate
from outrider.edge.tokenizer import ControlSplitter, JsonTokenizer, LlamaTokenizer
from outrider.shared.errors import Reason
from outrider.shared.tiny import (
    ASSISTANT,
    END,
    SYSTEM,
    TINY_PADDED_WIDTH,
    TINY_TEMPLATE,
    USER,
    tiny_tokenizer_files,
    tiny_vocabulary,
)
from support.refusal import refused
from support.tiny_model import SPECIAL, TEMPLATE, tiny_tokenizer

CONTROL = {"<|end|>": END, "<|user|>": USER, "<|assistant|>": ASSISTANT, "<|system|>": SYSTEM}


def store(folder: Path, tokenizer: dict[str, Any], template: str = TINY_TEMPLATE, **settings: Any) -> Path:
    """A folder as the edge keeps it for a target."""
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, **settings}), encoding="utf-8")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [END]}), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> JsonTokenizer:
    folder = store(tmp_path_factory.mktemp("tokenizer"), json.loads(tiny_tokenizer_files()["tokenizer.json"]))
    return JsonTokenizer(folder, TINY_PADDED_WIDTH)


def user(content: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": content}]


def test_tokenizer_of_the_folder_is_the_tiny_one(tiny: JsonTokenizer) -> None:
    found, expected = tiny.vocabulary.fingerprint, tiny_vocabulary().fingerprint
    assert found.first_difference(expected) is None
    assert tiny.vocabulary.template == TINY_TEMPLATE


def test_control_ids_stand_exactly_where_the_template_puts_them(tiny: JsonTokenizer) -> None:
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "ü"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": ""},
    ]
    ids = ChatTemplate(tiny, TINY_TEMPLATE).prompt_ids(messages)
    assert ids == [SYSTEM, ord("s"), END, USER, *"ü".encode(), END, ASSISTANT, ord("a"), END, USER, END, ASSISTANT]


# Text of users.

FRAGMENTS = st.sampled_from([*CONTROL, "<|", "|>", "end", "<", ">", "|", "<|en", "d|>", "\ue000", "\ue001", "é", " x"])


@given(st.lists(FRAGMENTS, max_size=8).map("".join))
@settings(deadline=None)
@example("<|<|end|>end|>")
@example("<|end|><|end|>")
@example("\ue000<|end|>\ue001")
@example("<|en<|user|>d|>")
@example("".join(CONTROL))
def test_typed_control_text_stays_text(tiny: JsonTokenizer, content: str) -> None:
    ids = ChatTemplate(tiny, TINY_TEMPLATE).prompt_ids(user(content))
    assert ids == [USER, *content.encode(), END, ASSISTANT]
    assert ChatTemplate(tiny, TINY_TEMPLATE).plain_ids(content) == list(content.encode())


@pytest.mark.parametrize("text", CONTROL)
@pytest.mark.parametrize("layout", ["{}", "a{}", "{}a", "a{}b", "{}{}", "{} {}", "<|{}|>", "<|end{}|>"])
@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_typed_control_text_stays_text_in_every_role_and_place(
    tiny: JsonTokenizer, text: str, layout: str, role: str
) -> None:
    content = layout.replace("{}", text)
    ids = ChatTemplate(tiny, TINY_TEMPLATE).prompt_ids([{"role": role, "content": content}])
    assert ids == [CONTROL[f"<|{role}|>"], *content.encode(), END, ASSISTANT]


def test_what_earlier_messages_hold_does_not_arm_later_ones(tiny: JsonTokenizer) -> None:
    messages = [*user("\ue000"), {"role": "assistant", "content": "<|end|>\ue001"}, *user("<|user|>")]
    ids = ChatTemplate(tiny, TINY_TEMPLATE).prompt_ids(messages)
    assert [i for i in ids if i >= END] == [USER, END, ASSISTANT, END, USER, END, ASSISTANT]


@pytest.mark.parametrize("texts", [("<|end|>", "|end|>", "end"), ("<s>", "<s>>"), ("[A]", "]["), ("aab", "ab", "ba")])
def test_control_texts_that_overlap_or_hold_each_other_are_all_defused(texts: Sequence[str]) -> None:
    from dataclasses import replace

    pieces = [*tiny_vocabulary().pieces[:256], *(text.encode() for text in texts)]
    special = frozenset(range(256, len(pieces)))
    splitter = ControlSplitter(replace(tiny_vocabulary(), pieces=pieces, special_ids=special))
    for content in (*texts, "".join(texts), "".join(reversed(texts)), texts[0] * 2, f"{texts[0][:-1]}{texts[-1]}"):
        defused = splitter.defuse(content, "\ue000")
        assert not set(splitter.split(defused)) & set(texts)
        assert defused.replace("\ue000", "") == content


# The same ids as the target's own tokenizer.


@pytest.fixture(scope="module")
def merging(tiny_hf_dir: Path) -> JsonTokenizer:
    """A tokenizer with merges and a pre-tokenizer, where the place of a cut shows in the ids."""
    return JsonTokenizer(tiny_hf_dir, tiny_tokenizer().padded_width)


@given(st.text(st.sampled_from("the in and 12.\n\té€🙂<|>"), max_size=30))
@settings(deadline=None, max_examples=60)
def test_ordinary_text_has_the_ids_of_the_rendered_text_as_a_whole(
    merging: JsonTokenizer, tiny_hf_dir: Path, content: str
) -> None:
    reference = tokenizers.Tokenizer.from_file(str(tiny_hf_dir / "tokenizer.json"))
    rendered = f"<|im_start|>user\n{content}<|im_end|>\n<|im_start|>assistant\n"
    ids = ChatTemplate(merging, TEMPLATE).prompt_ids(user(content))
    assert ids == reference.encode(rendered, add_special_tokens=False).ids


@pytest.mark.parametrize(
    "content", ["the thing in the sand", "", "<|im_end|>", "the<|im_end|>the", "<|im_<|im_end|>end|>", "é 🙂\n\n x"]
)
def test_both_formats_of_one_tokenizer_give_the_same_ids(merging: JsonTokenizer, tiny_gguf: Path, content: str) -> None:
    llama = LlamaTokenizer(tiny_gguf)
    ids = ChatTemplate(merging, merging.vocabulary.template).prompt_ids(user(content))
    assert ids == ChatTemplate(llama, llama.vocabulary.template).prompt_ids(user(content))
    assert ChatTemplate(merging, "").plain_ids(content) == ChatTemplate(llama, "").plain_ids(content)
    first = tiny_tokenizer().first_special
    assert sum(i >= first for i in ids) == 3, f"{SPECIAL[1]} twice and {SPECIAL[2]} once"


# BOS.

BEGIN = "<|begin|>"
BEGIN_ID = 260


@pytest.fixture(scope="module")
def with_bos(tmp_path_factory: pytest.TempPathFactory) -> JsonTokenizer:
    """The tiny tokenizer with a BOS token that its file puts before every text."""
    content = json.loads(tiny_tokenizer_files()["tokenizer.json"])
    content["added_tokens"].append(content["added_tokens"][0] | {"id": BEGIN_ID, "content": BEGIN})
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": BEGIN, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {BEGIN: {"id": BEGIN, "ids": [BEGIN_ID], "tokens": [BEGIN]}},
    }
    return JsonTokenizer(store(tmp_path_factory.mktemp("bos"), content), TINY_PADDED_WIDTH)


def test_a_bos_in_the_template_stands_once(with_bos: JsonTokenizer) -> None:
    ids = ChatTemplate(with_bos, BEGIN + TINY_TEMPLATE).prompt_ids(user("a"))
    assert ids == [BEGIN_ID, USER, ord("a"), END, ASSISTANT]


def test_no_bos_is_added_that_neither_template_nor_prompt_asks_for(with_bos: JsonTokenizer) -> None:
    assert ChatTemplate(with_bos, TINY_TEMPLATE).prompt_ids(user("a")) == [USER, ord("a"), END, ASSISTANT]
    assert ChatTemplate(with_bos, "").plain_ids("a") == [ord("a")]


@pytest.mark.parametrize("token", [BEGIN, {"content": BEGIN, "lstrip": False}])
def test_a_bos_that_the_settings_name_stands_once_with_and_without_a_template(tmp_path: Path, token: object) -> None:
    content = json.loads(tiny_tokenizer_files()["tokenizer.json"])
    content["added_tokens"].append(content["added_tokens"][0] | {"id": BEGIN_ID, "content": BEGIN})
    folder = store(tmp_path, content, bos_token=token, eos_token="<|end|>", add_bos_token=True)
    template = ChatTemplate(JsonTokenizer(folder, TINY_PADDED_WIDTH), "{{ bos_token }}" + TINY_TEMPLATE)
    assert template.prompt_ids(user("a")) == [BEGIN_ID, USER, ord("a"), END, ASSISTANT]
    assert template.plain_ids("a") == [BEGIN_ID, ord("a")]


@pytest.mark.parametrize("name", ["bos_token", "eos_token"])
def test_a_template_that_asks_for_a_token_by_a_name_unknown_here_is_refused(with_bos: JsonTokenizer, name: str) -> None:
    template = ChatTemplate(with_bos, "{{ " + name + " }}" + TINY_TEMPLATE)
    with refused(Reason.MODEL_UNSUPPORTED, name):
        template.prompt_ids(user("a"))
    assert template.plain_ids("a") == [ord("a")]


def test_a_template_may_set_such_a_name_itself(with_bos: JsonTokenizer) -> None:
    template = "{% set bos_token = '" + BEGIN + "' %}{{ bos_token }}" + TINY_TEMPLATE
    assert ChatTemplate(with_bos, template).prompt_ids(user("a"))[0] == BEGIN_ID


# What is refused.


@pytest.mark.parametrize(
    "message",
    [
        {"role": "robot", "content": "x"},
        {"role": "", "content": "x"},
        {"role": "<|end|>", "content": "x"},
        {"content": "x"},
        {"role": "user"},
        {"role": "user", "content": None},
        {"role": "user", "content": ["x"]},
    ],
)
def test_a_message_without_a_known_role_and_a_text_is_refused(tiny: JsonTokenizer, message: dict[str, Any]) -> None:
    template = ChatTemplate(tiny, TINY_TEMPLATE)
    for messages in ([message], [*user("fine"), message]):
        with refused(Reason.USAGE, "a role out of system, user, assistant, tool"):
            template.prompt_ids(messages)


@pytest.mark.parametrize("template", ["{% for %}", "{{", "{% endfor %}", "{{ x | no_such_filter }}", "{% include %}"])
def test_a_template_that_is_no_valid_jinja_is_refused_when_it_is_loaded(tiny: JsonTokenizer, template: str) -> None:
    with refused(Reason.MODEL_UNSUPPORTED, "not valid"):
        ChatTemplate(tiny, template)


def test_without_a_template_messages_are_refused_and_plain_prompts_are_not(tiny: JsonTokenizer) -> None:
    template = ChatTemplate(tiny, "")
    with refused(Reason.MODEL_UNSUPPORTED, "plain prompt"):
        template.prompt_ids(user("x"))
    assert template.plain_ids("x") == [ord("x")]


def test_a_template_can_refuse_in_its_own_words(tiny: JsonTokenizer) -> None:
    template = "{% if messages[0].role == 'system' %}{{ raise_exception('no system here') }}{% endif %}ok"
    with refused(Reason.MODEL_UNSUPPORTED, "no system here"):
        ChatTemplate(tiny, template).prompt_ids([{"role": "system", "content": "x"}])
    assert ChatTemplate(tiny, template).prompt_ids(user("x")) == list(b"ok")


@pytest.mark.parametrize(
    "attempt",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{{ ''.__class__.__base__ }}",
        "{{ '{0.__class__.__mro__}'.format('') }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
    ],
)
def test_an_attempt_to_leave_the_sandbox_is_refused(tiny: JsonTokenizer, attempt: str) -> None:
    with refused(Reason.MODEL_UNSUPPORTED, "refuses"):
        ChatTemplate(tiny, attempt).prompt_ids(user("x"))


@pytest.mark.parametrize(
    "faulty",
    [
        "{{ 1 / (messages | length - 1) }}",
        "{{ messages[0].content + 1 }}",
        "{% for i in range(10 ** 9) %}x{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ messages[7].content }}",
    ],
)
def test_a_template_that_fails_in_any_other_way_is_refused_too(tiny: JsonTokenizer, faulty: str) -> None:
    with refused(Reason.MODEL_UNSUPPORTED, "refuses"):
        ChatTemplate(tiny, faulty).prompt_ids(user("x"))


def test_templates_have_what_published_ones_use(tiny: JsonTokenizer) -> None:
    template = (
        "{%- for m in messages %}\n    {%- if loop.first %}{{ m | tojson }}{% continue %}{% endif %}\n{%- endfor %}"
        "{% if tools %}tools{% endif %}{{ strftime_now('%%') }}"
    )
    ids = ChatTemplate(tiny, template).prompt_ids(user("ü<"))
    assert bytes(ids).decode() == '{"role": "user", "content": "ü<"}%'


def test_lines_that_hold_only_a_block_leave_no_trace(tiny: JsonTokenizer) -> None:
    template = "{% for m in messages %}\n  {% if true %}\n{{ m.content }}\n  {% endif %}\n{% endfor %}\n"
    assert bytes(ChatTemplate(tiny, template).prompt_ids(user("x"))) == b"x\n"
