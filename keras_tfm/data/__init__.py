"""Tokenizers, masking, tf.data pipelines, embedded data sets and the user's files."""

from keras_tfm.data.augmentation import image_augmentation, image_mixing
from keras_tfm.data.batches import (
    bucket_lengths,
    bucketed_dataset,
    check_token_ids,
    count_cut,
    gather_dataset,
    pad_rows,
)
from keras_tfm.data.byte_level import byte_tokenizer
from keras_tfm.data.characters import CharacterTokenizer, train_characters
from keras_tfm.data.digits import load_digits
from keras_tfm.data.errors import DataError
from keras_tfm.data.files import (
    parse_source,
    read_csv_classification,
    read_image_folder,
    read_text,
    read_tsv_pairs,
)
from keras_tfm.data.images import channel_statistics, image_dataset
from keras_tfm.data.masking import (
    IGNORE_ID,
    MaskedLanguageModel,
    continuation_table,
)
from keras_tfm.data.number_words import number_split, number_word_pairs
from keras_tfm.data.pairs import next_sentence_pairs, pack_pair, truncate_pair
from keras_tfm.data.pipelines import (
    classification_dataset,
    count_cut_texts,
    encode_for_classification,
    encode_for_translation,
    language_model_dataset,
    random_windows_dataset,
    translation_dataset,
)
from keras_tfm.data.python_docs import (
    python_docs_classification,
    python_docs_paragraphs,
    python_docs_text,
)
from keras_tfm.data.python_docs_pairs import python_docs_pairs
from keras_tfm.data.splits import majority_baseline, split_indices
from keras_tfm.data.text_pairs import text_pairs_dataset
from keras_tfm.data.tfds_sets import (
    load_images,
    load_pair_classification,
    load_text,
    load_text_classification,
    load_tfds,
    load_translation,
)
from keras_tfm.data.tokenizer_files import load_tokenizer, save_tokenizer
from keras_tfm.data.tokenizers import (
    decode,
    encode,
    special_ids,
    train_byte_pair,
    train_sentencepiece,
    train_wordpiece,
)
from keras_tfm.data.windows import (
    next_token_windows,
    pack,
    pack_with_segments,
    segment_attention_mask,
)

__all__ = [
    "IGNORE_ID",
    "CharacterTokenizer",
    "DataError",
    "MaskedLanguageModel",
    "bucket_lengths",
    "bucketed_dataset",
    "byte_tokenizer",
    "channel_statistics",
    "check_token_ids",
    "classification_dataset",
    "continuation_table",
    "count_cut",
    "count_cut_texts",
    "decode",
    "encode",
    "encode_for_classification",
    "encode_for_translation",
    "gather_dataset",
    "image_augmentation",
    "image_dataset",
    "image_mixing",
    "language_model_dataset",
    "load_digits",
    "load_images",
    "load_pair_classification",
    "load_text",
    "load_text_classification",
    "load_tfds",
    "load_tokenizer",
    "load_translation",
    "majority_baseline",
    "next_sentence_pairs",
    "next_token_windows",
    "number_split",
    "number_word_pairs",
    "pack",
    "pack_pair",
    "pack_with_segments",
    "pad_rows",
    "parse_source",
    "python_docs_classification",
    "python_docs_pairs",
    "python_docs_paragraphs",
    "python_docs_text",
    "random_windows_dataset",
    "read_csv_classification",
    "read_image_folder",
    "read_text",
    "read_tsv_pairs",
    "save_tokenizer",
    "segment_attention_mask",
    "special_ids",
    "split_indices",
    "text_pairs_dataset",
    "train_byte_pair",
    "train_characters",
    "train_sentencepiece",
    "train_wordpiece",
    "translation_dataset",
    "truncate_pair",
]
