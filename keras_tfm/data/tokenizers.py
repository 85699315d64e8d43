"""Tokenizers of keras_hub, trained on the user's own texts.

The vocabularies are learned by `tokenizers` and `sentencepiece`. In all of them id 0 is
padding. Special tokens never come out of a text, only out of their ids.

Letters: V vocabulary_size.
"""

import functools
import io
import json

import numpy as np

from keras_tfm.data.errors import DataError

WORDPIECE_SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
BYTE_PAIR_SPECIALS = ["<pad>", "<s>", "</s>"]
ROLES = {  # role: the names it goes by in the kinds of tokenizers
    "pad": ("[PAD]", "<pad>"),
    "unknown": ("[UNK]", "<unk>"),
    "start": ("[CLS]", "<s>"),
    "end": ("[SEP]", "</s>"),
    "mask": ("[MASK]",),
}


def train_wordpiece(texts, vocabulary_size, lowercase=True):
    """Learn a WordPiece vocabulary (BERT's kind).

    Args:
        texts: iterable of str.
        vocabulary_size: int V, the largest size; little text gives less.
        lowercase: bool, whether texts are lowercased, in training and in use.

    Returns: `keras_hub.tokenizers.WordPieceTokenizer`; [PAD] is 0, [UNK] 1, [CLS] 2,
        [SEP] 3, [MASK] 4.

    Raises:
        DataError: if the texts are empty.
        ValueError: if `vocabulary_size` leaves no room for the special tokens.
    """
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers, trainers

    _check_size(vocabulary_size, len(WORDPIECE_SPECIALS))
    texts = _not_empty(texts)
    if lowercase:  # as keras_hub does: "\u00df" becomes "ss"
        texts = [text.casefold() for text in texts]
    trained = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    trained.normalizer = normalizers.BertNormalizer(
        lowercase=False, strip_accents=False
    )
    trained.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    # Named beforehand and in order, else their ids change from run to run.
    suffixes = ["##" + c for c in _continuing_characters(texts, trained)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary_size,
        special_tokens=WORDPIECE_SPECIALS + suffixes,
        show_progress=False,
    )
    trained.train_from_iterator(texts, trainer)
    ids = trained.get_vocab()
    return make_wordpiece(sorted(ids, key=ids.get), lowercase)


def train_byte_pair(texts, vocabulary_size):
    """Learn a byte-level byte-pair vocabulary (GPT-2's kind): no unknown token.

    Args:
        texts: iterable of str.
        vocabulary_size: int V >= 259: 3 special tokens, 256 bytes, then merges.

    Returns: `keras_hub.tokenizers.BytePairTokenizer`; <pad> is 0, <s> 1, </s> 2.

    Raises:
        DataError: if the texts are empty.
        ValueError: if `vocabulary_size` is below 259.
    """
    import tokenizers
    from tokenizers import models, pre_tokenizers, trainers

    _check_size(vocabulary_size, len(BYTE_PAIR_SPECIALS) + 256)
    trained = tokenizers.Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=BYTE_PAIR_SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    trained.train_from_iterator(_not_empty(texts), trainer)
    model = json.loads(trained.to_str())["model"]
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    return make_byte_pair(model["vocab"], merges)


def train_sentencepiece(
    texts, vocabulary_size, kind="unigram", lowercase=False, split_digits=True
):
    """Learn SentencePiece sub-words, e.g. joint ones for both sides of a translation.

    Args:
        texts: iterable of str, for a joint vocabulary those of both languages.
        vocabulary_size: int V, the largest size; little text gives less.
        kind: "unigram" or "bpe".
        lowercase: bool, whether texts are case-folded, in training and in use.
        split_digits: bool, every digit is a token of its own.

    Returns: `keras_hub.tokenizers.SentencePieceTokenizer`; <pad> is 0, <unk> 1, <s> 2,
        </s> 3.

    Raises:
        DataError: if the texts are empty or too few for the vocabulary.
        ValueError: for an unknown `kind`.
    """
    import sentencepiece

    if kind not in ("unigram", "bpe"):
        raise ValueError(f'`kind` must be "unigram" or "bpe", got {kind!r}.')
    _check_size(vocabulary_size, 4)
    proto = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(_not_empty(texts)),
            model_writer=proto,
            vocab_size=vocabulary_size,
            hard_vocab_limit=False,
            model_type=kind,
            character_coverage=1.0,
            normalization_rule_name="nmt_nfkc_cf" if lowercase else "nmt_nfkc",
            split_digits=split_digits,
            pad_id=0,
            unk_id=1,
            bos_id=2,
            eos_id=3,
            unk_surface="\ufffd",
            num_threads=1,  # the same sub-words on every machine
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1].split("] ")[-1]
        raise DataError(
            f"No {vocabulary_size} sub-words can be learned from these texts: {reason}"
        ) from error
    return make_sentencepiece(proto.getvalue())


