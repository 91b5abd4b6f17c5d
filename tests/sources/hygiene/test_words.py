from __future__ import annotations

import unicodedata

import pytest

from calibudget.sources.hygiene.contamination import words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("  \n…!? --- 。", []),
        ("Is it TRUE? it's 3.14", ["is", "it", "true", "it", "s", "3", "14"]),
        ("snake_case", ["snake", "case"]),
        ("naïve_ÉCOLE “Straße”", ["naïve", "école", "strasse"]),
        ("हिन्दी में लिखा", ["हिन्दी", "में", "लिखा"]),
        ("العربية مكتوبة، هنا", ["العربية", "مكتوبة", "هنا"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("これはペンabc。", ["こ", "れ", "は", "ペ", "ン", "abc"]),
        ("ก็ได้", ["ก็", "ไ", "ด้"]),
        ("漢字𠀀", ["漢", "字", "𠀀"]),
    ],
)
def test_words_of_many_scripts(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_composed_and_decomposed_texts_have_the_same_words() -> None:
    text = "Ångström café über"
    assert words(text) == words(unicodedata.normalize("NFD", text))
