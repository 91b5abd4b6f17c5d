"""Recipes as people write them: defaults, overrides, and refusals that name file, line and field."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from calibudget.allocation.bounds import Portion
from calibudget.errors import RecipeError
from calibudget.recipe.load import load_recipe, resolved_fields, resolved_yaml

PLAIN = """\
model: embedded
budget: 100
floor: {a: 5, default: 10}
error: nll
sources:
  a: {path: a.jsonl, answer: none}
  b: {path: ["b1.jsonl", "b2.jsonl"], preset: piqa}
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(tmp_path: Path, text: str, *overrides: str) -> str:
    with pytest.raises(RecipeError) as caught:
        load_recipe(write(tmp_path, text), overrides)
    return str(caught.value).replace(str(tmp_path), "")


def test_defaults_are_the_paper_s(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, PLAIN))
    assert recipe.policy == "calibudget"
    assert (recipe.calibration.per_source, recipe.calibration.resamples) == (100, 200)  # type: ignore[union-attr]  # paper 2.2
    assert (recipe.exponents.need, recipe.exponents.availability, recipe.exponents.reliability) == (1.0, 0.5, 1.0)
    assert recipe.seed == recipe.split_seed == recipe.bootstrap_seed == recipe.selection_seed == 42
    assert recipe.default_floor == 10
    assert recipe.own_floors == {"a": 5}


def test_other_seeds_follow_the_seed_unless_given(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, PLAIN + "seed: 7\nselection_seed: 9\n"))
    assert (recipe.split_seed, recipe.bootstrap_seed, recipe.selection_seed, recipe.training_seed) == (7, 7, 9, 7)


def test_every_default_is_written_out_and_reads_back_equal(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, PLAIN))
    fields = resolved_fields(recipe)
    untold = {"base_url", "server", "evaluation"}  # told where a server scores, and where something is held out
    assert set(fields) == set(type(recipe).model_fields) - untold
    given = load_recipe(write(tmp_path, PLAIN), ["evaluation.per_source=3"])
    assert set(resolved_fields(given)) == set(type(recipe).model_fields) - {"base_url", "server"}
    assert fields["sources"]["b"]["answer"]["labels"] == ["solution1", "solution2"]
    again = load_recipe(write(tmp_path, resolved_yaml(recipe).decode()))
    assert resolved_yaml(again) == resolved_yaml(recipe)


def test_groups_nest_and_amounts_may_be_shares(tmp_path: Path) -> None:
    text = PLAIN.replace("default: 10", "default: 10% of budget") + "caps: {b: 50% of pool}\n"
    text += "groups:\n  all:\n    floor: 20% of budget\n    sources: [a]\n    groups: {inner: {sources: [b], cap: 7}}\n"
    recipe = load_recipe(write(tmp_path, text))
    assert recipe.default_floor == Portion(share=Fraction(1, 10), of="budget")
    assert recipe.groups is not None
    assert recipe.groups["all"].groups["inner"].cap == 7
    again = load_recipe(write(tmp_path, resolved_yaml(recipe).decode()))
    assert resolved_yaml(again) == resolved_yaml(recipe)


def test_overrides_replace_and_add_fields(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, PLAIN), ["budget=50", "calibration.per_source=12", "sources.a.on_error=skip"])
    assert recipe.budget_total == 50
    assert recipe.calibration.per_source == 12  # type: ignore[union-attr]
    assert recipe.sources["a"].on_error == "skip"


def test_data_dir_starts_at_the_recipe_but_an_override_at_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, PLAIN + "data_dir: below\n")
    assert load_recipe(path).data_root == tmp_path / "below"
    monkeypatch.chdir(tmp_path.parent)
    assert load_recipe(path, ["data_dir=elsewhere"]).data_root == tmp_path.parent / "elsewhere"


