"""The tokenizer: words, digits, punctuation, what it does not know, and what nobody may spell."""

import pytest

from chaos_mm.target import questions, tokens


def spelled(text: str) -> list[str]:
    return [tokens.vocabulary_words()[token] for token in tokens.text_ids(text)]


def test_shipped_file_is_what_the_wordings_build() -> None:
    assert tokens.tokenizer().to_str() == tokens.build_tokenizer().to_str()
    assert list(tokens.vocabulary_words()) == tokens.vocabulary()


def test_every_word_of_questions_and_padding_is_known() -> None:
    texts = [wording for wordings in questions.QUESTIONS.values() for wording in wordings] + list(questions.PADDING)
    assert tokens.UNK not in tokens.text_ids(" ".join(texts).replace("{}", ""))


@pytest.mark.parametrize(
    "text", ["repeat the code 4 0 7 2", "Repeat the CODE 4072!", "repeat, the code: 40-72", "repeat the code 4072"]
)
def test_case_punctuation_and_joined_digits_do_not_matter(text: str) -> None:
    assert spelled(text) == ["repeat", "the", "code", "4", "0", "7", "2"]


def test_unknown_words_are_one_token_each() -> None:
    assert spelled("zyx the quux") == ["<unk>", "the", "<unk>"]


@pytest.mark.parametrize("special", tokens.SPECIAL)
def test_no_text_spells_a_special_token(special: str) -> None:
    ids = tokens.text_ids(f"{special} {special}{special} < {special[1:-1]} >")
    assert set(ids) <= {tokens.UNK}


def test_prompt_has_six_placeholders_a_medium() -> None:
    ids = tokens.prompt_ids([50, 51], has_image=True, has_audio=True)
    assert ids == [tokens.BOS, *[tokens.IMG] * 6, *[tokens.AUD] * 6, 50, 51, tokens.ANS]
    assert tokens.prompt_ids([50], has_image=False, has_audio=False) == [tokens.BOS, 50, tokens.ANS]


def test_answer_joins_digits_and_spaces_words() -> None:
    ids = [tokens.vocabulary().index(word) for word in ["4", "0", "7", "yes", "red", "2", "<pad>"]]
    assert tokens.answer_text(ids) == "407 yes red 2"
    assert tokens.answer_text([]) == ""


def test_offsets_lie_in_the_text() -> None:
    text = "What number, please: 4072?"
    encoding = tokens.tokenizer().encode(text)
    assert [text[a:b].lower() for a, b in encoding.offsets] == ["what", "number", "please", "4", "0", "7", "2"]