def special_ids(tokenizer):
    """Look up the special tokens of any tokenizer made here.

    Args:
        tokenizer: a tokenizer made by a function of this file, or a
            `keras_tfm.checkpoints.PretrainedTokenizer`.

    Returns: dict with the keys "pad", "unknown", "start", "end", "mask"; the value is
        an int, or None where the tokenizer has no such token.
    """
    if hasattr(tokenizer, "special_ids"):  # a pretrained one knows
        return {**tokenizer.special_ids, "pad": tokenizer.special_ids["pad"] or 0}
    vocabulary = set(tokenizer.get_vocabulary())
    result = {}
    for role, names in ROLES.items():
        ids = [tokenizer.token_to_id(name) for name in names if name in vocabulary]
        result[role] = int(ids[0]) if ids else None
    if result["pad"] is None:
        result["pad"] = 0
    return result


def encode(tokenizer, texts):
    """Turn texts into token ids, without special tokens.

    Args:
        tokenizer: see `special_ids`.
        texts: list of str.

    Returns: list of int32 arrays; an empty text gives an empty array.
    """
    import keras_hub
    import tensorflow as tf

    texts = list(texts)
    if not texts:
        return []
    if hasattr(tokenizer, "encode"):
        return tokenizer.encode(texts)
    graph_kinds = (
        keras_hub.tokenizers.WordPieceTokenizer,
        keras_hub.tokenizers.BytePairTokenizer,
    )
    tokenize = _graph(tokenizer) if isinstance(tokenizer, graph_kinds) else tokenizer
    rows = []
    for at in range(0, len(texts), 4096):
        part = tokenize(tf.constant(texts[at : at + 4096]))
        if isinstance(part, tf.RaggedTensor):
            part = np.split(part.values.numpy(), part.row_splits.numpy()[1:-1])
        rows += [np.array(row, "int32") for row in part]
    return rows


def decode(tokenizer, sequences):
    """Turn token ids into texts: cut at the first end token, special tokens dropped.

    Args:
        tokenizer: see `special_ids`.
        sequences: int (B, T) or a list of id lists; padding may follow.

    Returns: list of str.
    """
    ids = special_ids(tokenizer)
    dropped = {ids[role] for role in ("pad", "start", "mask")}
    rows = []
    for sequence in sequences:
        row = []
        for token_id in np.asarray(sequence, "int64").tolist():
            if token_id == ids["end"]:
                break
            if token_id not in dropped:
                row.append(token_id)
        rows.append(row)
    return [str(tokenizer.detokenize([row])[0]) if row else "" for row in rows]


def make_wordpiece(vocabulary, lowercase):
    """Make keras_hub's tokenizer of a vocabulary list."""
    import keras_hub

    return keras_hub.tokenizers.WordPieceTokenizer(vocabulary, lowercase=lowercase)


def make_byte_pair(vocabulary, merges):
    """Make keras_hub's tokenizer; no text is ever read as a special token."""
    import keras_hub

    return keras_hub.tokenizers.BytePairTokenizer(
        vocabulary, merges, unsplittable_tokens=[]
    )


def make_sentencepiece(proto):
    """Make keras_hub's tokenizer of a trained model's bytes."""
    import keras_hub

    return keras_hub.tokenizers.SentencePieceTokenizer(proto)


@functools.lru_cache(maxsize=8)
def _graph(tokenizer):
    """Trace a tokenizer once.

    Its graph gives the ids that an exported tokenizer gives (keras_hub's Python path
    splits "('s" and long numbers otherwise), and WordPiece is 20 times as fast.
    """
    import tensorflow as tf

    return tf.function(
        tokenizer.tokenize, input_signature=[tf.TensorSpec([None], "string")]
    )


def _continuing_characters(texts, trained):
    """Sort the characters that follow another one within a word."""
    pairs = set()
    for text in texts:
        pairs.update(zip(text, text[1:]))
    found = set()
    for pair in pairs:
        normal = trained.normalizer.normalize_str("".join(pair))
        words = [word for word, _ in trained.pre_tokenizer.pre_tokenize_str(normal)]
        found.update(*(word[1:] for word in words))
    return sorted(found)


def _check_size(vocabulary_size, least):
    if vocabulary_size <= least:
        raise ValueError(
            f"`vocabulary_size` must be above {least}, got {vocabulary_size}."
        )


def _not_empty(texts):
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise DataError("There is no text to learn a vocabulary from.")
    return texts