@pytest.mark.parametrize("field", ["data_dir", "cache", "calibration.adapter", "selector.scores"])
def test_a_place_of_this_machine_is_no_url_and_may_start_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    path = write(tmp_path, PLAIN)
    for value in ("s3://x/y", '"s3://x/y"'):
        with pytest.raises(RecipeError, match="of this machine; URLs go into"):
            load_recipe(path, [f"{field}={value}"])
    with pytest.raises(RecipeError, match="a home folder that isn't known"):
        load_recipe(path, [f"{field}=~nobody-of-this-name/x"])
    recipe = load_recipe(path, [f"{field}=~/x"])
    home = tmp_path / "home" / "x"
    scores = recipe.selector.scores
    given = {"data_dir": recipe.data_root, "cache": recipe.reading.cache, "calibration.adapter": recipe.adapter}
    assert (given | {"selector.scores": scores and Path(scores.file or "")})[field] == home


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("calibration={per_source: 0}", "calibration.per_source: must be at least 2, not 0"),
        ("budget={tokens: 0}", "budget.tokens: must be at least 1, not 0"),
        ("calibration={max_length: 9007199254740992}", "calibration.max_length: must be at most 9007199254740991, not"),
    ],
)
def test_a_mapping_that_may_be_a_word_is_told_what_is_wrong_in_it_alone(
    tmp_path: Path, override: str, told: str
) -> None:
    with pytest.raises(RecipeError) as refused:
        load_recipe(write(tmp_path, PLAIN), [override])
    assert str(refused.value).startswith(f"override `{override}`: {told}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("word", ["no", "off", "Yes", '""'])
def test_a_cache_is_no_folder_called_no(tmp_path: Path, word: str) -> None:
    path = write(tmp_path, PLAIN)
    with pytest.raises(RecipeError, match=r"cache: say true or false instead of .*a folder of that name is '\./"):
        load_recipe(path, [f"cache={word}"])
    assert load_recipe(path, ["cache=./no"]).reading.cache == tmp_path / "no"


@pytest.mark.parametrize(
    "field", ["data_dir", "cache", "model", "sources.a.path", "calibration.adapter", "selector.scores", "where.x"]
)
def test_a_nul_is_refused_wherever_it_stands(tmp_path: Path, field: str) -> None:
    with pytest.raises(RecipeError, match="holds a NUL"):
        load_recipe(write(tmp_path, PLAIN), [f'{field}="a\\0b"'])
    with pytest.raises(RecipeError, match=r"recipe\.yaml:8: data_dir: holds a NUL"):
        load_recipe(write(tmp_path, PLAIN + 'data_dir: "a\\0b"\n'))


def test_refusals_name_file_line_and_field(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for text, where in [
        (PLAIN.replace("floor:", "flour:"), "recipe.yaml:3: flour: unknown field"),
        (PLAIN + "budget: 3\n", "recipe.yaml:8: duplicate key 'budget' (first on line 2)"),
        (PLAIN.replace("budget: 100", "budget: 1OO"), "recipe.yaml:2: budget"),
        (PLAIN.replace("budget: 100", "budget: 100.0"), "recipe.yaml:2: budget"),
        (PLAIN.replace("budget: 100", "budget: -1"), "recipe.yaml:2: budget"),
        (PLAIN.replace("budget: 100", "budget: true"), "recipe.yaml:2: budget"),
        (PLAIN.replace("budget: 100\n", ""), "budget: missing"),
        (PLAIN.replace("preset: piqa", "preset: pica"), "recipe.yaml:7: sources.b: preset: 'pica' is unknown"),
        (PLAIN.replace("path: a.jsonl, ", ""), "recipe.yaml:6: sources.a: name either `path`"),
        (PLAIN.replace("answer: none", "answer: {kind: choice}"), "recipe.yaml:6: sources.a.answer"),
        (
            PLAIN.replace("answer: none", "answer: none, format: xml"),
            "recipe.yaml:6: sources.a.format: must be 'alpaca'",
        ),
        (PLAIN.replace("answer: none", "answer: none, on_error: ignore"), "recipe.yaml:6: sources.a.on_error: must be"),
        (PLAIN.replace("answer: none", "answr: none"), "recipe.yaml:6: sources.a.answr: unknown field"),
        (PLAIN.replace("{a: 5", "{c: 5"), "`floor` names 'c', which is not a source"),
        (PLAIN + "caps: 9000,1000\n", "recipe.yaml:8: caps"),
        (PLAIN + "? [a]\n: b\n", "recipe.yaml:8: a key isn't text"),
        (PLAIN + "max_repeats: 0\n", "recipe.yaml:8: max_repeats"),
        (PLAIN + "rounds: {}\n", "recipe.yaml:8: rounds.previous: missing"),
        (PLAIN + "rounds: {previous: x, calibration: old}\n", "recipe.yaml:8: rounds.calibration"),
        (PLAIN.replace("budget: 100", "budget: {tokens: 0}"), "recipe.yaml:2: budget"),
        (
            PLAIN.replace("default: 10}", "default: 0.1}"),
            "recipe.yaml:3: floor.default: the amount is 0.1, but of what?",
        ),
        (PLAIN.replace("default: 10}", "default: 10%}"), "the amount is '10%', which can't be read"),
        (PLAIN + "caps: {a: 120% of pool}\n", "recipe.yaml:8: caps.a: the amount is 1.2 of the pool"),
        (PLAIN + "groups: {g: {sources: [a]}}\n", "the groups miss 'b'"),
        (PLAIN + "groups: {g: {sources: [a, b], ceiling: 3}}\n", "recipe.yaml:8: groups.g.ceiling: unknown field"),
        (PLAIN + "policy: best\n", "recipe.yaml:8: policy: there is no policy 'best'"),
        (PLAIN + "policy: weights\n", "`weights` and `policy: weights` go together"),
        (PLAIN + "policy: weights\nweights: {a: 1O, b: 1}\n", "recipe.yaml:9: weights.a"),
        (PLAIN + "policy: weights\nweights: {a: 1}\n", "`weights` lacks the source 'b'"),
        (PLAIN + "policy: learning-curve\n", "recipe.yaml:8: policy: the policy 'learning-curve' was removed: "),
        (PLAIN + "policy: floor\n", "recipe.yaml:8: policy: the policy 'floor' was removed: take `floor-sqrt`"),
        (PLAIN + "policy: least-nll\n", "docs/testbed.md"),
        (PLAIN + "warm_up: {}\n", "`warm_up` was removed with the policies that read learning curves"),
        (PLAIN + "importance: {a: 1.0, b: 1.0}\n", "`importance` was removed with the policies"),
        (PLAIN + "calibration: none\n", "needs scores"),
        (PLAIN.replace("model: embedded\n", ""), "`model` is missing"),
        (PLAIN + "seed: 9007199254740992\n", "recipe.yaml:8: seed"),
        (PLAIN + "calibration: {per_source: 1}\n", "recipe.yaml:8: calibration.per_source"),
        (PLAIN.replace("error: nll", "error: nll+wrong"), "the source 'a' has no checkable answer"),
        (PLAIN.replace("  b:", "  A:"), "'A'"),
        (PLAIN.replace("  b:", '  "../b":'), "'../b'"),
        (PLAIN.replace("  b:", "  companion:"), "'companion' is kept for the companion set"),
        (PLAIN.replace("  b:", "  Companion:"), "'Companion' is kept for the companion set"),
        (PLAIN.replace("  b:", "  default:"), "'default' stands for all other sources"),
        (PLAIN.replace("  b:", '  "x/y":'), "'x/y'"),
        (PLAIN + "companion: {path: c.jsonl}\n" + "", None),
    ]:
        with subtests.test(text=text, where=where):
            if where is None:
                assert load_recipe(write(tmp_path, text)).companion_spec is not None
            else:
                assert where in refusal(tmp_path, text)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("9007199254740993", "9007199254740993 is beyond 2**53 - 1, where JSON's integers end; put it in quotes"),
        ("-9007199254740992", "-9007199254740992 is beyond 2**53 - 1"),
        ("9" * 4000, "put it in quotes"),
        (".nan", "nan isn't a finite number"),
        ("-.inf", "-inf isn't a finite number"),
        ("1e400", "inf isn't a finite number"),
        (r'"\ud800"', "holds half of a surrogate pair"),
    ],
)
def test_values_that_the_evidence_can_not_hold_are_refused_where_they_stand(
    tmp_path: Path, value: str, words: str
) -> None:
    where = PLAIN.replace("path: a.jsonl,", f"path: a.jsonl, where: {{n: {value}}},")
    assert refusal(tmp_path, where).startswith("/recipe.yaml:6: sources.a.where.n: ")
    assert words in refusal(tmp_path, where)
    listed = PLAIN.replace("path: a.jsonl,", f"path: a.jsonl, where: {{n: [1, {value}]}},")
    assert "/recipe.yaml:6: sources.a.where.n.1: " in refusal(tmp_path, listed)
    assert "sources.a.where.n: " in refusal(tmp_path, PLAIN, f"sources.a.where.n={value}")


