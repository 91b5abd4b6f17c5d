"""No field of a row is lost in silence: it is in the prompt or the response, or named by a refusal or a list."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibudget.errors import DataError
from calibudget.pipeline.run import run
from calibudget.pipeline.verify import verify
from calibudget.recipe.load import load_recipe
from calibudget.records import Message, Record
from calibudget.sources.spec import SourceSpec
from calibudget.sources.whole_source import SourceRead, read_source
from calibudget.store.manifest import MANIFEST


def read(folder: Path, *rows: dict[str, Any], **spec: Any) -> SourceRead:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return read_source(SourceSpec(label="s", path="rows.jsonl", **spec), folder)


def only(folder: Path, row: dict[str, Any], **spec: Any) -> Record:
    (record,) = read(folder, row, **spec).records
    return record


def turns(*pairs: tuple[str, str]) -> tuple[Message, ...]:
    return tuple(Message(role=role, content=content) for role, content in pairs)


CHAT = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]


@pytest.mark.parametrize(
    ("row", "prompt"),
    [
        ({"instruction": "q", "context": "c", "response": "a", "category": "x"}, turns(("user", "q\nc"))),
        ({"question": "q", "context": "c", "answer": "a"}, turns(("user", "q\nc"))),
        ({"instruction": "q", "input": "i", "context": "c", "output": "a"}, turns(("user", "q\ni\nc"))),
        ({"prompt": "q", "input": "i", "completion": "a"}, turns(("user", "q\ni"))),
        ({"prompt": "q", "input": " ", "context": "", "completion": "a"}, turns(("user", "q"))),
        (
            {"instruction": "q", "output": "a", "history": [["one", "1"], ["two", "2"]]},
            turns(("user", "one"), ("assistant", "1"), ("user", "two"), ("assistant", "2"), ("user", "q")),
        ),
        (
            {"prompt": "q", "completion": "a", "history": '[["one", "1"]]', "system_prompt": "s"},
            turns(("system", "s"), ("user", "one"), ("assistant", "1"), ("user", "q")),
        ),
        ({"prompt": "q", "completion": "a", "history": CHAT}, turns(("user", "q"), ("assistant", "a"), ("user", "q"))),
        ({"messages": CHAT, "system": "s"}, turns(("system", "s"), ("user", "q"))),
        (
            {"messages": [{"role": "system", "content": "s"}, *CHAT], "system_prompt": "s"},
            turns(("system", "s"), ("user", "q")),
        ),
        ({"messages": json.dumps(CHAT)}, turns(("user", "q"))),
        ({"messages": {"role": ["user", "assistant"], "content": ["q", "a"]}}, turns(("user", "q"))),
        ({"conversations": {"from": ["human", "gpt"], "value": ["q", "a"], "weight": [None, None]}},
         turns(("user", "q"))),
        ({"Instruction": "q", "Context": "c", "System-Prompt": "s", "Output ": "a"},
         turns(("system", "s"), ("user", "q\nc"))),
        ({"question": "q", "passage": "p", "document": "d", "choices": "c", "answer": "a"},
         turns(("user", "q\np\nd\nc"))),
        ({"prompt": "q", "completion": "a", "chat_history": [["one", "1"]], "system_instruction": "s"},
         turns(("system", "s"), ("user", "one"), ("assistant", "1"), ("user", "q"))),
        ({"Messages": CHAT, "functions": "[]", "image_0": None}, turns(("user", "q"))),
        ({"messages": None, "conversations": None, "prompt": "q", "completion": "a"}, turns(("user", "q"))),
        ({"instruction": "q", "output": "a", "messages": None}, turns(("user", "q"))),
    ],
)  # fmt: skip
def test_a_field_that_belongs_to_the_prompt_is_in_it(
    tmp_path: Path, row: dict[str, Any], prompt: tuple[Message, ...]
) -> None:
    record = only(tmp_path, row)
    assert record.prompt == prompt
    assert record.completion == "a"


def test_tools_of_one_exchange_are_kept(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert only(tmp_path, {"instruction": "q", "output": "a", "tools": json.dumps(tools)}).tools == tuple(tools)


ALPACA: dict[str, Any] = {"instruction": "q", "output": "a"}
LAST = {"role": "assistant", "content": "a"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"messages": [CHAT[0], LAST | {"weight": 0}]}, r"turn 2, the last: 'weight' is 0.*isn't to be taught"),
        ({"messages": [CHAT[0], LAST | {"weight": 0.5}]}, r"'weight' is 0\.5.*some other way than whole"),
        ({"messages": [CHAT[0], LAST | {"train": False}]}, r"'train' is False"),
        ({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a", "loss": False}]}, "'loss'"),
        (ALPACA | {"weight": 0.0}, r"the field 'weight' is 0\.0"),
        (ALPACA | {"train": "false"}, "the field 'train' is 'false'"),
        ({"prompt": "q", "completion": "a", "label": False}, "the field 'label' is False, which marks a response"),
        ({"prompt": "q", "completion": "a", "label": "false"}, "the field 'label' is 'false'"),
        (ALPACA | {"kto_tag": False}, "the field 'kto_tag' is False"),
        (ALPACA | {"passed": "no"}, "the field 'passed' is 'no'"),
        (ALPACA | {"is_test": True}, "the field 'is_test' is True"),
        (ALPACA | {"partition": "test"}, "the field 'partition' is 'test'"),
        (ALPACA | {"instruction": "[IMAGE_1] What is it?"}, r"the prompt holds \[IMAGE_1\]"),
        ({"messages": [CHAT[0], LAST | {"reasoning_content": "r"}]}, "turn 2: the field 'reasoning_content' holds"),
        ({"messages": [CHAT[0], LAST | {"thinking": "r"}, *CHAT]}, "turn 2: the field 'thinking'"),
        (ALPACA | {"reasoning": "r"}, "the field 'reasoning' holds reasoning"),
        (ALPACA | {"image": "coco/0.jpg"}, "the field 'image' holds images"),
        (ALPACA | {"videos": ["v.mp4"]}, "the field 'videos' holds images, video"),
        (ALPACA | {"audio": {"path": "a.wav", "bytes": None}}, "the field 'audio'"),
        ({"messages": [CHAT[0] | {"images": ["i.png"]}, LAST]}, "turn 1: the field 'images'"),
        ({"conversations": [{"from": "human", "value": "<image>\nq"}, {"from": "gpt", "value": "a"}]}, "<image>"),
        (ALPACA | {"input": "look at <image> and <image>"}, "the prompt holds <image>"),
        (ALPACA | {"instruction": "<audio>What is said?"}, "the prompt holds <audio>"),
        (ALPACA | {"instruction": "Watch <video> and answer."}, "the prompt holds <video>"),
        (ALPACA | {"instruction": "Describe <|image_1|> now"}, r"the prompt holds <\|image_1\|>"),
        (ALPACA | {"instruction": "<img>a/b.png</img> What is it?"}, "the prompt holds <img>a/b.png</img>"),
        (ALPACA | {"input": "<IMAGE>"}, "the prompt holds <IMAGE>"),
        (ALPACA | {"trainable": 0}, "the field 'trainable' is 0"),
        (ALPACA | {"trained": False}, "the field 'trained' is False"),
        (ALPACA | {"Loss Weight": 0}, "the field 'Loss Weight' is 0.*isn't to be taught"),
        (ALPACA | {"train_mask": [0, 1]}, "the field 'train_mask' is .*some other way than whole"),
        (ALPACA | {"masked": True}, "the field 'masked' is True.*isn't to be taught"),
        (ALPACA | {"mask": 1}, "the field 'mask' is 1.*some other way than whole"),
        (ALPACA | {"is_correct": False}, "the field 'is_correct' is False"),
        (ALPACA | {"rejected": True}, "the field 'rejected' is True"),
        (ALPACA | {"weight": "NaN"}, "the field 'weight' is 'NaN'"),
        *(({"messages": [CHAT[0], LAST | {name: value}]}, f"turn 2, the last: '{name}' is")
          for name, value in {
              "trained": False, "loss_weight": 0, "Weight": 0, "mask": True, "ignore": 1, "learn": False,
              "training": "false", "label": False, "rejected": True,
          }.items()),
        ({"Prompt": "q", "Completion": "a", "LABEL": 0}, "the field 'LABEL' is 0, which marks a response"),
        ({"prompt": "q", "completion": "a", "label": "undesirable"}, "the field 'label' is 'undesirable'"),
        *((ALPACA | {name: "r"}, f"the field '{name}' holds reasoning")
          for name in ("thought", "Thoughts", "cot", "chain_of_thought", "rationale", "think", "reasoning_trace")),
        *((ALPACA | {name: "x"}, f"the field '{name}' holds images")
          for name in ("Image", "img", "image_0", "jpg", "picture", "speech", "pdf")),
        (ALPACA | {"file": {"bytes": "aGk=", "path": "0.png"}}, "the field 'file' holds images"),
        *((ALPACA | {"instruction": text}, "the prompt holds") for text in (
            "<IMG_CONTEXT> what?", "[IMG] what?", "![](data:image/png;base64,iVBO) what?", "What is this? <img>",
            "<img>\nWhat?", "<speech>what is said?", "<sound> what?",
        )),
        *((ALPACA | {"instruction": text}, "which stands for media") for text in (
            "<audio>clips/a.wav</audio> What is said?", "Watch <video>v.mp4</video>.", "<image>x</image>\nWhat?",
            "(<image>./</image>)\nWhat?", "<__media__>\nWhat?", "[image]\nWhat is it?", "What is it? [Image]",
            "One\n[video]\nTwo", "<ImageHere> What?", "<|audio_bos|><|AUDIO|><|audio_eos|>What?",
            "<|vision_start|><|image_pad|><|vision_end|>", "<|media_pad|>", "<|begin_of_image|>What?", "<end_of_image>",
            "<image/> What?", "What is it?\n<image />", "[Image: a.png]\nWhat?", "What?\n[video: clips/b.mp4]",
        )),
        (ALPACA | {"instruction": "<Img>a/b.png</Img> What?"}, "which is an image"),
        ({"messages": [CHAT[0] | {"content": [{"type": "text", "text": "q", "image": "a.png"}]}, LAST]},
         "turn 1: the field 'image' holds images"),
        *((ALPACA | row, f"the field '{name}' is .*(isn't to be taught|other way than whole)") for name, row in (
            (name, {name: value}) for name, value in {
                "is_correct": "no", "do_not_train": True, "skip_training": 1, "no_loss": "true", "correct": False,
                "verified": "false", "weights": [1, 0], "sample_weight": 0, "label": 0, "do_train": "no",
                "train_detail": [{"begin_offset": 0, "end_offset": 1, "train": False}], "Sample-Weight": "0.00",
            }.items()
        )),
        *(({"messages": CHAT, "label": value}, "the field 'label' is .*isn't to be taught")
          for value in (0, "false", "negative", False)),
        ({"conversations": {"from": ["human", "gpt"], "value": ["q", "a"]}, "label": 0}, "'label' is 0"),
        (ALPACA | {"split": "test"}, "the field 'split' is 'test', and the source reads the split 'train'; say which"),
        ({"messages": [{"role": "system", "content": "t"}, *CHAT], "system": "s"}, "with another system message"),
        (ALPACA | {"Context": "c", "context": "d"}, "the fields 'context' and 'Context' are one"),
        (ALPACA | {"choices": ["c", "d"]}, "the field 'choices' must hold text"),
        (ALPACA | {"Context": ["c"]}, "'context' is 'Context' in the row"),
        (ALPACA | {"functions": [{"name": "f"}]}, "the field 'functions' describes functions; write them as `tools`"),
        ({"messages": [{"role": "system", "content": "s", "tools": [{"name": "f"}]}, *CHAT]}, "turn 1: .*'tools'"),
        ({"messages": CHAT, "context": "c"}, "the field 'context' holds a part of the prompt"),
        ({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}], "history": [["x", "y"]]},
         "the field 'history' holds earlier turns"),
        ({"prompt": [CHAT[0]], "completion": [LAST], "context": "c"}, "the field 'context'"),
        (ALPACA | {"context": ["c"]}, "the field 'context' must hold text"),
        (ALPACA | {"history": ["c"]}, "turn 1 must be an object"),
        (ALPACA | {"system": "s", "system_prompt": "t"}, "'system' and 'system_prompt' hold different system messages"),
        ({"messages": {"role": ["user"], "content": []}}, "lists of different lengths"),
    ],
)  # fmt: skip
def test_what_is_not_to_be_taught_or_cannot_be_read_is_refused_by_name(
    tmp_path: Path, row: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        only(tmp_path, row)
    found = read(tmp_path, row, {"instruction": "other", "output": "a"}, on_error="skip")
    assert (len(found.records), found.tally.skipped) == (1, 1)


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [CHAT[0], LAST | {"weight": 0}, CHAT[0], LAST | {"weight": 1}]},
        {"messages": [CHAT[0], LAST | {"train": True, "reasoning_content": "", "images": []}]},
        ALPACA | {"weight": 1.0, "loss": None, "train": "True"},
        {"prompt": "q", "completion": "a", "label": True},
        ALPACA | {"instruction": "Where does <img> go, and <img src='x'>?"},
        ALPACA | {"image": None, "images": [], "audio": {"path": None, "bytes": None}, "reasoning": " "},
        ALPACA | {"masked": False, "rejected": 0, "is_correct": True, "trained": 1},
        ALPACA | {"output": 'Write <img src="data:image/png;base64,iVBO"> or `[IMG]`, and <img> in HTML.'},
        ALPACA | {"instruction": "[IMG]http://x/y.png[/IMG] is BBCode; [img] too"},
        ALPACA | {"output": "Use <img> with a source."},
        ALPACA | {"output": "<video>\n<source>\n</video>"},
        ALPACA | {"instruction": "How do I use the <audio> tag of HTML? And the <video> HTML element, or '<image>'?"},
        ALPACA | {"instruction": "The <image> of <image>x</image>"},
        ALPACA | {"output": "<svg>\n<image/>\n</svg> or, in React Native, <Image />"},
        ALPACA
        | {"output": "List<Image> images;\nstd::vector<video> v;\nBox<Audio> b = <Image source={x} />;\n<Image>"},
        ALPACA | {"weights": [1, 1], "keep": True, "deleted": 0},
        ALPACA | {"output": "<rss>\n<image>x</image>\n<audio>a.wav</audio>\n</rss>"},
        ALPACA | {"instruction": "See [image](a.png), [image] or [Image: x] here, and the [video] below."},
        ALPACA | {"output": "[image](http://x/y)\n[image]: http://x\n<|im_start|> <vision> <media>"},
        *(ALPACA | {"weight": value} for value in ("1.00", " 1 ", 1.0, "1e0", "yes")),
        ALPACA | {"do_not_train": False, "verified": True, "sample_weight": "1.0", "do_train": 1},
        ALPACA | {"history": [CHAT[0], LAST | {"weight": 0, "is_correct": False}]},
    ],
)
def test_what_says_nothing_against_a_row_refuses_none(tmp_path: Path, row: dict[str, Any]) -> None:
    unused = read(tmp_path, row).tally.columns_not_used
    assert not [name for name in unused if not name.startswith("history[].")]


@pytest.mark.parametrize(
    "row",
    [
        ALPACA | {"label": 0, "choices": "x"},
        ALPACA | {"label": 0, "options": ["x", "y"]},
        {"instruction": "Is it good?", "output": "It is negative.", "label": "negative"},
        {"instruction": "How many?", "output": "0", "label": 0},
        {"messages": [CHAT[0], LAST | {"content": "false"}], "label": "false"},
        ALPACA | {"correct": "B", "split": "train_sft", "verified": 3, "label": 2},
        ALPACA | {"split": "a text about the test of time and other things that are long"},
    ],
)
def test_a_class_is_no_verdict_and_is_listed(tmp_path: Path, row: dict[str, Any]) -> None:
    names = set(row) - {"instruction", "output", "choices", "messages"}
    assert set(read(tmp_path, row).tally.columns_not_used) == names


def test_what_a_recipe_names_is_no_flag(tmp_path: Path) -> None:
    rows = [ALPACA | {"split": "test", "label": 0}, ALPACA | {"instruction": "r", "split": "train", "label": 1}]
    assert tuple(read(tmp_path, *rows, where={"split": "test"}, answer=_number("label")).tally.columns_not_used) == ()
    found = read(tmp_path, *rows, columns={"label": None, "split": None})
    assert (len(found.records), tuple(found.tally.columns_not_used)) == (2, ("label", "split"))
    assert tuple(read(tmp_path, rows[1] | {"split": "TRAIN"}).tally.columns_not_used) == ("label", "split")


def test_columns_that_nothing_uses_are_listed(tmp_path: Path) -> None:
    first = ALPACA | {"answer": "gold", "category": "x", "none": None, "label": 3}
    first |= {"thinking": True, "image": False}
    second = {
        "messages": [CHAT[0] | {"name": "n", "thinking": False}, LAST | {"time": 1, "weight": 1}],
        "prompt": "q",
        "id": "",
    }
    found = read(tmp_path, first, second)
    assert tuple(found.tally.columns_not_used) == (
        "answer", "category", "id", "image", "label", "messages[].name", "messages[].thinking", "messages[].time",
        "prompt", "thinking",
    )  # fmt: skip


def test_columns_that_the_recipe_names_are_used(tmp_path: Path) -> None:
    row = ALPACA | {"gold": "7", "kind": "x", "own": "1", "query": "r", "more": "m"}
    found = read(
        tmp_path, row,
        where={"kind": "x"}, id_field="own", answer=_number("gold"), columns={"instruction": "query", "input": "more"},
    )  # fmt: skip
    assert tuple(found.tally.columns_not_used) == ("instruction",)
    assert found.records[0].prompt == turns(("user", "r\nm"))


def test_a_column_that_a_selector_uses_is_used(tmp_path: Path) -> None:
    rows = [ALPACA | {"instruction": f"q{number}", "weight": number / 10} for number in range(4)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "recipe.yaml").write_text(
        "{policy: equal, budget: 2, calibration: none, selector: {scores: {column: weight}},"
        " sources: {a: {path: a.jsonl}}}"
    )
    result = run(load_recipe(tmp_path / "recipe.yaml"), tmp_path / "out")
    assert not [note for note in result.notes if "columns not used" in note]


def _number(field: str) -> object:
    from calibudget.tasks.answers import AnswerSpec

    return AnswerSpec(kind="number", field=field)


def test_columns_can_be_mapped_joined_and_left_out_on_purpose(tmp_path: Path) -> None:
    row: dict[str, Any] = {
        "input": "q", "passage": "p", "hint": None, "thinking": "t", "output": "a", "image": "<x>", "weight": 0,
    }  # fmt: skip
    columns = {
        "instruction": ("passage", "hint", "input"), "output": ("thinking", "output"), "image": None, "weight": None,
    }  # fmt: skip
    found = read(tmp_path, row, columns=columns)
    assert found.records[0].prompt == turns(("user", "p\nq"))
    assert found.records[0].completion == "t\na"
    assert tuple(found.tally.columns_not_used) == ("image", "weight")


def test_a_field_left_out_must_be_there(tmp_path: Path) -> None:
    row = ALPACA | {"Image": "x", "category": "c"}
    assert tuple(read(tmp_path, row, columns={"image": None, "category": None}).tally.columns_not_used) == (
        "Image",
        "category",
    )
    with pytest.raises(DataError, match=r"`columns: \{categroy: null\}` leaves out a field .* there is category"):
        read(tmp_path, row, columns={"image": None, "categroy": None})
    assert read(tmp_path, ALPACA | {"instruction": "<image> q"}, columns={"image": None}).tally.read == 1


def test_columns_of_bytes_are_text_or_refused(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

    def parquet(**columns: Any) -> SourceRead:
        pq.write_table(pa.table({name: pa.array([value]) for name, value in columns.items()}), tmp_path / "t.parquet")
        return read_source(SourceSpec(label="s", path="t.parquet"), tmp_path)

    (record,) = parquet(prompt="né".encode(), completion=b"a").records
    assert (record.prompt, record.completion) == (turns(("user", "né")), "a")
    (record,) = parquet(messages=[{"role": one["role"].encode(), "content": one["content"].encode()} for one in CHAT]
                        ).records  # fmt: skip
    assert record.prompt == turns(("user", "q"))
    with pytest.raises(DataError, match=r"field 'prompt'\) must be text, not bytes that are no UTF-8"):
        parquet(prompt=b"\xff", completion="a")
    with pytest.raises(DataError, match="the field 'weight' is 'NaN'"):
        parquet(prompt="q", completion="a", weight=float("nan"))


def test_what_stands_beside_the_rows_is_refused_or_listed(tmp_path: Path) -> None:
    def wrapped(**beside: Any) -> SourceRead:
        (tmp_path / "w.json").write_text(json.dumps({"train": {"rows": [ALPACA], **beside}, "version": 1}))
        return read_source(SourceSpec(label="s", path="w.json", rows="train.rows"), tmp_path)

    assert tuple(wrapped(licence="x").tally.columns_not_used) == ("train.licence", "version")
    with pytest.raises(DataError, match=r"source 's': beside `rows: train\.rows`: the field 'system' holds a system"):
        wrapped(system="s")


def test_fields_of_turns_can_be_left_out_on_purpose(tmp_path: Path) -> None:
    row: dict[str, Any] = {"messages": [CHAT[0] | {"content": "<image> q"}, LAST | {"reasoning_content": "r"}]}
    found = read(tmp_path, row, columns={"reasoning_content": None, "image": None})
    assert found.records[0].prompt == turns(("user", "<image> q"))
    assert tuple(found.tally.columns_not_used) == ("messages[].reasoning_content",)


NAMES = [
    "context", "history", "input", "system", "system_prompt", "tools", "functions", "weight", "loss", "train", "label",
    "reasoning_content", "thinking", "reasoning", "image", "images", "video", "audios", "answer", "question", "output",
    "passage", "choices", "category", "id", "Context", "messages", "prompt", "é ü", "Weight", "mask", "rejected",
]  # fmt: skip
BASES: list[dict[str, Any]] = [
    {"instruction": "q", "output": "a"},
    {"prompt": "q", "completion": "a"},
    {"question": "q", "answer": "a"},
    {"messages": CHAT},
    {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
    {"prompt": [CHAT[0]], "completion": [LAST]},
]


def _forms(marker: str) -> st.SearchStrategy[object]:
    return st.sampled_from(
        [marker, [marker], {"k": marker}, [[marker, marker]], [{"role": "user", "content": marker}], [{"name": marker}]]
    )


@settings(max_examples=300)
@given(st.data())
def test_every_field_is_used_refused_or_listed(data: st.DataObject) -> None:
    base = data.draw(st.sampled_from(BASES))
    names = data.draw(st.lists(st.sampled_from(NAMES), max_size=4, unique=True))
    markers = {name: f"marker{number}" for number, name in enumerate(names)}
    row = base | {name: data.draw(_forms(marker), label=name) for name, marker in markers.items()}
    in_turn = data.draw(st.booleans()) and "messages" in base and "messages" not in markers
    if in_turn:
        inner = data.draw(st.sampled_from(NAMES))
        row["messages"] = [CHAT[0], LAST | {inner: "inner"}]
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = read(Path(folder), row)
        except DataError as error:
            assert any(name in str(error) for name in (*row, *((inner,) if in_turn else ())))  # noqa: PT017
            return
    (record,) = found.records
    used = json.dumps([[turn.fields for turn in record.prompt], record.completion, record.tools], ensure_ascii=False)
    for name, marker in markers.items():
        assert marker in used or name in found.tally.columns_not_used
    if in_turn:
        assert "inner" in used or f"messages[].{inner}" in found.tally.columns_not_used


def test_a_run_lists_the_columns_that_it_does_not_use(tmp_path: Path) -> None:
    rows = [ALPACA | {"instruction": f"q{number}", "category": "c", "odd one": 1} for number in range(3)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "b.jsonl").write_text('{"prompt": "r", "completion": "s", "source": "x"}\n')
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "{policy: equal, budget: 3, floor: 1, calibration: none,"
        " sources: {a: {path: a.jsonl}}, companion: {path: b.jsonl}}"
    )
    result = run(load_recipe(recipe), tmp_path / "out")
    assert "a: columns not used: category, 'odd one'" in result.notes
    assert "companion: columns not used: source" in result.notes
    assert "the policy 'equal' knows no floor: `floor: 1` isn't used, and counts as 0" in result.notes
    manifest = MANIFEST.read(tmp_path / "out" / "manifest.json")
    assert manifest.sources["a"].columns_not_used == ("category", "odd one")
    assert manifest.companion is not None
    assert manifest.companion.columns_not_used == ("source",)
    assert not verify(tmp_path / "out", data_dir=tmp_path).differences


@pytest.mark.parametrize(
    ("rows", "spec", "message"),
    [
        (
            [
                {"instruction": "q", "output": "a", "pic": ""},
                {"instruction": "r", "output": "a", "pic": {"path": "x.png", "bytes": None}},
            ],
            {},
            "rows.jsonl:2: the field 'pic' holds images",
        ),
        ([{"system": "See <image>", "instruction": "q", "output": "a"}], {}, "the field 'system' holds <image>"),
        (
            [{"system_prompt": "See <|image_pad|>", "messages": CHAT}],
            {},
            "the field 'system_prompt' holds <|image_pad|>",
        ),
        ([{"question": "<image>\nq", "answer": "1+1=2\n#### 2"}], {"preset": "gsm8k"}, "the prompt holds <image>"),
    ],
)
def test_media_is_refused_wherever_it_stands(
    tmp_path: Path, rows: list[dict[str, Any]], spec: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        read(tmp_path, *rows, **spec)


def test_flags_inside_a_part_of_a_turn_are_listed(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "a", "train": False}]
    result = read(tmp_path, {"messages": [CHAT[0], {"role": "assistant", "content": parts}]})
    assert "messages[].content[].train" in result.tally.columns_not_used
