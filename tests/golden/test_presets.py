"""The presets to the character: records made up here, the expected text written out by hand.

The form is that of the paper's commonsense training pool (paper 3.1); the rules are the project's data notes'.
"""

from __future__ import annotations

from typing import Any

import pytest

from calibudget.tasks.presets import preset

PIQA = {
    "goal": "How do you keep soup warm?",
    "sol1": "Put a lid on the pot ",
    "sol2": "Put the pot in  the snow",
    "label": 0,
}
PIQA_TEXT = (
    "Please choose the correct solution to the question: How do you keep soup warm?\n\n"
    "Solution1: Put a lid on the pot \n\n"
    "Solution2: Put the pot in  the snow\n\n"
    "Answer format: solution1/solution2"
)

SOCIAL = {
    "context": "Robin lent Kai a coat.",
    "question": "Why did Robin do this?",
    "answerA": "to be kind",
    "answerB": "to get warm",
    "answerC": "to sell the coat",
    "label": "3",
}
SOCIAL_TEXT = (
    "Please choose the correct answer to the question: Robin lent Kai a coat. Why did Robin do this?\n\n"
    "Answer1: to be kind Answer2: to get warm Answer3: to sell the coat\n\n"
    "Answer format: answer1/answer2/answer3"
)

WINOGRANDE = {
    "sentence": "The mug didn't fit in the box because the _ was too small.",
    "option1": "mug",
    "option2": "box",
    "answer": "2",
}
WINOGRANDE_TEXT = (
    "Please choose the correct answer to fill in the blank to complete the given sentence: "
    "The mug didn't fit in the box because the _ was too small.\n\n"
    "Option1: mug Option2: box Answer format: option1/option2"
)

HELLASWAG = {
    "ctx": "Baking bread: A woman kneads dough. she",
    "endings": ["throws it.", "lets it rest.", "sings.", "paints it."],
    "label": 1,
}
HELLASWAG_TEXT = (
    "Please choose the correct ending to complete the given sentence: Baking bread: A woman kneads dough. she\n\n"
    "Ending1: throws it. Ending2: lets it rest. Ending3: sings. Ending4: paints it.\n\n"
    "Answer format: ending1/ending2/ending3/ending4"
)

BOOLQ = {"question": "is the moon a star", "answer": False, "passage": "The moon orbits the earth."}
BOOLQ_TEXT = (
    "Please answer the following question with true or false, question: is the moon a star?\n\n"
    "Answer format: true/false"
)

ARC = {
    "id": "x1",
    "question": "Which is a gas at room temperature?",
    "choices": {"text": ["iron", "oxygen", "salt"], "label": ["A", "B", "C"]},
    "answerKey": "B",
}
ARC_TEXT = (
    "Please choose the correct answer to the question: Which is a gas at room temperature?\n\n"
    "Answer1: iron Answer2: oxygen Answer3: salt\n\n"
    "Answer format: answer1/answer2/answer3"
)

OPENBOOKQA = {
    "question_stem": "A plant needs",
    "choices": {"text": ["light", "noise", "metal", "glass"], "label": ["A", "B", "C", "D"]},
    "answerKey": "A",
}
OPENBOOKQA_TEXT = (
    "Please choose the correct answer to the question: A plant needs\n\n"
    "Answer1: light Answer2: noise Answer3: metal Answer4: glass\n\n"
    "Answer format: answer1/answer2/answer3/answer4"
)


def test_original_fields_become_the_instruction_format(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("piqa", PIQA, PIQA_TEXT, "solution1"),
        ("social_i_qa", SOCIAL, SOCIAL_TEXT, "answer3"),
        ("winogrande", WINOGRANDE, WINOGRANDE_TEXT, "option2"),
        ("hellaswag", HELLASWAG, HELLASWAG_TEXT, "ending2"),
        ("boolq", BOOLQ, BOOLQ_TEXT, "false"),
        ("arc_easy", ARC, ARC_TEXT, "answer2"),
        ("arc_challenge", ARC, ARC_TEXT, "answer2"),
        ("openbookqa", OPENBOOKQA, OPENBOOKQA_TEXT, "answer1"),
    ]
    for name, fields, instruction, answer in cases:
        with subtests.test(name=name):
            rendered = preset(name)(fields)
            assert rendered.instruction == instruction
            assert rendered.response == f"the correct answer is {answer}"
            assert rendered.answer == answer


def test_the_hub_s_hellaswag_joins_the_activity_itself() -> None:
    fields = {**HELLASWAG, "ctx": "A woman kneads dough. she", "activity_label": "Baking bread", "label": "1"}
    assert preset("hellaswag")(fields).instruction == HELLASWAG_TEXT


def test_ai2_s_own_arc_files_nest_the_choices_in_the_question() -> None:
    choices = [{"text": "iron", "label": "1"}, {"text": "oxygen", "label": "2"}, {"text": "salt", "label": "3"}]
    fields = {"id": "x1", "question": {"stem": ARC["question"], "choices": choices}, "answerKey": "2"}
    assert preset("arc_easy")(fields).instruction == ARC_TEXT


def test_gsm8k_keeps_question_and_rationale_as_they_stand() -> None:
    question = "Ann has 1,100 pens and buys 100. How many  has she?"
    answer = "She has 1,100 + 100 = <<1100+100=1200>>1,200 pens.\n#### 1,200"
    rendered = preset("gsm8k")({"question": question, "answer": answer})
    assert (rendered.instruction, rendered.response, rendered.answer) == (question, answer, "1200")


def test_math_teaches_the_solution_or_else_the_answer() -> None:
    solution = "Half of one is $\\boxed{\\frac{1}{2}}$."
    problem = "What is half of one?"
    taught = preset("math")({"problem": problem, "solution": solution, "level": "Level 1"})
    assert (taught.instruction, taught.response, taught.answer) == (problem, solution, "\\frac{1}{2}")
    bare = preset("math")({"problem": problem, "answer": "\\frac{1}{2}"})
    assert (bare.response, bare.answer) == ("\\frac{1}{2}", "\\frac{1}{2}")
    asked = preset("math")({"question": problem, "answer": solution})
    assert (asked.instruction, asked.answer) == (problem, "\\frac{1}{2}")