def test_an_integer_of_more_digits_than_can_be_read_is_refused_by_its_line(tmp_path: Path) -> None:
    told = refusal(tmp_path, PLAIN + f"seed: {'9' * 5000}\n")
    assert told.startswith("/recipe.yaml:8: not valid YAML: 99999999999999999999... is no integer that can be read")


def test_a_quoted_number_is_text_and_the_largest_integers_stand(tmp_path: Path) -> None:
    rows = 'where: {n: "9007199254740993", m: [9007199254740991, 1e300]}'
    recipe = load_recipe(write(tmp_path, PLAIN.replace("path: a.jsonl,", f"path: a.jsonl, {rows},")))
    assert recipe.sources["a"].where == {"n": "9007199254740993", "m": (9007199254740991, 1e300)}
    beyond = PLAIN.replace("path: a.jsonl,", "path: a.jsonl, where: {n: 1.0e+20},")
    assert "sources.a.where.n: 1e+20 is beyond 2**53 - 1" in refusal(tmp_path, beyond)  # JSON writes its digits


def test_exponents_beyond_the_doubles_are_refused(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for value in [".inf", "-.inf", ".nan", "1e400", "1e308", "1000.5"]:
        for field in ["need", "availability", "reliability"]:
            with subtests.test(field=field, value=value):
                assert f"recipe.yaml:8: exponents.{field}: " in refusal(
                    tmp_path, PLAIN + f"exponents: {{{field}: {value}}}\n"
                )


def test_what_an_override_says_is_not_laid_to_the_file(tmp_path: Path) -> None:
    assert refusal(tmp_path, PLAIN, "budget=many").startswith("override `budget=many`: budget: ")
    calibrated = PLAIN + "calibration: {per_source: 50}\n"
    assert "override `calibration={per_source: 1}`" in refusal(tmp_path, calibrated, "calibration={per_source: 1}")
    assert "override `calibration.per_source=1`" in refusal(tmp_path, calibrated, "calibration.per_source=1")
    assert "recipe.yaml:8" in refusal(tmp_path, PLAIN + "calibration: {per_source: 1}\n", "calibration.resamples=9")


def test_the_nearest_field_of_its_own_mapping_is_named(tmp_path: Path) -> None:
    assert "did you mean `floor`?" in refusal(tmp_path, PLAIN.replace("floor:", "flor:"))
    assert "did you mean `per_source`?" in refusal(tmp_path, PLAIN + "calibration: {per_sorce: 5}\n")
    assert "user guide" in refusal(tmp_path, PLAIN + "zzz: 5\n")


def test_an_override_with_an_unknown_key_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, PLAIN, "bugdet=5") == (
        "override `bugdet=5`: bugdet: unknown field; did you mean `budget`?"
    )
    assert refusal(tmp_path, PLAIN, "sources.a.presset=piqa") == (
        "override `sources.a.presset=piqa`: sources.a.presset: unknown field; did you mean `preset`?"
    )
    for text in ("budget", "", "=", "=5"):
        assert f"override {text!r} isn't KEY=VALUE" in refusal(tmp_path, PLAIN, text)
    assert "isn't a mapping" in refusal(tmp_path, PLAIN, "budget.examples=5")


