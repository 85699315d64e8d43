"""What the tests of pretrained tokenizers share: texts, and the comparison of ids."""

import keras
import numpy as np

from keras_tfm.checkpoints import CheckpointError
from keras_tfm.export import run_file, to_saved_model

EDGES = [
    "",
    " ",
    "     ",
    "Hello, world!",
    "don't it's I'LL we've THEY'RE o'clock 's 'S",
    "naïve café Zürich Ångström İstanbul ŁÓDŹ",
    "e\u0301 a\u0301\u0327 \u0301 o\u0308\u0304",  # combining marks, one alone
    "ΟΔΟΣ ΣΑΣ Σ",  # a capital sigma at the end of a word
    "東京は日本の首都です。日本語 中文字符",
    "한국어 각 ก็ नमस्ते สวัสดีชาวโลกทั้งหลายที่อยู่ในโลกใบนี้",
    "👩‍👩‍👧‍👦 👍🏽 🇩🇪 ☺️",
    "\x00\x01\x1f\x7f a\x00b",
    "zero\u200bwidth\u200d\ufeff\u00adx\u2060",
    "1234567 3.14 1,000 x1y22 ٣٤ ½ Ⅷ ②",
    "word" * 30,
    "x" * 100 + " " + "x" * 101,
    "ab " * 200,
    "tab\tnew\nline\r\n\r\n  end \t\n",
    "   a   b\n\n  c \t\t x\n\n\n",
    " leading",
    "trailing  ",
    "a\u00a0b\u3000c\u2003\u2028d\u0085",
    "!!!???... --- (a)[b]{c} $5+3=8 ^~` “q” …",
    "def f(x):\n    return x\n\n\n    y = 3\t# comment",
    "ﬁ Ａｂ ① ℌ ſ ß ẞ K",
    "\ufffd \U0010ffff \ue000",
    "SMITHSONIAN iPhone mRNA https://a.b/c?d=e&f=g a_b@c.de",
]
SPECIAL_TEXTS = ["{0}", " {0} a {1}", "a{0}{1}b", "x {0}\n{1}  {0}{0}", "{0}  {1} "]


def special_texts(first, second):
    """Texts with special tokens written in them."""
    return [text.format(first, second) for text in SPECIAL_TEXTS]


def real_sentences(tfds_dir):
    """1,000 sentences: reviews, German captions, books, Chinese."""
    import tensorflow_datasets as tfds

    def read(name, split, key, number):
        dataset = tfds.load(name, data_dir=tfds_dir, split=split)
        return [
            example[key].decode("utf-8")
            for example in dataset.take(number).as_numpy_iterator()
        ]

    book = read("gutenberg_books", "validation", "text", 1)[0]
    lines = [line for line in book.split("\r\n" if "\r\n" in book else "\n") if line]
    texts = read("glue/sst2", "train", "sentence", 250)
    texts += read("multi30k/en-de", "train", "de", 250)
    texts += read("tatoeba_en_zh", "train", "zh", 250)
    texts += lines[200:450]
    assert len(texts) == 1000
    return texts


def random_texts(number=2000, letters=" \t\n\r\u00a0\u3000 'a'sST.!1٣é漢\u0301"):
    """Short texts of characters that pre-tokenizers treat differently."""
    random = np.random.default_rng(0)
    lengths = random.integers(1, 14, number)
    return ["".join(random.choice(list(letters), length)) for length in lengths]


def check_ids(tokenizer, reference, texts):
    """Ids and decoded texts equal those of a `tokenizers.Tokenizer`."""
    expected = [
        encoding.ids
        for encoding in reference.encode_batch(texts, add_special_tokens=False)
    ]
    actual = [row.tolist() for row in tokenizer.encode(texts)]
    wrong = [
        (text, ours, theirs)
        for text, ours, theirs in zip(texts, actual, expected)
        if ours != theirs
    ]
    assert not wrong, wrong[:3]
    assert tokenizer.detokenize(expected) == reference.decode_batch(expected)
    with_special = tokenizer.detokenize(expected, skip_special_tokens=False)
    assert with_special == reference.decode_batch(expected, skip_special_tokens=False)


def ids_of_saved_model(tokenizer, texts, folder):
    """Ids that a SavedModel with strings in gives: list of lists.

    Args:
        tokenizer: `PretrainedTokenizer`.
        texts: list of str.
        folder: path, where the SavedModel is written.
    """
    ids = keras.Input((None,), dtype="int32", name="token_ids")
    model = keras.Model(ids, keras.layers.Identity(name="ids")(ids))
    to_saved_model(model, folder, lambda text: tokenizer(text).to_tensor(-1))
    encoded = np.array([text.encode("utf-8") for text in texts], object)
    rows = run_file(folder, {"text": encoded}, "predict_text")["ids"]
    return [row[row >= 0].tolist() for row in rows]


def message_of(function, *args):
    """The line that a refused tokenizer ends with."""
    try:
        function(*args)
    except CheckpointError as error:
        assert "\n" not in str(error)
        return str(error)
    raise AssertionError("nothing was raised")
