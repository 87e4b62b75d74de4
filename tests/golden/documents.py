#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/documents: the same documents in every format that is read, each by the
library that users have.

    python tests/golden/documents.py        (pyarrow, datasets, tensorflow, megatron-core, torch)

The texts are a formula, which tests/inputs/readers/formats_test.cc also implements. A library that
is missing leaves its files as they are.
"""
import bz2
import gzip
import json
import lzma
import pathlib
import tempfile

ROOT = pathlib.Path(__file__).parent / "documents"
TEXTS = [f"document {i} " + "\u00e9" * (i % 5) + "x" * (i * 37 % 50) for i in range(24)]
LINES = "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(TEXTS)).encode()


def write_compressed():
    half = len(LINES) // 2
    (ROOT / "lines.jsonl.xz").write_bytes(lzma.compress(LINES[:half]) + lzma.compress(LINES[half:]))
    (ROOT / "lines.jsonl.bz2").write_bytes(bz2.compress(LINES[:half]) + bz2.compress(LINES[half:]))


def write_columns():
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"id": list(range(len(TEXTS))), "text": TEXTS,
                      "meta": [{"lang": "en", "body": text.upper()} for text in TEXTS]})
    for codec in ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]:
        pq.write_table(table.select(["id", "text"]), ROOT / f"{codec}.parquet", compression=codec,
                       row_group_size=7, write_statistics=False, store_schema=False)
    pq.write_table(table, ROOT / "nested.parquet", row_group_size=11)
    pq.write_table(table.select(["text"]), ROOT / "delta.parquet", use_dictionary=False,
                   column_encoding={"text": "DELTA_BYTE_ARRAY"}, data_page_version="2.0")
    pq.write_table(table.select(["text"]), ROOT / "checksums.parquet", use_dictionary=False,
                   compression="none", write_page_checksum=True)
    large = pa.table({"text": pa.array(TEXTS, pa.large_string())})
    pq.write_table(large, ROOT / "large.parquet", data_page_size=64)
    nulls = pa.table({"text": pa.array(["a", None, "c"])})
    pq.write_table(nulls, ROOT / "nulls.parquet")
    with pa.OSFile(str(ROOT / "file.arrow"), "wb") as file, \
            pa.ipc.new_file(file, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=7):
            writer.write_batch(batch)
    coded = pa.table({"text": pa.array(TEXTS).dictionary_encode(), "id": table["id"]})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.OSFile(str(ROOT / "coded.arrow"), "wb") as file, \
            pa.ipc.new_stream(file, coded.schema, options=options) as writer:
        for batch in coded.to_batches(max_chunksize=10):
            writer.write_batch(batch)


def write_parts():
    """The documents in several files, a file with other columns, one of which text is a tenth, and
    one of long documents."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for i, (begin, end) in enumerate([(0, 9), (9, 10), (10, 17), (17, 24)]):
        pq.write_table(pa.table({"text": TEXTS[begin:end]}), ROOT / f"part-{i}.parquet",
                       row_group_size=4)
    pq.write_table(pa.table({"text": [1, 2], "body": ["a body of text", "and another"]}),
                   ROOT / "numbers.parquet")
    columns = {name: [f"{i:04d}" + name[0] * 1020 for i in range(256)]
               for name in ["text", *(f"other {i}" for i in range(8))]}
    long = {"text": [f"{i:04d}" + "t" * (2 ** 17 - 4) for i in range(64)]}
    for name, table in {"wide": columns, "long": long}.items():
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(table), sink, compression="none", use_dictionary=False,
                       write_statistics=False, row_group_size=64, write_batch_size=1)
        (ROOT / f"{name}.parquet.gz").write_bytes(gzip.compress(sink.getvalue(), mtime=0))


def write_dataset():
    import datasets

    with tempfile.TemporaryDirectory() as folder:
        datasets.Dataset.from_dict({"id": list(range(len(TEXTS))), "text": TEXTS}).save_to_disk(folder)
        cache = next(pathlib.Path(folder).glob("*.arrow"))
        (ROOT / "datasets.arrow").write_bytes(cache.read_bytes())


def write_records():
    import tensorflow as tf

    def example(i, text):
        feature = {"id": tf.train.Feature(int64_list=tf.train.Int64List(value=[i])),
                   "url": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"http://a", b"b"])),
                   "score": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5])),
                   "text": tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()]))}
        return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()

    for name, options in {"c4.tfrecord-00000-of-00001": None, "c4.tfrecord.gz": "GZIP"}.items():
        with tf.io.TFRecordWriter(str(ROOT / name), options) as writer:
            for i, text in enumerate(TEXTS):
                writer.write(example(i, text))


def write_token_records():
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(ROOT / "ids.tfrecord")) as writer:
        for i, text in enumerate(TEXTS):  # The ids of the tokenizer "bytes".
            ids = tf.train.Int64List(value=[byte + 1 for byte in text.encode()])
            feature = {"targets": tf.train.Feature(int64_list=ids),
                       "text": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"t"]))}
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature))
                         .SerializeToString())


def write_megatron():
    import numpy
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    for name, dtype in {"megatron_u16": numpy.uint16, "megatron_i32": numpy.int32}.items():
        builder = IndexedDatasetBuilder(str(ROOT / f"{name}.bin"), dtype=dtype)
        for text in TEXTS:  # The ids of the tokenizer "bytes".
            ids = torch.tensor([byte + 1 for byte in text.encode()])
            builder.add_document(ids, [len(ids)])
        builder.finalize(str(ROOT / f"{name}.idx"))


if __name__ == "__main__":
    ROOT.mkdir(exist_ok=True)
    for write in [write_compressed, write_columns, write_parts, write_dataset, write_records,
                  write_token_records, write_megatron]:
        try:
            write()
        except ImportError as missing:
            print(f"{write.__name__}: {missing}")