def test_a_fault_is_told_once(tmp_path: Path) -> None:
    """A field of several forms in one line, and a seed that four others default to where it stands."""
    path = tmp_path / "recipe.yaml"
    path.write_text(PLAIN.replace("budget: ", "seed: x\nbudget: many # "))
    with pytest.raises(RecipeError) as refused:
        load_recipe(path)
    lines = str(refused.value).splitlines()
    assert len(lines) == 2
    assert sum("seed" in line for line in lines) == 1
    assert any("budget: " in line and "integer" in line and "mapping" in line for line in lines)


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("selector={influence: x, mix: 3}", "selector.mix: "),
        ("caps.a=[a, 2]", "caps.a: "),
        ("template=plain", "template: must be 'alpaca' or 'chat', not 'plain'"),
        ("exponents.need=wide", "exponents.need: must be a number, not 'wide'"),
        ("sources.a.streaming=1", "sources.a.streaming: must be true or false, not 1"),
        ("sources={}", "sources: holds 0 and needs 1 or more"),
        ("sources.a.path=[]", "sources.a.path: holds 0 and needs 1 or more"),
        ("model=3", "model: must be text, not 3; put it in quotes"),
        ("workers=0", "workers: must be 'auto' or at least 1, not 0"),
        ("hygiene.near_duplicates={threshold: 0}", "threshold: must be above 0.0, not 0"),
        ("seed=-1", "seed: must be at least 0, not -1"),
    ],
)
def test_constraints_are_told_in_plain_words(tmp_path: Path, override: str, told: str) -> None:
    words = refusal(tmp_path, PLAIN, override)
    assert told in words
    for jargon in ("validation", "should", "valid ", "tuple", "Input"):
        assert jargon not in words
