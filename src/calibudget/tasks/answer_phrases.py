"""How answers are stated in the languages that models answer in: one table, a row for each.

Phrases are plain words, parted by bars; a blank stands for any blanks. `any_of` makes the pattern of some.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from calibudget.values import nfc

#: Scripts that put no blanks between words, or hang endings on foreign ones: Thai to Khmer, Han, kana, Hangul.
_UNSPACED: Final = re.compile(
    "[\u0e00-\u109f\u1780-\u17ff\u2e80-\u2fff\u3005-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
#: Stands before and after every character of such a script, so that a word ends there for regular expressions too.
_MARK: Final = "\ue000"
_GAP: Final = r"[*_\"' ]{0,8}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrases:
    """The phrases of one language, each field alternatives parted by bars.

    Attributes:
        answer: words for "answer".
        option: words for what is chosen from; they state a choice as `answer` does, and may stand before a label.
        quality: what may follow them: "correct", "final".
        is_: what links them to the answer; an empty alternative if they need no link.
        choose: verbs that a chosen label follows.
        article: what may stand between a statement and its label.
        right: what follows a label that is said to be right.
        not_: what stands before labels that are ruled out.
        wrong: what follows a label that is ruled out.
        but: what leads from the label that is ruled out to the one that is right.
        or_: what joins labels of which none is chosen.
        and_: what joins labels of which one may be.
        end: a copula that ends a sentence of nothing but a label.
        question: headings of an invented next question.
    """

    answer: str
    option: str = ""
    quality: str = ""
    is_: str = ""
    choose: str = ""
    article: str = ""
    right: str = ""
    not_: str = ""
    wrong: str = ""
    but: str = ""
    or_: str = ""
    and_: str = ""
    end: str = ""
    question: str = ""


ENGLISH: Final = Phrases(
    answer="answer",
    option="option|choice|solution|ending|response|prediction|conclusion|label",
    is_="is|are|was|would be|should be|will be|must be",
    choose="choose|pick|select|leaves|leaving|go with",
    article="the|option|choice|answer|letter|number|most likely|probably|definitely|clearly|indeed",
    right="is correct|is right|is the correct|is the right|is the best|is the answer",
    not_="not|not be|isn't|aren't|wasn't|can't be|cannot be|won't be"
    "|ruling out|rule out|ruled out|rules out|eliminate|eliminating|eliminates"
    "|excluding|exclude|except|rather than|instead of",
    wrong="is wrong|is incorrect|is false|is out|is ruled out|is eliminated|is impossible|are wrong|are incorrect"
    "|are out|are ruled out|is not|isn't|are not|aren't|cannot be|can't be|can not be|doesn't|does not",
    but="but|but rather",
    or_="or",
    and_="and|nor",
    question="question|problem|exercise|instruction|user|human|q",
)

#: The other languages.
LANGUAGES: Final = {
    "Chinese": Phrases(
        answer="答案|正解|结果|結果",
        option="选项|選項",
        quality="应该|應該|应当|应|應|就",
        is_="是|为|為|应是|應是|应为|應為|选|選",
        choose="故选|故選|应选|應選|选择|選擇|选|選",
        article="选项|選項|选择|選擇|第|答案",
        right="选项正确|选项是正确|项正确|是正确|是正確|是对的|是對的|正确|正確|符合",
        not_="不是|并非|並非|而非|不选|不選|排除|不会是|不可能是",
        wrong="选项错误|选项不正确|项错误|不正确|不正確|不对|不對|是错|是錯|错误|錯誤|不符合|不成立|不是",
        but="而是|而应是|应该是|應該是|应是",
        or_="或|或者|还是|還是",
        and_="和|与|與|及",
        question="问题|問題|题目|題目|例题|用户",
    ),
    "Japanese": Phrases(
        answer="答え|答|正解|解答|回答|正答",
        option="選択肢|正しい選択肢",
        is_="は|が|って",
        article="選択肢の|選択肢|番号",
        right="が正解|が正しい|が答え|が適切|が最も適切|を選",
        wrong="ではなく|ではない|ではありません|じゃない|でなく|は間違|は誤|は不正解|は正しくな|は不適切",
        or_="または|か|もしくは",
        and_="と|や",
        end="です|だ|である|でしょう",
        question="質問|問題|問|ユーザー",
    ),
    "Korean": Phrases(
        answer="정답|답|해답|답변",
        option="선택지|보기",
        is_="은|는|이|가",
        article="선택지|보기|옵션",
        right="가 정답|이 정답|가 맞|이 맞|가 옳|이 옳|가 답|이 답|번이 정답|번이 맞",
        wrong="가 아니|이 아니|는 아니|은 아니|은 틀|는 틀|은 오답|는 오답|가 틀|이 틀",
        but="라|고",
        or_="또는|혹은|나|이나",
        and_="와|과",
        end="입니다|이다|예요|이에요|번|번입니다|임",
        question="질문|문제|사용자",
    ),
    "German": Phrases(
        answer="Antwort|Lösung|Ergebnis",
        option="Option|Antwortmöglichkeit|Auswahl",
        is_="ist|lautet|wäre|sind|heißt",
        choose="wähle|wählen|richtig ist|korrekt ist",
        article="also|daher|die|der|das|Option|Antwort|Antwortmöglichkeit|Buchstabe|Nummer|eindeutig",
        right="ist richtig|ist korrekt|ist die richtige|ist die korrekte|ist die Antwort|stimmt",
        not_="nicht|nicht richtig ist|nicht korrekt ist|keinesfalls|anstatt|statt|außer",
        wrong="ist falsch|ist nicht|ist es nicht|ist inkorrekt|scheidet aus|scheiden aus|stimmt nicht|sind falsch",
        but="sondern",
        or_="oder",
        and_="und",
        question="Frage|Aufgabe|Anweisung|Benutzer",
    ),
    "French": Phrases(
        answer="réponse|solution|résultat",
        option="option|proposition",
        quality="correcte|exacte|finale|juste|attendue",
        is_="est|serait|sont|est donc",
        choose="choisis|choisir|choisissons",
        article="donc|la|le|option|l'option|lettre|réponse|proposition|numéro",
        right="est correct|est correcte|est la bonne|est la réponse|est juste|est exacte",
        not_="n'est pas|pas|excluons|éliminons|en éliminant|en excluant|sauf",
        wrong="est faux|est fausse|est incorrect|est incorrecte|n'est pas|est exclu|est exclue|ne convient pas",
        but="mais",
        or_="ou",
        and_="et",
        question="question|problème|exercice|utilisateur",
    ),
    "Spanish": Phrases(
        answer="respuesta|solución|resultado",
        option="opción|alternativa",
        quality="correcta|final|acertada",
        is_="es|sería|son|será",
        choose="elijo|elegimos|selecciono|escojo",
        article="por tanto|la|el|opción|letra|alternativa|respuesta|número",
        right="es correcta|es correcto|es la correcta|es la respuesta|es la opción correcta",
        not_="no es|no puede ser|descartamos|descartando|descarto|excepto|en lugar de|en vez de",
        wrong="es incorrecta|es incorrecto|es falsa|es falso|no es|no puede ser|queda descartada|está mal",
        but="sino|sino que es",
        or_="o",
        and_="y",
        question="pregunta|problema|ejercicio|usuario",
    ),
    "Portuguese": Phrases(
        answer="resposta|solução|resultado",
        option="opção|alternativa",
        quality="correta|certa|final",
        is_="é|seria|são|será",
        choose="escolho|escolhemos|seleciono",
        article="portanto|a|o|opção|letra|alternativa|resposta|número",
        right="está correta|está correto|está certa|é a correta|é a resposta|é correta|é a alternativa correta",
        not_="não é|não pode ser|descartando|descartamos|eliminando|exceto|em vez de",
        wrong="está errada|está errado|está incorreta|é incorreta|é falsa|é falso|não é|não pode ser|fica descartada",
        but="mas|mas sim|e sim",
        or_="ou",
        and_="e",
        question="pergunta|questão|problema|exercício|usuário",
    ),
    "Italian": Phrases(
        answer="risposta|soluzione|risultato",
        option="opzione|alternativa",
        quality="corretta|giusta|esatta|finale",
        is_="è|sarebbe|sono|sarà",
        choose="scelgo|scegliamo|seleziono",
        article="quindi|la|lo|il|opzione|l'opzione|lettera|risposta|numero",
        right="è corretta|è giusta|è esatta|è la risposta|è quella corretta",
        not_="non è|non può essere|escludendo|escludiamo|eccetto|tranne|invece di",
        wrong="è sbagliata|è errata|è falsa|è falso|è scorretta|non è|non può essere",
        but="ma|bensì",
        or_="o|oppure",
        and_="e",
        question="domanda|problema|esercizio|utente",
    ),
    "Russian": Phrases(
        answer="ответ|ответом|решение|результат",
        option="вариант|вариантом",
        quality="такой",
        is_="является|будет|есть|это",
        choose="выбираю|выбираем|выбрать",
        article="это|вариант|ответ|буква|под буквой|пункт|номер",
        right="верно|верный|правильно|правильный|является правильным",
        not_="не|исключая|исключаем|кроме|вместо",
        wrong="неверно|неверный|неправильно|неправильный|не подходит|не является|ошибочно|это неверно",
        but="а",  # noqa: RUF001 - Russian
        or_="или",
        and_="и",
        question="вопрос|задача|задание|пользователь",
    ),
    "Arabic": Phrases(
        answer="الإجابة|الاجابة|إجابة|الجواب|جواب|والإجابة|فالإجابة|والجواب|فالجواب|الحل|الناتج",
        option="الخيار|الاختيار",
        quality="الصحيحة|الصحيح|النهائية|النهائي|إذن",
        is_="هي|هو|إذن",
        choose="أختار|نختار|اختر",
        article="الخيار|الحرف|الإجابة|رقم|هو|هي",
        right="هي الإجابة|هو الجواب|صحيح|صحيحة|هو الصحيح|هي الصحيحة|هو الخيار الصحيح",
        not_="ليس|ليست|ليس هو|ليست هي|باستثناء|نستبعد|باستبعاد|وليس|وليست",
        wrong="خطأ|خاطئ|خاطئة|غير صحيح|غير صحيحة|ليس|ليست",
        but="بل|بل هي|بل هو|ولكن",
        or_="أو",
        and_="و",
        question="السؤال|سؤال|المسألة|المستخدم",
    ),
    "Hindi": Phrases(
        answer="उत्तर|जवाब|हल|परिणाम",
        option="विकल्प",
        is_="है|हैं|होगा|यह है|",
        article="विकल्प|है|अक्षर|संख्या",
        right="सही है|सही उत्तर|सही विकल्प|सही जवाब",
        wrong="नहीं|गलत है|ग़लत है|गलत|सही नहीं",
        but="बल्कि|है बल्कि|है, बल्कि",
        or_="या",
        and_="और",
        end="है|हैं",
        question="प्रश्न|सवाल|उपयोगकर्ता",
    ),
    "Thai": Phrases(
        answer="คำตอบ|เฉลย|ผลลัพธ์",
        option="ตัวเลือก|ข้อ",
        quality="ที่ถูกต้อง|ที่ถูก|สุดท้าย",
        is_="คือ|เป็น|ได้แก่",
        choose="จึงตอบ|ตอบ|เลือก",
        article="ข้อ|ตัวเลือก|คือ|หมายเลข",
        right="ถูกต้อง|คือคำตอบ|เป็นคำตอบ|ถูก",
        not_="ไม่ใช่ข้อ|ไม่ใช่|ยกเว้น|ตัด",
        wrong="ผิด|ไม่ถูก|ไม่ใช่",
        but="แต่เป็น|แต่คือ|แต่",
        or_="หรือ",
        and_="และ",
        end="ครับ|ค่ะ",
        question="คำถาม|โจทย์|ผู้ใช้",
    ),
    "Vietnamese": Phrases(
        answer="đáp án|câu trả lời|trả lời|kết quả|đáp số",
        option="phương án|lựa chọn",
        quality="đúng|chính xác|cuối cùng|của tôi",
        is_="là|sẽ là",
        choose="chọn",
        article="phương án|lựa chọn|đáp án|câu|số",
        right="là đáp án|là câu trả lời|là phương án đúng|đúng|là đúng|chính xác",
        not_="không phải là|không phải|loại trừ|loại|trừ",
        wrong="sai|là sai|không đúng|không phải|không chính xác",
        but="mà là|mà",
        or_="hoặc|hay",
        and_="và",
        question="câu hỏi|bài toán|người dùng",
    ),
}


def any_of(phrases: str) -> str:
    """The pattern of any of some phrases as whole words, the longest first, in a `parted` text."""
    words = sorted(set(phrases.split("|")) - {""}, key=lambda word: (-len(word), word))
    return whole("|".join(map(spelt, words)))


def spelt(word: str) -> str:
    """The pattern of a phrase or a label in a `parted` text, but for its ends."""
    return re.escape(parted(nfc(word)).strip(_MARK)).replace(r"\ ", r"[ \t]+")


def whole(pattern: str, *, before: str = r"(?<!\w)", after: str = r"(?!\w)") -> str:
    """A pattern of whole words in a `parted` text, the marks at their ends taken along."""
    return f"(?:{_MARK}?{before}(?:{pattern}){after}{_MARK}?)"


def answer_opener(phrases: Phrases, *, options: bool) -> str:
    """The pattern of what states an answer in a language: "the answer is", "answer:", "answer -"."""
    nouns = any_of(f"{phrases.answer}|{phrases.option}" if options and phrases.option else phrases.answer)
    quality = rf"(?:{_GAP}{any_of(phrases.quality)}){{0,2}}" if phrases.quality else ""
    unlinked = "|" if phrases.is_.endswith("|") else ""
    return rf"{nouns}{quality}{_GAP}(?:{any_of(phrases.is_)}|[:=\]]|(?<=[ \t])[-\u2014](?=[ \t]){unlinked})"


def parted(text: str) -> str:
    """The text with a mark before and after every character of a script that puts no blanks between words."""
    return text if text.isascii() else _UNSPACED.sub(rf"{_MARK}\g<0>{_MARK}", text)


def joined(text: str) -> str:
    """The text without the marks of `parted`."""
    return text.replace(_MARK, "")


def is_parted(text: str) -> bool:
    """Whether a `parted` text holds characters of a script that puts no blanks between words."""
    return _MARK in text
